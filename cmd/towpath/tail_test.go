package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestTailShowsWhatWouldBePublishedAndMovesNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		r.init(config)
		var file, offset string
		r.binlogEnd(&file, &offset)
		r.exec(`INSERT INTO outbox (aggregate, payload) VALUES (7, '{"secret": 1}'), (8, '{"secret": 2}')`)
		r.exec(`INSERT INTO outbox (aggregate, payload, status) VALUES (7, '{}', 'HELD')`)
		r.exec(`INSERT INTO outbox (aggregate, payload) VALUES (7, '{"secret": 3}')`)

		from := file + ":" + offset
		code, out := towpath(t, "tail", "-c", config, "--from", from, "--limit", "3")
		if code != 0 || strings.Count(out, "routing_key=\"orders\"") != 3 || strings.Contains(out, "secret") {
			t.Errorf("exit code %d, want 3 messages without bodies:\n%s", code, out)
		}
		code, out = towpath(t, "tail", "-c", config, "--from", from, "--limit", "2", "--key", "7", "--body")
		if code != 0 || !strings.Contains(out, `{"secret": 1}`) || !strings.Contains(out, `{"secret": 3}`) || strings.Contains(out, `{"secret": 2}`) {
			t.Errorf("exit code %d, want the two bodies of key 7:\n%s", code, out)
		}
		code, out = towpath(t, "tail", "-c", config, "--from", from, "--limit", "1", "--id", "2", "--json")
		if code != 0 || !strings.Contains(out, `"id":"2"`) || !strings.Contains(out, `"routing_key":"orders"`) {
			t.Errorf("exit code %d: %s", code, out)
		}
		if ids := r.inbox.ids(); len(ids) != 0 {
			t.Errorf("tail published %v", ids)
		}
		var leases int
		if err := r.db.QueryRow("SELECT COUNT(*) FROM " + r.state + ".lease").Scan(&leases); err != nil || leases != 0 {
			t.Errorf("tail took a lease: %d, %v", leases, err)
		}
	})
}

// binlogEnd asks where the binlog ends; the statement differs between servers.
func (r *rig) binlogEnd(file, offset *string) {
	r.t.Helper()
	for _, statement := range []string{"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"} {
		rows, err := r.db.Query(statement)
		if err != nil {
			continue
		}
		defer rows.Close()
		columns, _ := rows.Columns()
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		values[0], values[1] = file, offset
		if rows.Next() {
			if err := rows.Scan(values...); err != nil {
				r.t.Fatal(err)
			}
		}
		return
	}
	r.t.Fatal(fmt.Errorf("neither statement shows where the binlog ends"))
}
