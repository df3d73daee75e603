package relay

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// practice is one team's outbox under its own rules, see configs/ and deploy/sql.
type practice struct {
	name, sql, exchange, header string
	table, id, key              string // columns
	attempts, next              string // columns
	sent, failed                string // statuses
	faster                      time.Duration
	insert                      func(n int, key int) string
	message                     func(n int) string
}

var practices = []practice{
	{
		name: "bills", sql: "practice-a-bills", exchange: "bills", header: "bill_id", table: "ss_bill_outbox", id: "id", key: "bill_id",
		attempts: "retry_count", next: "next_retry_at", sent: "SENT", failed: "FAILED", faster: 300,
		insert: func(n, key int) string {
			return fmt.Sprintf("INSERT INTO ss_bill_outbox (id, bill_id, event_type, payload) VALUES (%d, %d, 'settled', '{}')", n, key)
		},
		message: func(n int) string { return fmt.Sprintf("bill-%d", n) },
	},
	{
		name: "orders", sql: "practice-b-orders", exchange: "orders", header: "biz_id", table: "biz_outbox", id: "msg_id", key: "biz_id",
		attempts: "retry_count", next: "next_retry_time", sent: "1", failed: "9", faster: 1200,
		insert: func(n, key int) string {
			return fmt.Sprintf("INSERT INTO biz_outbox (msg_id, biz_type, biz_id, payload) VALUES ('%d', 'order.created', '%d', '{}')", n, key)
		},
		message: func(n int) string { return fmt.Sprint(n) },
	},
	{
		name: "payments", sql: "practice-c-payments", exchange: "payments", header: "aggregate_id", table: "outbox_event", id: "event_id", key: "aggregate_id",
		attempts: "attempts", next: "next_attempt_at", sent: "SENT", failed: "FAILED", faster: 600,
		insert: func(n, key int) string {
			return fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_id, payment_id, event_type, payload) VALUES ('%d', '%d', 'p%d', 'paid', '{}')", n, key, n)
		},
		message: func(n int) string { return fmt.Sprint(n) },
	},
}

// begin runs a relay on the practice's own files, time going faster.
func (p *practice) begin(t *testing.T) (*shop, *configs.Table, *amqp.Channel) {
	create, err := os.ReadFile("../deploy/sql/" + p.sql + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../configs/" + p.name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := newShop(t, labtest.MySQL(t, servers["mysql with GTID"]), markBills, string(create))
	c, err := configs.Parse(p.name+".yaml", text, func(name string) (string, bool) { return s.schema, name == "TOWPATH_SCHEMA" })
	if err != nil {
		t.Fatal(err)
	}
	table := &c.Tables[0]
	table.Retry.Base /= p.faster
	table.Retry.Max /= p.faster
	table.Fallback.Every = 200 * time.Millisecond
	s.adjust = func(all *configs.Config) { all.Tables = c.Tables }
	ch := s.broker()
	s.must(ch.ExchangeDeclare(p.exchange, "headers", true, false, false, false, nil))
	p.bind(s, ch, 1)
	s.lead()
	return s, table, ch
}

// bind lets the messages of one key through.
func (p *practice) bind(s *shop, ch *amqp.Channel, key int) {
	s.Helper()
	var value any = fmt.Sprint(key)
	if p.name == "bills" {
		value = int64(key)
	}
	s.must(ch.QueueBind("bills", "", p.exchange, false, amqp.Table{"x-match": "all", p.header: value}))
}

func (p *practice) of(s *shop, n int, column string) string {
	s.Helper()
	return s.value("SELECT COALESCE(" + column + ", 'NULL') FROM " + p.table + " WHERE " + p.id + "='" + fmt.Sprint(n) + "'")
}

// A row that is refused while its neighbours pass is tried again after the
// practice's own pauses, so often as it says, and then failed for a person, who
// sends it when it is mended. Every figure is in the practice's own columns.
func TestThePracticesRetryTheirWay(t *testing.T) {
	for _, p := range practices {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s, table, ch := p.begin(t)
			s.exec(p.insert(1, 1))
			s.wait("the first arrives", func() bool { return s.times[p.message(1)] == 1 })
			s.exec(p.insert(2, 2))
			s.exec(p.insert(3, 2))
			other := 10
			seen := map[int]bool{}
			s.wait("it has failed", func() bool {
				s.exec(p.insert(other, 1)) // others pass, so an attempt counts
				other++
				var n int
				var micros float64
				pause := s.value("SELECT CONCAT(o."+p.attempts+", ' ', TIMESTAMPDIFF(MICROSECOND, q.last_failed_at, o."+p.next+")) FROM "+p.table+" o JOIN "+s.state+
					".parked q ON q.message_id=? WHERE o."+p.id+"='2' AND o."+p.next+" IS NOT NULL UNION ALL SELECT ''", p.message(2))
				if _, err := fmt.Sscan(pause, &n, &micros); err == nil && !seen[n] {
					seen[n] = true
					want := math.Min(float64(table.Retry.Base.Microseconds())*math.Pow(table.Retry.Factor, float64(n)), float64(table.Retry.Max.Microseconds()))
					if d := math.Abs(micros - want); d > want*table.Retry.Jitter+10_000 {
						t.Errorf("after %d attempts the pause is %.0f µs, want %.0f ± %.0f%%", n, micros, want, table.Retry.Jitter*100)
					}
				}
				return p.of(s, 2, "status") == p.failed
			})
			if n := p.of(s, 2, p.attempts); n != fmt.Sprint(table.Retry.Attempts) {
				t.Errorf("it failed after %s attempts, want %d", n, table.Retry.Attempts)
			}
			if len(seen) < 3 {
				t.Errorf("only the pauses %v were seen", seen)
			}
			if at := p.of(s, 2, p.next); at != "NULL" {
				t.Errorf("a failed row has its next attempt at %s", at)
			}
			if s.metric("parked_rows", p.name, "failed") != 1 {
				t.Error("no figure tells of the failed row")
			}
			s.wait("the others are sent", func() bool { return len(s.times) == 1+other-10 })
			p.bind(s, ch, 2)
			s.ask(RequestParkedRetry, `{"states": ["failed"]}`)
			s.wait("both arrive", func() bool { return s.times[p.message(2)] == 1 && s.times[p.message(3)] == 1 })
			s.wait("both are marked", func() bool { return p.of(s, 2, "status") == p.sent && p.of(s, 3, "status") == p.sent })
			s.forgotten()
		})
	}
}

// A broker that routes nothing for a long while turns no row into a failed one,
// and is not flooded.
func TestAnOutageBurnsNothingInThePractices(t *testing.T) {
	for _, p := range practices {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s, table, ch := p.begin(t)
			for n := 1; n <= 50; n++ {
				s.exec(p.insert(n, 2+n%5))
			}
			probes := func() (n int) {
				fmt.Sscan(s.value("SELECT COALESCE(SUM(refusals), 0) FROM {state}.parked"), &n)
				return n
			}
			s.wait("all are parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked") == "50" })
			began, first := time.Now(), probes()
			s.wait("probes", func() bool { return probes() >= first+5 })
			if most := float64(time.Since(began)/table.Retry.Base) + 5; float64(probes()-first) > most {
				t.Errorf("%d sends in %s, want one for each backoff at most", probes()-first, time.Since(began))
			}
			if n := s.value("SELECT COUNT(*) FROM " + p.table + " WHERE " + p.attempts + "<>0 OR status='" + p.failed + "'"); n != "0" {
				t.Errorf("%s rows burnt an attempt (P8)", n)
			}
			for key := 2; key <= 6; key++ {
				p.bind(s, ch, key)
			}
			s.waitFor(50)
			s.forgotten()
			s.inOrderOf(func(id string) (n int) { fmt.Sscan(strings.TrimPrefix(id, "bill-"), &n); return n }, 5)
		})
	}
}

// A reversed bill withdraws its messages, waiting or failed: they are never sent.
func TestAReversedBillIsNotAnnounced(t *testing.T) {
	t.Parallel()
	p := practices[0]
	s, _, ch := p.begin(t)
	s.exec(p.insert(1, 1))
	s.wait("the first arrives", func() bool { return len(s.times) == 1 })
	for n := 2; n <= 5; n++ {
		s.exec(p.insert(n, n)) // refused
	}
	other := 10
	s.wait("one has failed", func() bool {
		s.exec(p.insert(other, 1))
		other++
		return p.of(s, 2, "status") == "FAILED"
	})
	s.exec("UPDATE ss_bill_outbox SET status='ABANDONED' WHERE bill_id IN (2, 3)")
	for key := 2; key <= 5; key++ {
		p.bind(s, ch, key)
	}
	s.ask(RequestParkedRetry, `{}`)
	s.wait("the other bills arrive", func() bool { return s.times["bill-4"] == 1 && s.times["bill-5"] == 1 })
	s.forgotten()
	if s.times["bill-2"]+s.times["bill-3"] > 0 {
		t.Error("a reversed bill was announced (P10)")
	}
	if n := s.value("SELECT COUNT(*) FROM ss_bill_outbox WHERE status='ABANDONED'"); n != "2" {
		t.Errorf("%s rows are still abandoned, want 2 (P10)", n)
	}
	if n := s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='parked.withdrawn'"); n != "2" {
		t.Errorf("%s withdrawals are in the audit, want 2", n)
	}
}

// An order whose consumers are done keeps its 2, whatever the relay writes.
func TestAnOrderThatIsDoneStaysDone(t *testing.T) {
	t.Parallel()
	p := practices[1]
	s, _, ch := p.begin(t)
	s.exec(p.insert(1, 2))
	s.wait("it is parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked") == "1" })
	s.exec("UPDATE biz_outbox SET status=2")
	p.bind(s, ch, 2)
	s.forgotten()
	if status := p.of(s, 1, "status"); status != "2" {
		t.Errorf("the application's status became %s (P10)", status)
	}
}
