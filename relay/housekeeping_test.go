package relay

import (
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
)

func TestRowsThatWereSentLongAgoMoveToTheArchiveAndNoOthers(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+"    retention: {sent_for: 1h, archive_to: {schema}.bill_history}\n", createBill, strings.Replace(createBill, "TABLE bill", "TABLE bill_history", 1))
		old := "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR"
		s.exec("INSERT INTO bill (id, status, sent_at) VALUES (1, 'SENT', " + old + "), (2, 'SENT', NULL), (3, 'sent', " + old + "), (4, 'FAILED', " + old + "), (5, 'SENT', UTC_TIMESTAMP(6)), (6, 'ABANDONED', " + old + "), (7, 'SENT', " + old + ")")
		for i := range 5 {
			s.exec("INSERT INTO bill (k, status, sent_at) VALUES "+strings.Repeat("(?, 'SENT', "+old+"), ", 199)+"(0, 'SENT', "+old+")", repeat(i, 199)...)
		}
		lock := s.session()
		lock("START TRANSACTION")
		lock("SELECT * FROM bill WHERE id=7 FOR UPDATE") // in the application's hands: left alone
		stop := s.run()
		s.wait("old rows are archived", func() bool { return s.value("SELECT COUNT(*) FROM bill_history") == "1001" })
		if left := s.value("SELECT GROUP_CONCAT(id ORDER BY id) FROM bill"); left != "2,3,4,5,6,7" {
			t.Errorf("left in the table: %s", left)
		}
		lock("COMMIT")
		stop()
		if len(s.times) != 0 {
			t.Errorf("arrived: %v", s.times)
		}
	})
}

func repeat(v any, n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func TestTheBacklogAndTheDistanceToTheOldestBinlogAreMeasured(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		stop := s.run()
		s.begun()
		lock := s.session()
		lock("START TRANSACTION")
		lock("SELECT 1")
		s.exec("INSERT INTO bill (id, deliver_at) VALUES (1, '2099-01-01'), (2, '2099-01-01')")
		s.exec("INSERT INTO bill (id, status, locked_until) VALUES (3, 'PROCESSING', '2099-01-01')")
		s.wait("the backlog is measured", func() bool {
			return s.metric("unsent_rows") == 2 && s.metric("deferred_rows") == 2 && s.metric("claimed_rows") == 1
		})
		if s.metric("oldest_unsent_seconds") != 0 {
			t.Error("rows that wait for their time count as stuck")
		}
		s.wait("the distance is measured", func() bool { return s.metric("binlog_oldest_distance_bytes") > 0 })
		stop()
	})
}
