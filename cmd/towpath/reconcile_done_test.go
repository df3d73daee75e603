package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/relay"
	consumed "github.com/towpath/towpath/relay/inbox"
)

// done has the leader carry a request out, as it is written, and returns its outcome.
func (r *rig) done(args string) (state string, answer struct {
	Result relay.DoneResult
	Error  string
}) {
	r.t.Helper()
	id, err := r.exec("INSERT INTO "+r.state+".request (stream, kind, args, operator, reason, state, requested_at) VALUES ('shop', 'done', ?, 'ann', 'x', 'new', UTC_TIMESTAMP(6))", args).LastInsertId()
	if err != nil {
		r.t.Fatal(err)
	}
	var result []byte
	for began := time.Now(); state != "done" && state != "failed"; time.Sleep(10 * time.Millisecond) {
		if err := r.db.QueryRow("SELECT state, result FROM "+r.state+".request WHERE id=?", id).Scan(&state, &result); err != nil || time.Since(began) > time.Minute {
			r.t.Fatalf("the request is %s, %v", state, err)
		}
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		r.t.Fatal(err)
	}
	return state, answer
}

func TestTheLeaderMarksAsDoneWhatIsStillAsSentAndAuditsIt(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		ddl, err := os.ReadFile("../../deploy/sql/inbox.sql")
		if err != nil {
			t.Fatal(err)
		}
		r.exec(string(ddl))
		r.exec("ALTER TABLE outbox ADD COLUMN created_at DATETIME(6) NOT NULL")
		content := consumed.Content("created", []byte("{}"))
		for _, status := range []string{"SENT", "SENT", "ELSEWHERE"} {
			id, _ := r.exec("INSERT INTO outbox (aggregate, payload, status, created_at) VALUES (1, '{}', ?, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)", status).LastInsertId()
			r.exec("INSERT INTO towpath_inbox VALUES ('billing', ?, ?, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)", id, content[:])
		}
		config := r.config()
		r.init(config)
		mark := func(code int, want string) {
			t.Helper()
			got, out := towpath(t, "reconcile", "-c", config, "--consumer", "billing", "--time-column", "created_at", "--complete-since", "2026-01-01T00:00:00Z",
				"--mark-done", "DONE", "--operator", "ann", "--reason", "nightly", "--wait", "1s")
			if got != code || !strings.Contains(out, want) {
				t.Fatalf("exit code %d, want %d and %q:\n%s", got, code, want, out)
			}
		}
		rows := func(want string) {
			t.Helper()
			var got string
			if err := r.db.QueryRow("SELECT GROUP_CONCAT(status ORDER BY id) FROM outbox").Scan(&got); err != nil || got != want {
				t.Errorf("rows %s, want %s, %v", got, want, err)
			}
		}
		mark(exitFailed, "no relay leads stream shop")
		rows("SENT,SENT,ELSEWHERE")

		start(t, config).publishing()
		tx, err := r.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("SELECT * FROM outbox WHERE id=2 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		mark(0, "marked done 1") // the application holds the other one
		rows("DONE,SENT,ELSEWHERE")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		mark(0, "marked done 1")
		rows("DONE,DONE,ELSEWHERE")
		mark(0, "marked done 0")

		var audits []string
		found, err := r.db.Query("SELECT CONCAT_WS('|', operator, reason, JSON_EXTRACT(detail, '$.args.status'), JSON_LENGTH(detail, '$.args.keys'), JSON_EXTRACT(detail, '$.result.marked'), JSON_EXTRACT(detail, '$.result.locked')) FROM " +
			r.state + ".audit WHERE action='done' ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		for found.Next() {
			var a string
			if err := found.Scan(&a); err != nil {
				t.Fatal(err)
			}
			audits = append(audits, a)
		}
		if want := []string{`ann|nightly|"DONE"|2|1|1`, `ann|nightly|"DONE"|1|1|0`}; !slices.Equal(audits, want) || found.Err() != nil {
			t.Errorf("audits %v, want %v, %v", audits, want, found.Err())
		}

		// What the application does between the comparison and the request wins (P10).
		keys := func(ids ...string) string {
			var all [][]byte
			for _, id := range ids {
				all = append(all, append([]byte{byte(len(id))}, id...))
			}
			text, _ := json.Marshal(relay.Done{Table: r.schema + ".outbox", Status: "DONE", Keys: all})
			return string(text)
		}
		r.exec("UPDATE outbox SET status='SENT' WHERE id=1")
		if state, a := r.done(keys("1", "2", "3", "4711")); state != "done" || a.Result != (relay.DoneResult{Rows: 4, Marked: 2, Changed: 2}) {
			t.Errorf("%s: %+v", state, a)
		}
		rows("DONE,DONE,ELSEWHERE")
		for want, args := range map[string]string{
			"gives it another meaning": strings.Replace(keys("1"), "DONE", "PENDING", 1),
			"has no table":             strings.Replace(keys("1"), ".outbox", ".nope", 1),
		} {
			if state, a := r.done(args); state != "failed" || !strings.Contains(a.Error, want) {
				t.Errorf("%s: %+v, want %q", state, a, want)
			}
		}
		rows("DONE,DONE,ELSEWHERE")
	})
}
