package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

// These tests play the steps of deploy/migrate.md under a shop that goes on.

func TestMovingFromAPollerAndBackAndForthLosesNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.exec(`ALTER TABLE outbox MODIFY status VARCHAR(12) NOT NULL DEFAULT 'PENDING' COMMENT 'PENDING, PROCESSING, SENT, FAILED',
			ADD locked_until DATETIME(3) NULL, ADD KEY by_status (status)`)
		declareExchange(t, r.vhost, r.schema)
		r.bind("orders", "#", r.schema)
		old := r.poller()
		s := r.trade(1)
		s.traded(40)

		// 1. and 2.: a suggested configuration, looked over: this poller's message ids are the bare ids.
		config := r.suggested(`id: "{@table}-{id}"`, "id: id")
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"after_publish: mark", "pending: PENDING", "sent: SENT", "processing: PROCESSING", "locked_until: locked_until"} {
			if !strings.Contains(string(text), want) {
				t.Fatalf("suggest does not say %q:\n%s", want, text)
			}
		}
		r.init(config)
		r.allowed(config)

		// 3.: what tail prints beside the poller is what the poller sends.
		code, out := towpath(t, "tail", "-c", config, "--limit", "20", "--body", "--json")
		if code != 0 {
			t.Fatalf("tail: exit code %d: %s", code, out)
		}
		var ids []string
		bodies := map[string]string{}
		for line := range strings.Lines(out) {
			var m struct {
				ID, Body   string
				RoutingKey string `json:"routing_key"`
			}
			if json.Unmarshal([]byte(line), &m) != nil {
				continue // what tail says of itself
			}
			if ids, bodies[m.ID] = append(ids, m.ID), m.Body; m.RoutingKey != "created" {
				t.Errorf("tail has the routing key %q", m.RoutingKey)
			}
		}
		if len(ids) != 20 {
			t.Fatalf("tail printed %d messages: %s", len(ids), out)
		}
		r.inbox.holds(ids)
		for id, body := range bodies {
			if sent := r.inbox.body(id); sent != body {
				t.Errorf("message %s: the poller sends %q, tail prints %q", id, sent, body)
			}
		}

		// 4. and 5.: the poller ends in the middle of its work.
		unmarked := old.crash(s)
		p := start(t, config)
		p.publishing()
		s.traded(40)
		r.inbox.holds(s.stop())
		r.marked(len(s.committed)) // claims that were left behind included
		if n := r.inbox.account(s.committed); n != unmarked {
			t.Errorf("%d messages came twice, the poller had left %d sent and not marked", n, unmarked)
		}

		// Back, and forth again from the saved position.
		p.stop()
		again := r.poller()
		s.more(r.trade(1), 40)
		r.marked(len(s.committed))
		again.stop()
		p = start(t, config)
		p.publishing()
		s.more(r.trade(1), 40)
		r.marked(len(s.committed))
		r.inbox.holds(s.committed)
		if n := r.inbox.account(s.committed); n != unmarked {
			t.Errorf("%d messages came twice, %d did before: rows that the poller had marked are not sent again", n, unmarked)
		}
		p.stop()
	})
}

func TestMovingFromDebeziumBeginsAtItsOffset(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		// The table of Debezium's outbox router, and the connector's work: all rows
		// up to its offset, and the first of the transaction behind it.
		r.exec(strings.Replace(debezium("CHAR(36)"), "outboxevent", "outboxevent /* its default name */", 1))
		declareExchange(t, r.vhost, r.schema)
		r.bind("orders", "#", r.schema)
		insert := func(ids ...string) {
			t.Helper()
			tx, err := r.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			for _, id := range ids {
				if _, err := tx.Exec("INSERT INTO outboxevent VALUES (?, 'order', '7', 'created', '{}')", id); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		insert("old-1")
		insert("old-2", "old-3")
		file, offset, gtids := r.executed()
		insert("new-1", "new-2")
		insert("new-3")

		config := r.suggestedFor("outboxevent", "", "")
		r.init(config)
		set := []string{"position", "set", "-c", config, "--operator", "ann", "--reason", "from Debezium", "--to"}
		begins, inside := r.lastTransactionBefore(file, offset)
		if code, out := towpath(t, append(set, inside)...); code != exitFailed || !strings.Contains(out, "cannot be read from") {
			t.Errorf("position set --to %s, inside of a transaction: exit code %d: %s", inside, code, out)
		}
		behind := []string{"new-1", "new-2", "new-3"}
		for i, place := range []struct {
			to   string
			want []string
		}{
			{file + ":" + offset, behind},
			{begins, append([]string{"old-2", "old-3"}, behind...)}, // as with event or row above 0
			{"gtid:" + gtids, behind},
		} {
			if place.to == "gtid:" {
				continue // this server has none
			}
			if code, out := towpath(t, append(set, place.to)...); code != 0 {
				t.Fatalf("position set --to %s: exit code %d: %s", place.to, code, out)
			}
			arrived := len(r.inbox.ids())
			p := start(t, config)
			p.publishing()
			last := fmt.Sprintf("last-%d", i)
			insert(last)
			r.inbox.arrivedTimes(last, 1)
			behind = append(behind, last)
			if got, want := r.inbox.ids()[arrived:], append(place.want, behind[3:]...); !slices.Equal(got, want) {
				t.Errorf("from %s it sent %v, want %v", place.to, got, want)
			}
			p.stop()
		}

		// Back: what position show prints has everything behind it.
		var at checkpoint.Position
		if err := json.Unmarshal([]byte(r.position(config)), &at); err != nil {
			t.Fatal(err)
		}
		insert("back-1")
		code, out := towpath(t, "tail", "-c", config, "--from", fmt.Sprintf("%s:%d", at.File, at.Offset), "--limit", "1", "--json")
		if code != 0 || !strings.Contains(out, `"id":"back-1"`) {
			t.Errorf("the first row behind the position: exit code %d: %s", code, out)
		}
		if (at.GTIDs.String() == "") != (gtids == "") {
			t.Errorf("position show has the GTIDs %q", at.GTIDs)
		}
	})
}

// more adds to the ledger what another shop on the same table commits.
func (s *shop) more(next *shop, rows int) {
	next.traded(rows)
	s.committed = append(s.committed, next.stop()...)
}

// suggested writes what suggest prints for the rig's table, with a text replaced.
func (r *rig) suggested(old, new string) string {
	r.t.Helper()
	return r.suggestedFor("outbox", old, new)
}

func (r *rig) suggestedFor(table, old, new string) string {
	r.t.Helper()
	code, out := towpath(r.t, "suggest", "--table", r.schema+"."+table, "--address", r.mysql.Addr(), "--user", "root")
	if code != 0 || !strings.Contains(out, old) {
		r.t.Fatalf("suggest: exit code %d: %s", code, out)
	}
	path := r.config()
	text := strings.NewReplacer("${TOWPATH_AMQP_URL:-amqp://127.0.0.1:5672/%2F}", r.vhost.URLAt(r.broker), "broker:",
		fmt.Sprintf("state: {schema: %s}\nhttp: {listen: \"127.0.0.1:%d\"}\nlog: {format: console}\nbroker:", r.state, freePort(r.t))).Replace(strings.Replace(out, old, new, 1))
	if err := os.WriteFile(path, []byte(text+"    fallback: {every: 1s}\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// allowed has the relay log in as an account with what grants prints, and checks.
func (r *rig) allowed(config string) {
	r.t.Helper()
	user, err := r.mysql.NewUser(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	args := []string{"grants", "-c", config, "--account", "'" + user.Name + "'@'%'"}
	if r.count("SELECT VERSION() LIKE '%MariaDB%'") == 1 {
		args = append(args, "--mariadb")
	}
	code, statements := towpath(r.t, args...)
	if code != 0 {
		r.t.Fatalf("grants: exit code %d: %s", code, statements)
	}
	r.exec(statements)
	replaced(r.t, config, `user: "root"`, fmt.Sprintf("user: %q", user.Name), "password: ${TOWPATH_MYSQL_PASSWORD:-}", fmt.Sprintf("password: %q", user.Password))
	if code, out := towpath(r.t, "check", "-c", config); code != 0 {
		r.t.Fatalf("check: exit code %d: %s", code, out)
	}
}

// executed is where the binlog ends, and what was committed on a server with GTIDs.
func (r *rig) executed() (file, offset, gtids string) {
	r.t.Helper()
	r.binlogEnd(&file, &offset)
	for _, variable := range []string{"@@global.gtid_binlog_pos", "@@global.gtid_executed"} {
		if r.db.QueryRow("SELECT "+variable).Scan(&gtids) == nil {
			return file, offset, strings.ReplaceAll(gtids, "\n", "")
		}
	}
	return file, offset, ""
}

// lastTransactionBefore is where the last transaction with rows of the rig before
// an offset begins, and a place inside of it.
func (r *rig) lastTransactionBefore(file, offset string) (begins, inside string) {
	r.t.Helper()
	rows, err := r.db.Query("SHOW BINLOG EVENTS IN '" + file + "'")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for group, ours := "", false; rows.Next(); {
		var log, kind, info string
		var from, server, to int64
		if err := rows.Scan(&log, &from, &kind, &server, &to, &info); err != nil {
			r.t.Fatal(err)
		}
		place := fmt.Sprintf("%s:%d", log, from)
		if place == file+":"+offset {
			break
		}
		switch {
		case strings.HasSuffix(kind, "Gtid"), strings.HasSuffix(kind, "_gtid"):
			group = place
		case kind == "Table_map":
			ours = strings.Contains(info, "("+r.schema+".")
		case strings.HasPrefix(kind, "Write_rows") && ours:
			begins, inside = group, place
		}
	}
	return begins, inside
}
