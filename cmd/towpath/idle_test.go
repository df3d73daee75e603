package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// What a relay commits on a quiet server is read back by the relay itself, and
// by every other reader of the binlog: it must not feed on itself.
func TestAnIdleRelayCommitsItsLeaseItsPositionAndItsPresenceAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, o := range []lab.MySQLOptions{servers[0], servers[2]} {
		t.Run(name(o), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, labtest.OwnMySQL(t, o), labtest.Rabbit(t, newestRabbit))
			const ttl, idle, beat = 6 * time.Second, 2 * time.Second, 30 * time.Second
			r.options = "checkpoint: {every: 50ms, idle: 2s}\nlease: {ttl: 6s, yield_after: 60s}\n"
			p := r.running(r.config())
			r.standby()
			s := r.trade(1)
			s.traded(10)
			committed, _ := s.accounted()
			r.marked(len(committed))
			var file, offset string
			r.binlogEnd(&file, &offset)
			saves, began := p.metric("towpath_checkpoint_saves_total"), time.Now()
			time.Sleep(3 * idle) // nothing can be waited for where nothing may happen
			saves = p.metric("towpath_checkpoint_saves_total") - saves
			written, transactions := r.writtenSince(file, offset)
			took := time.Since(began)
			most := map[string]int{ // one more each, for where the time began
				r.state + ".lease":      int(took/(ttl/3)) + 1,
				r.state + ".checkpoint": int(took/idle) + 2, // and one for the last rows
				r.state + ".member":     2 * (int(took/beat) + 1),
			}
			all := 0
			for table, n := range written {
				if all += n; n > most[table] {
					t.Errorf("%s was written %d times in %s, at most %d are explained", table, n, took, most[table])
				}
			}
			if written[r.state+".lease"] == 0 || written[r.state+".checkpoint"] == 0 {
				t.Errorf("the relay was not seen at work: %v", written)
			}
			if transactions > all || int(saves) > most[r.state+".checkpoint"] {
				t.Errorf("%d transactions for %v; %v saves counted", transactions, written, saves)
			}
		})
	}
}

// writtenSince counts, from a place in the binlog to its end, how often rows of
// each table were written, and the transactions.
func (r *rig) writtenSince(file, offset string) (tables map[string]int, transactions int) {
	r.t.Helper()
	rows, err := r.db.Query("SHOW BINLOG EVENTS IN '" + file + "' FROM " + offset)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	tables = map[string]int{}
	table := regexp.MustCompile(`^table_id: \d+ \((.+)\)$`)
	for rows.Next() {
		var log, kind, info string
		var from, server, to int64
		if err := rows.Scan(&log, &from, &kind, &server, &to, &info); err != nil {
			r.t.Fatal(err)
		}
		switch kind {
		case "Gtid", "Anonymous_Gtid":
			transactions++
		case "Table_map":
			if m := table.FindStringSubmatch(info); m != nil {
				tables[m[1]]++
			}
		}
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return tables, transactions
}
