package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
)

// insertMany inserts n bills.
func (s *shop) insertMany(table string, n int) {
	s.Helper()
	for n > 0 {
		batch := min(n, 1000)
		s.exec("INSERT INTO " + table + " (payload) VALUES ('{}')" + strings.Repeat(", ('{}')", batch-1))
		n -= batch
	}
}

func TestAFirstStartSendsWhatIsThereAndThenStreams(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+keepNotes+deleteSlips, createBill, createNote, createSlip)
		s.insertMany("bill", 3000)
		s.insertMany("note", 1500)
		s.insertMany("slip", 1500)
		s.exec("UPDATE bill SET status='SENT' WHERE id % 3 = 0")
		stop := s.run()
		s.waitFor(5000)
		s.insertMany("bill", 100)
		s.insertMany("note", 100)
		s.waitFor(5200)
		s.wait("everything is marked", func() bool {
			return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" && s.value("SELECT COUNT(*) FROM slip") == "0"
		})
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%d ids came twice, as %.100v", len(twice), twice)
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='swept'"); n != "3" {
			t.Errorf("%s sweeps are in the audit, want 3", n)
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.checkpoint_table WHERE sweep LIKE '%cursor%'"); n != "0" {
			t.Errorf("%s sweeps are left in the checkpoint", n)
		}
		for i := 1; i <= 3100; i++ {
			if id := fmt.Sprint(i); (s.times[id] == 1) != (i > 3000 || i%3 != 0) {
				t.Fatalf("bill %s arrived %d times", id, s.times[id])
			}
		}
	})
}
