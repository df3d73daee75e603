package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
)

func TestRowsOfXATransactionsAreSentAtTheirVerdict(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+deleteSlips, createBill, createSlip, "CREATE TABLE other (id INT)")
		xid := func(name string) string { return "'" + s.schema + "','" + name + "'" } // the server's are everybody's
		prepare := func(name string, statements ...string) {
			xa := s.session()
			xa("XA START " + xid(name))
			for _, statement := range statements {
				xa(statement)
			}
			xa("XA END " + xid(name))
			xa("XA PREPARE " + xid(name))
			xa("") // the server keeps it
		}
		prepare("old", "INSERT INTO bill (id) VALUES (5)") // before the stream begins
		prepare("oldforeign", "INSERT INTO other VALUES (1)")
		prepare("undone", "INSERT INTO bill (id) VALUES (6)")
		stop := s.run()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		prepare("a", "INSERT INTO bill (id) VALUES (10), (11)", "INSERT INTO slip (id) VALUES (1)")
		prepare("b", "INSERT INTO bill (id) VALUES (20)")
		prepare("foreign", "INSERT INTO other VALUES (2)")
		large := make([]string, 5)
		for i := range large {
			large[i] = fmt.Sprintf("INSERT INTO bill (id) VALUES (%d)", 1000+1000*i)
			for j := 1; j < 700; j++ {
				large[i] += fmt.Sprintf(", (%d)", 1000+1000*i+j)
			}
		}
		prepare("large", large...)
		decide := s.session()
		decide("XA COMMIT " + xid("foreign"))
		s.exec("INSERT INTO bill (id) VALUES (2)")
		s.wait("row 2", func() bool { return s.times["2"] == 1 })
		if n := s.value("SELECT COUNT(DISTINCT xid) FROM {state}.xa WHERE LENGTH(row_data) > 0 AND LENGTH(xid) > 1"); n != "3" {
			t.Errorf("%s transactions are stored, want a, b and large", n)
		}
		if len(s.times) != 2 {
			t.Errorf("arrived before the verdict: %v (P1)", s.times)
		}
		stop()
		stop = s.run()
		decide("XA COMMIT " + xid("a"))
		s.waitFor(5)
		decide("XA ROLLBACK " + xid("b"))
		decide("XA ROLLBACK " + xid("undone"))
		decide("XA COMMIT " + xid("large"))
		s.waitFor(5 + 3500)
		decide("XA COMMIT " + xid("oldforeign"))
		decide("XA COMMIT " + xid("old"))
		s.waitFor(6 + 3500)
		// One phase: no prepare shows.
		decide("XA START " + xid("one"))
		decide("INSERT INTO bill (id) VALUES (30)")
		decide("XA END " + xid("one"))
		decide("XA COMMIT " + xid("one") + " ONE PHASE")
		s.waitFor(7 + 3500)
		s.wait("all is forgotten", func() bool { return s.value("SELECT COUNT(*) FROM {state}.xa") == "0" })
		s.wait("all is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%d ids came twice, as %.100v", len(twice), twice)
		}
		for _, never := range []string{"20", "6"} {
			if s.times[never] != 0 {
				t.Errorf("row %s was rolled back and sent (P1)", never)
			}
		}
	})
}

func TestACommitOfWhatWasPreparedBeforeAKeepTablesStartHaltsIt(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, strings.Replace(keepNotes, "start: all", "start: now", 1), createNote)
		xid := "'" + s.schema + "','k'"
		xa := s.session()
		for _, statement := range []string{"XA START " + xid, "INSERT INTO note (id) VALUES (5)", "XA END " + xid, "XA PREPARE " + xid, ""} {
			xa(statement)
		}
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO note (id) VALUES (1)")
		s.waitFor(1)
		s.session()("XA COMMIT " + xid)
		s.waitLog("halted")
		if n := s.metric("halted", "gap"); n != 1 {
			t.Errorf("halted gauge is %v", n)
		}
		s.exec("INSERT INTO note (id) VALUES (2)")
		s.resume(Resumption{AcceptLoss: true})
		s.wait("row 2", func() bool { return s.times["n2"] == 1 })
		stop()
		if s.times["n1"] == 0 || s.times["n5"] != 0 || s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='resume' AND operator='ann' AND reason='seen'") != "1" {
			t.Errorf("arrived %v", s.times)
		}
	})
}
