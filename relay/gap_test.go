package relay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// resume asks the leader to go on, and waits until it did.
func (s *shop) resume(r Resumption) {
	s.Helper()
	store, err := checkpoint.Open(s.Context(), s.db, s.state)
	if err != nil {
		s.Fatal(err)
	}
	args, err := json.Marshal(r)
	if err != nil {
		s.Fatal(err)
	}
	id, err := store.Ask(s.Context(), "shop", checkpoint.Request{Kind: RequestResume, Args: args, Operator: "ann", Reason: "seen"})
	if err != nil {
		s.Fatal(err)
	}
	s.wait("the request is done", func() bool {
		return s.value("SELECT state FROM {state}.request WHERE id=?", id) == string(checkpoint.RequestDone)
	})
}

// onOwn runs a test on servers that it may do anything to.
func onOwn(t *testing.T, test func(t *testing.T, server *lab.MySQLServer)) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, labtest.OwnMySQL(t, servers[name]))
		})
	}
}

func (s *shop) resetBinlog() {
	if s.server.Kind() == lab.MariaDB1011 {
		s.exec("RESET MASTER")
	} else {
		s.exec("RESET BINARY LOGS AND GTIDS")
	}
}

// endDumps ends the dumps of relays that are gone, which the server notices late:
// it purges no file that is being read.
func (s *shop) endDumps() {
	s.Helper()
	s.wait("no dump is left", func() bool {
		id := s.value("SELECT MIN(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
		if id != "" {
			s.db.Exec("KILL " + id)
		}
		return id == ""
	})
}

func (s *shop) purgeBinlog() {
	s.Helper()
	s.endDumps()
	first, _ := s.binlogs()
	s.wait("the binlog is purged", func() bool { // MariaDB keeps files back that the engine may need
		s.exec("FLUSH BINARY LOGS")
		_, last := s.binlogs()
		s.exec("PURGE BINARY LOGS TO '" + last + "'")
		now, _ := s.binlogs()
		return now != first
	})
}

func (s *shop) binlogs() (first, last string) {
	s.Helper()
	server, err := canal.Inspect(s.Context(), s.db)
	if err != nil {
		s.Fatal(err)
	}
	return server.Logs[0].Name, server.Logs[len(server.Logs)-1].Name
}

func TestAGapIsSweptAndReported(t *testing.T) {
	onOwn(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+deleteSlips, createBill, createSlip)
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		for n, gap := range []struct {
			kind string
			make func()
		}{{"purged", s.purgeBinlog}, {"history|ahead|purged", s.resetBinlog}} {
			stop()
			s.exec("INSERT INTO bill (id) VALUES (?), (?)", 100*n+10, 100*n+11)
			s.exec("INSERT INTO slip (id) VALUES (?)", 100*n+12)
			gap.make()
			s.exec("INSERT INTO bill (id) VALUES (?)", 100*n+13)
			stop = s.run()
			s.waitFor(5 + 5*n)
			s.begun()
			s.exec("INSERT INTO bill (id) VALUES (?)", 100*n+14)
			s.waitFor(6 + 5*n)
			kind := s.value("SELECT JSON_UNQUOTE(JSON_EXTRACT(detail, '$.kind')) FROM {state}.audit WHERE action='gap' ORDER BY id DESC LIMIT 1")
			if !slices.Contains(strings.Split(gap.kind, "|"), kind) {
				t.Errorf("the gap is reported as %q, want %s", kind, gap.kind)
			}
			if s.metric("gaps_total") != 1 {
				t.Errorf("gaps_total is %v", s.metric("gaps_total"))
			}
			if found := s.value("SELECT SUM(JSON_EXTRACT(detail, '$.found')) FROM {state}.audit WHERE action='swept' AND JSON_EXTRACT(detail, '$.cause')='gap'"); strings.TrimSuffix(found, ".0") != fmt.Sprint(4*(n+1)) {
				t.Errorf("the sweeps are reported with %s rows, want %d", found, 4*(n+1))
			}
		}
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%v came twice", twice)
		}
	})
}

func TestAGapHaltsAKeepTableUntilAPersonDecides(t *testing.T) {
	onOwn(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, keepNotes+markBills, createNote, createBill)
		stop := s.run()
		s.exec("INSERT INTO note (id, at) VALUES (1, '2020-01-01')")
		s.waitFor(1)
		stop()
		s.exec("INSERT INTO note (id, at) VALUES (2, '2021-01-01'), (3, '2022-01-01')")
		s.exec("INSERT INTO bill (id) VALUES (4)")
		s.purgeBinlog()
		stop = s.run()
		s.waitLog("halted")
		s.exec("INSERT INTO note (id, at) VALUES (5, '2022-01-02')")
		if len(s.times) != 1 {
			t.Errorf("arrived while halted: %v", s.times)
		}
		s.resume(Resumption{ResendSince: time.Date(2021, 6, 1, 0, 0, 0, 0, time.UTC)})
		s.wait("rows 3, 4 and 5", func() bool { return s.times["n3"] == 1 && s.times["4"] == 1 && s.times["n5"] == 1 })
		s.exec("INSERT INTO note (id) VALUES (6)")
		s.wait("row 6", func() bool { return s.times["n6"] == 1 })
		stop()
		if s.times["n2"] != 0 {
			t.Error("a row from before the time that was given was sent again")
		}
	})
}

func TestAnotherServerBehindTheAddressIsAGap(t *testing.T) {
	t.Parallel()
	a, b := labtest.OwnMySQL(t, servers["mysql without GTID"]), labtest.OwnMySQL(t, servers["mysql without GTID"])
	s := newShop(t, b, markBills, createBill)
	old := newShop(t, a, markBills, createBill)
	stop := old.run()
	old.exec("INSERT INTO bill (id) VALUES (1)")
	old.waitFor(1)
	stop()
	// The other server is a copy of the data, with a binlog of its own.
	s.exec("INSERT INTO bill (id, status) VALUES (1, 'SENT'), (2, 'PENDING')")
	s.exec("INSERT INTO "+s.state+".checkpoint (stream, term, saved_at, position) VALUES ('shop', 1, NOW(6), ?)", old.value("SELECT position FROM {state}.checkpoint"))
	s.exec("INSERT INTO "+s.state+".checkpoint_table (stream, schema_name, table_name, added_at) VALUES ('shop', ?, 'bill', NOW(6))", s.schema)
	stop = s.run()
	s.waitFor(1)
	stop()
	if s.times["2"] != 1 || s.value("SELECT JSON_UNQUOTE(JSON_EXTRACT(detail, '$.kind')) FROM {state}.audit WHERE action='gap'") != "other server" {
		t.Errorf("arrived %v, audit %s", s.times, s.value("SELECT detail FROM {state}.audit WHERE action='gap'"))
	}
}

func TestWithoutABinlogTablesAreServedByPollingUntilItIsBack(t *testing.T) {
	onOwn(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+deleteSlips, createBill, createSlip)
		s.adjust = func(c *configs.Config) { c.Lease.TTL = 30 * time.Second } // one leadership sees all of it
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		if err := server.Restart(t.Context(), func(o *lab.MySQLOptions) { o.Args = append(o.Args, "--skip-log-bin") }); err != nil {
			t.Fatal(err)
		}
		s.exec("INSERT INTO bill (id) VALUES (2)")
		s.exec("INSERT INTO slip (id) VALUES (3)")
		s.waitFor(3)
		stop() // also a process that starts now serves them
		stop = s.run()
		s.exec("INSERT INTO bill (id) VALUES (6)")
		s.waitFor(4)
		if s.metric("polling") != 1 {
			t.Error("the polling gauge is not 1")
		}
		s.waitLog("served by polling")
		if err := server.Restart(t.Context(), func(o *lab.MySQLOptions) { o.Args = o.Args[:len(o.Args)-1] }); err != nil {
			t.Fatal(err)
		}
		s.exec("INSERT INTO bill (id) VALUES (4)")
		s.waitFor(5)
		s.waitLog("can be read again")
		s.exec("INSERT INTO bill (id) VALUES (5)")
		s.waitFor(6)
		if s.metric("polling") != 0 {
			t.Error("the polling gauge is not 0")
		}
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%v came twice", twice)
		}
	})
}

func TestARowThatCannotBeReadHaltsAKeepTableUntilAPersonPassesIt(t *testing.T) {
	for _, name := range []string{"mysql with GTID", "mysql without GTID"} { // MariaDB logs such a row whole
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := labtest.MySQL(t, servers[name])
			s := newShop(t, server, `
  - table: {schema}.loose
    columns: {id: "l{id}", body: payload}
    publish: {exchange: "", routing_key: bills}
    after_publish: keep
    start: now
`, "CREATE TABLE loose (id BIGINT NOT NULL, payload VARCHAR(20) NOT NULL DEFAULT '{}')") // by what would it be read again?
			stop := s.run()
			s.begun()
			s.exec("INSERT INTO loose (id) VALUES (1)")
			s.waitFor(1)
			minimal := s.session()
			minimal("SET SESSION binlog_row_image='MINIMAL'")
			minimal("INSERT INTO loose (id) VALUES (2)")
			s.waitLog("halted")
			s.exec("INSERT INTO loose (id) VALUES (3)")
			stop() // it is still halted after a restart
			stop = s.run()
			s.waitLog("halted")
			if answer := s.ask(RequestResume, "{}"); !strings.Contains(s.value("SELECT CONCAT_WS(' ', state, result) FROM {state}.request ORDER BY id DESC LIMIT 1"), "--skip-event") {
				t.Errorf("without --skip-event the answer is %s", answer)
			}
			s.resume(Resumption{SkipEvent: true})
			s.wait("row 3", func() bool { return s.times["l3"] == 1 })
			stop()
			if s.times["l2"] > 0 || s.times["l1"] == 0 {
				t.Errorf("arrived %v", s.times)
			}
			if n := s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='resume' AND operator='ann' AND JSON_EXTRACT(detail, '$.skip_event') = true"); n != "1" {
				t.Errorf("%s audited resumptions skip an event, want 1", n)
			}
		})
	}
}
