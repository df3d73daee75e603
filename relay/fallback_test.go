package relay

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
)

func TestOnAHealthyStreamTheFallbackSendsNothingTwiceAndNothingOutOfOrder(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill)
		s.adjust = func(c *configs.Config) { c.Tables[0].Fallback.Every = 5 * time.Millisecond }
		stop := s.run()
		s.exec("INSERT INTO bill (k) VALUES (0)")
		s.waitFor(1)
		const committers, each = 24, 40
		var wg sync.WaitGroup
		for k := 1; k <= committers; k++ {
			wg.Go(func() {
				for i := range each {
					tx, err := s.db.BeginTx(s.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					_, err = tx.Exec("INSERT INTO bill (k, payload) VALUES (?, ?), (?, '{}')", k, i, k)
					if err == nil && i%4 == 0 {
						_, err = tx.Exec("SELECT SLEEP(0.005)") // a lower id that commits later
					}
					if err == nil {
						err = tx.Commit()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		s.waitFor(1 + 2*committers*each)
		s.wait("everything is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%d ids came twice, as %.100v", len(twice), twice)
		}
		if n := s.metric("found_rows_total", "fallback"); n != 0 {
			t.Errorf("the fallback sent %v rows of a healthy stream", n)
		}
		keys := map[string]string{}
		rows, err := s.db.Query("SELECT id, k FROM bill")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id, k string
			if err := rows.Scan(&id, &k); err != nil {
				t.Fatal(err)
			}
			keys[id] = k
		}
		last := map[string]int{}
		for _, id := range s.arrived {
			n, _ := strconv.Atoi(id)
			if k := keys[id]; n < last[k] {
				t.Errorf("of key %s row %d came after row %d (P6)", k, n, last[k])
			} else {
				last[k] = n
			}
		}
	})
}

func TestRowsThatTheBinlogDoesNotShowAreFoundAndSentOnce(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+deleteSlips, createBill, createSlip)
		stop := s.run()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		quiet := s.session()
		quiet("SET SESSION sql_log_bin=0")
		quiet("INSERT INTO bill (id) VALUES (2), (3)")
		quiet("INSERT INTO slip (id) VALUES (4)")
		s.waitFor(4)
		old := s.session()
		old("SET SESSION binlog_format='STATEMENT'")
		old("INSERT INTO bill (id) VALUES (5), (6)")
		s.waitFor(6)
		s.waitLog("does not show which rows")
		s.wait("all is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		// Rows brought back by SQL: an UPDATE is never a message, its row is.
		s.exec("UPDATE bill SET status='PENDING' WHERE id IN (2, 5)")
		s.wait("rows 2 and 5 once more", func() bool { return s.times["2"] == 2 && s.times["5"] == 2 })
		s.exec("INSERT INTO bill (id, status, locked_until) VALUES (7, 'PROCESSING', UTC_TIMESTAMP(6) + INTERVAL 1 SECOND), (8, 'PROCESSING', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)")
		s.waitFor(7)
		s.wait("all is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='SENT'") == "6" })
		stop()
		for id, n := range s.times {
			if want := 1; n != want && !(n == 2 && (id == "2" || id == "5")) {
				t.Errorf("row %s came %d times", id, n)
			}
		}
		if s.times["7"] != 1 || s.times["8"] != 0 {
			t.Errorf("a claim that ran out came %d times, one that has not %d times", s.times["7"], s.times["8"])
		}
		if at, _ := time.Parse("2006-01-02 15:04:05.000000", s.value("SELECT CAST(locked_until AS CHAR) FROM bill WHERE id=7")); s.sawAt["7"].Before(at.Add(-10 * time.Millisecond)) {
			t.Errorf("the claim was adopted at %s, before it ran out at %s", s.sawAt["7"], at)
		}
	})
}

func TestRowsThatAreDueLaterAreSentInTime(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, strings.Replace(markBills, "300ms", "1h", 1), createBill)
		thousands := 20
		if os.Getenv("TOWPATH_LONG") != "" {
			thousands = 100
		}
		for range thousands { // rows that wait for long
			s.exec("INSERT INTO bill (deliver_at) VALUES " + strings.Repeat("('2099-01-01'), ", 999) + "('2099-01-01')")
		}
		stop := s.run()
		s.exec("INSERT INTO bill (id) VALUES (100001)")
		s.waitFor(1)
		base, err := time.Parse("2006-01-02 15:04:05.000000", s.value("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)"))
		if err != nil {
			t.Fatal(err)
		}
		due := map[string]time.Time{}
		for i := range 5 {
			id := 200000 + i
			at := base.Add(time.Duration(3000+400*i) * time.Millisecond)
			due[strconv.Itoa(id)] = at
			s.exec("INSERT INTO bill (id, deliver_at) VALUES (?, ?)", id, at.Format("2006-01-02 15:04:05.000000"))
		}
		s.waitFor(1 + len(due))
		stop()
		for id, at := range due {
			late := s.sawAt[id].Sub(at)
			t.Logf("row %s came %s after its time", id, late)
			if late < -20*time.Millisecond { // the next look by the clock is an hour away
				t.Errorf("row %s came %s before its time", id, -late)
			}
		}
		if n := s.metric("rows_total", "deferred"); n != float64(len(due)) {
			t.Errorf("%v rows were deferred, want %d", n, len(due))
		}
	})
}

func TestAFilterMeansTheSameInSQLAsInTheStream(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, `
  - table: {schema}.bill
    columns: {id: "{id}", body: payload}
    publish: {exchange: "", routing_key: bills}
    where: {region: {in: [eu, null]}, kind: {not: [Debug]}, size: {in: [1, 2]}}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT}
    fallback: {every: 100ms}
`, `CREATE TABLE bill (id BIGINT AUTO_INCREMENT PRIMARY KEY, payload VARCHAR(20) NOT NULL DEFAULT '{}', status VARCHAR(12) NOT NULL DEFAULT 'PENDING',
			region VARCHAR(8) NULL, kind VARCHAR(8) CHARACTER SET latin1 NULL, size INT NOT NULL DEFAULT 1)`)
		stop := s.run()
		s.exec("INSERT INTO bill (id, region) VALUES (1000, 'eu')")
		s.waitFor(1)
		quiet := s.session()
		quiet("SET SESSION sql_log_bin=0")
		id := 0
		want := map[string]bool{"1000": true}
		for _, region := range []string{"'eu'", "'EU'", "'eu '", "NULL", "'us'"} {
			for _, kind := range []string{"'Debug'", "'debug'", "'Info'", "NULL"} {
				for _, status := range []string{"PENDING", "pending"} {
					for size := range 3 {
						id++
						values := fmt.Sprintf("(%d, %s, %s, '%s', %d)", id, region, kind, status, size)
						quiet("INSERT INTO bill (id, region, kind, status, size) VALUES " + values)
						s.exec("INSERT INTO bill (id, region, kind, status, size) VALUES " + strings.Replace(values, strconv.Itoa(id), strconv.Itoa(id+5000), 1))
						if (region == "'eu'" || region == "NULL") && kind != "'Debug'" && status == "PENDING" && size > 0 {
							want[strconv.Itoa(id)], want[strconv.Itoa(id+5000)] = true, true
						}
					}
				}
			}
		}
		s.waitFor(len(want))
		looks, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // five more looks find nothing else
		defer cancel()
		<-looks.Done()
		stop()
		for got, n := range s.times {
			if !want[got] || n != 1 {
				t.Errorf("row %s came %d times, wanted: %v", got, n, want[got])
			}
		}
	})
}
