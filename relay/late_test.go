package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestWithdrawnRowsAreNotSentLate(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		stop := s.run()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		stop()
		// The relay is stopped: what is withdrawn meanwhile stays so.
		s.exec("INSERT INTO bill (id, k) VALUES (10, 1), (11, 1), (12, 2), (13, 3)")
		s.exec("UPDATE bill SET status='ABANDONED' WHERE id IN (10, 12)")
		stop = s.run()
		s.waitFor(3)
		// The broker holds back its confirms: rows wait behind the first of their key.
		mq := labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43})
		if err := mq.SuspendQueue(t.Context(), s.vhost, "bills"); err != nil {
			t.Fatal(err)
		}
		s.exec("INSERT INTO bill (id, k) VALUES (20, 7), (21, 7), (22, 7), (23, 7)")
		s.wait("the row is in flight", func() bool { return s.metric("window_rows") == 4 })
		s.exec("UPDATE bill SET status='ABANDONED' WHERE id IN (20, 21, 23)") // 20 is in flight
		wait, err := s.db.Query("SELECT SLEEP(1.1)")                          // until what was read is not fresh any more
		if err != nil {
			t.Fatal(err)
		}
		wait.Close()
		if err := mq.ResumeQueue(t.Context(), s.vhost, "bills"); err != nil {
			t.Fatal(err)
		}
		s.wait("row 22", func() bool { return s.times["22"] == 1 })
		s.exec("INSERT INTO bill (id, k) VALUES (30, 7)")
		s.wait("row 30", func() bool { return s.times["30"] == 1 })
		s.wait("marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		stop()
		if got := fmt.Sprint(s.times); got != fmt.Sprint(map[string]int{"1": 1, "11": 1, "13": 1, "20": 1, "22": 1, "30": 1}) {
			t.Errorf("arrived %s", got)
		}
		if n := s.value("SELECT GROUP_CONCAT(id ORDER BY id) FROM bill WHERE status='ABANDONED'"); n != "10,12,20,21,23" {
			t.Errorf("withdrawn rows are %s: a withdrawal was overwritten", n)
		}
		if n := s.metric("rows_total", "withdrawn"); n != 4 {
			t.Errorf("%v rows counted as withdrawn, want 4", n)
		}
	})
}

func TestBillsThatAreReversedUnderLoadAreNeverSentAfterTheReversalWasSeen(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		stop := s.run()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		var wg sync.WaitGroup
		reversed := make([]map[string]time.Time, 6)
		for w := range reversed {
			reversed[w] = map[string]time.Time{}
			wg.Go(func() {
				for i := range 60 {
					r, err := s.db.Exec("INSERT INTO bill (k) VALUES (?), (?), (?)", w, w, w)
					if err != nil {
						t.Error(err)
						return
					}
					first, _ := r.LastInsertId()
					if i%3 == 0 {
						r, err = s.db.Exec("UPDATE bill SET status='ABANDONED' WHERE id=? AND status='PENDING'", first+2)
						if err != nil {
							t.Error(err)
							return
						}
						if n, _ := r.RowsAffected(); n == 1 {
							reversed[w][fmt.Sprint(first+2)] = time.Now()
						}
					}
				}
			})
		}
		stop() // in the middle of it: what is withdrawn before the next start is never sent
		wg.Wait()
		s.emptied() // what was published before the stop has arrived
		s.mu.Lock()
		before := len(s.arrived)
		s.mu.Unlock()
		stop = s.run()
		s.wait("all is done", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		stop()
		s.mu.Lock()
		late := slices.Clone(s.arrived[before:])
		s.mu.Unlock()
		withdrawn := 0
		for _, list := range reversed {
			for id := range list {
				withdrawn++
				if got := s.value("SELECT status FROM bill WHERE id=?", id); got != "ABANDONED" {
					t.Errorf("bill %s was withdrawn and is %s", id, got)
				}
				if slices.Contains(late, id) {
					t.Errorf("bill %s was sent after a start that could see it withdrawn (P10)", id)
				}
			}
		}
		if withdrawn == 0 {
			t.Error("no bill was withdrawn in time")
		}
		if n := s.value("SELECT COUNT(*) FROM bill WHERE status='SENT'"); n != fmt.Sprint(1+6*180-withdrawn) {
			t.Errorf("%s bills are sent, want %d", n, 1+6*180-withdrawn)
		}
	})
}

func TestRowsWhoseImageIsNotWholeAreReadAgain(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+keepNotes+deleteSlips, createBill, createNote, createSlip)
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		minimal := s.session()
		minimal("SET SESSION binlog_row_image='MINIMAL'")
		for i := range 5 {
			minimal("INSERT INTO bill (k) VALUES " + strings.Repeat("(1), ", 49) + "(2)")
			minimal("INSERT INTO note () VALUES " + strings.Repeat("(), ", 49) + "()")
			minimal("INSERT INTO slip () VALUES " + strings.Repeat("(), ", 49) + "()")
			minimal("START TRANSACTION")
			minimal(fmt.Sprintf("INSERT INTO bill (id) VALUES (%d)", 100000*(i+1)))
			minimal(fmt.Sprintf("INSERT INTO note (id) VALUES (%d)", 100000*(i+1)))
			minimal(fmt.Sprintf("INSERT INTO slip (id) VALUES (%d)", 100000*(i+1)))
			minimal(fmt.Sprintf("DELETE FROM bill WHERE id = %d", 100000*(i+1)))
			minimal(fmt.Sprintf("DELETE FROM note WHERE id = %d", 100000*(i+1)))
			minimal(fmt.Sprintf("DELETE FROM slip WHERE id = %d", 100000*(i+1)))
			minimal("COMMIT")
			for _, table := range []string{"bill", "note", "slip"} {
				minimal(fmt.Sprintf("ALTER TABLE %s AUTO_INCREMENT=%d", table, 1000*(i+1)))
			}
		}
		s.waitFor(1 + 3*250)
		s.wait("marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		s.wait("gone ones are counted", func() bool { return s.metric("rows_total", "gone")+s.metric("rows_total", "absent") == 15 })
		stop()
		if twice := s.twice(); len(twice) > 0 || len(s.times) != 751 {
			t.Errorf("%d ids arrived, %d twice; want 751 and none", len(s.times), len(twice))
		}
		if n := s.metric("rows_total", "absent"); n != 5 {
			t.Errorf("%v rows of the delete table were absent, want 5", n)
		}
		if n := s.value("SELECT SUM(JSON_EXTRACT(detail, '$.rows')) FROM {state}.audit WHERE action='gone'"); strings.TrimSuffix(n, ".0") != "10" {
			t.Errorf("the audit has %s gone rows, want 10", n)
		}
	})
}

func TestARowThatTheApplicationKeepsLockedHoldsUpNothingWhenItIsLate(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		stop := s.run()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		stop()
		s.exec("INSERT INTO bill (id, k) VALUES (2, 2), (3, 3), (4, 4)")
		lock := s.session()
		lock("START TRANSACTION")
		lock("SELECT * FROM bill WHERE id=3 FOR UPDATE")
		stop = s.run()
		s.waitFor(4)
		s.wait("the others are marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='SENT'") == "3" })
		lock("COMMIT")
		s.wait("the last is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='SENT'") == "4" })
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%v came twice", twice)
		}
	})
}

// The binlog shows a row before the engine does: a semi-synchronous commit makes
// that moment last. Only a read that waits for the row's lock can tell such a row
// from one that is gone.
func TestARowThatIsCommittedAndNotVisibleYetIsNotTakenForGone(t *testing.T) {
	t.Parallel()
	server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL",
		Args: []string{"--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-timeout=1500"}})
	s := newShop(t, server, keepNotes+markBills+deleteSlips, createNote, createBill, createSlip)
	stop := s.run()
	s.begun()
	minimal := s.session()
	minimal("SET SESSION binlog_row_image='MINIMAL'")
	s.exec("SET GLOBAL rpl_semi_sync_source_enabled=1")
	minimal("START TRANSACTION")
	minimal("INSERT INTO note () VALUES ()")
	minimal("INSERT INTO bill (k) VALUES (1)")
	minimal("INSERT INTO slip () VALUES ()")
	minimal("COMMIT")
	s.waitFor(3)
	stop()
	if n := s.metric("rows_total", "gone") + s.metric("rows_total", "absent"); n != 0 {
		t.Errorf("%v rows were taken for gone", n)
	}
}
