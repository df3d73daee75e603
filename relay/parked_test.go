package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

const (
	parkedBills = `
  - table: {schema}.bill
    columns: {id: "{id}", key: "{k}", body: payload}
    publish: {exchange: "shop", routing_key: "{kind}", headers: {colour: "{colour}"}}
    ordering: {ordering}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED, withdrawn: [ABANDONED], attempts: tries, next_attempt_at: next_try, last_error: problem}
    retry: {base: 300ms, factor: 2, max: 1s, attempts: 3, jitter: 0.1}
    max_parked: 5000
    fallback: {every: 1h}
`
	createParkedBill = `CREATE TABLE bill (id BIGINT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, kind VARCHAR(20) NOT NULL DEFAULT 'bills',
		colour VARCHAR(20) NOT NULL DEFAULT 'red', payload VARCHAR(200) NOT NULL DEFAULT '{}', status VARCHAR(12) NOT NULL DEFAULT 'PENDING',
		tries INT NOT NULL DEFAULT 0, next_try DATETIME(3) NULL, problem VARCHAR(200) NULL, KEY (status))`
	parkedNotes = `
  - table: {schema}.note
    columns: {id: "n{id}", key: "{k}", body: payload}
    publish: {exchange: "shop", routing_key: "{kind}"}
    after_publish: keep
    start: now
    deliver_at: due
    max_parked: 20
    retry: {base: 300ms, factor: 2, max: 1s, attempts: 3, jitter: 0.1}
`
	createParkedNote = `CREATE TABLE note (id BIGINT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, kind VARCHAR(20) NOT NULL DEFAULT 'bills',
		payload VARCHAR(200) NOT NULL DEFAULT '{}', due DATETIME(6) NULL)`
)

// broker is a channel of the test's own on the shop's vhost.
func (s *shop) broker() *amqp.Channel {
	s.Helper()
	conn, err := amqp.Dial(s.vhost.URL())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		s.Fatal(err)
	}
	return ch
}

// lead runs a relay until it may publish.
func (s *shop) lead() (stop func()) {
	s.Helper()
	stop = s.run()
	s.waitLog("publishing")
	return stop
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// parkedShop has exchange shop bound to the queue, and is publishing.
func parkedShop(t *testing.T, server *lab.MySQLServer, ordering, tables string, create ...string) (*shop, *amqp.Channel) {
	t.Helper()
	s := newShop(t, server, strings.ReplaceAll(tables, "{ordering}", ordering), create...)
	ch := s.broker()
	s.must(ch.ExchangeDeclare("shop", "direct", true, false, false, false, nil))
	s.must(ch.QueueBind("bills", "bills", "shop", false, nil))
	return s, ch
}

// inOrder checks that each key's rows arrived first in the order of their ids.
func (s *shop) inOrder(keys int) {
	s.Helper()
	s.inOrderOf(func(id string) (n int) { fmt.Sscan(strings.TrimPrefix(id, "n"), &n); return n }, keys)
}

func (s *shop) inOrderOf(number func(id string) int, keys int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, seen := map[int]int{}, map[string]bool{}
	for _, id := range s.arrived {
		if seen[id] {
			continue
		}
		seen[id] = true
		n := number(id)
		if key := n % keys; n < last[key] {
			s.Errorf("row %d arrived after row %d of its key (P6)", n, last[key])
		} else {
			last[key] = n
		}
	}
}

// insertKeyed inserts n rows whose key is their id modulo keys, one transaction each hundred.
func (s *shop) insertKeyed(table string, from, n, keys int) {
	s.Helper()
	for n > 0 {
		var rows []string
		for range min(n, 100) {
			rows = append(rows, fmt.Sprintf("(%d, %d)", from, from%keys))
			from++
		}
		s.exec("INSERT INTO " + table + " (id, k) VALUES " + strings.Join(rows, ", "))
		n -= len(rows)
	}
}

// forgotten waits until no parked row is left.
func (s *shop) forgotten() {
	s.Helper()
	s.wait("no parked row is left", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked") == "0" })
}

func TestAnUnboundKeyParksItsRowsAndTheySendThemselvesInOrderOnceItIsBound(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s, ch := parkedShop(t, server, "strict", parkedBills+parkedNotes, createParkedBill, createParkedNote)
		stop := s.lead()
		s.insertKeyed("bill", 1, 100, 7)
		s.waitFor(100)
		s.must(ch.QueueUnbind("bills", "bills", "shop", nil))
		s.insertKeyed("bill", 101, 400, 7)
		s.exec("INSERT INTO note (kind) VALUES ('elsewhere')")
		s.wait("all are parked", func() bool {
			return s.value("SELECT COUNT(*) FROM {state}.parked WHERE state='waiting'") == "401"
		})
		s.wait("both destinations are closed", func() bool { return s.metric("closed_destinations") == 2 })
		before := s.value("SELECT SUM(refusals) FROM {state}.parked")
		stop() // and by another leader, which begins where this one ended
		stop = s.lead()
		refusals := func() (n int) {
			fmt.Sscan(s.value("SELECT SUM(refusals) FROM {state}.parked"), &n)
			return n
		}
		at := refusals()
		s.wait("probes", func() bool { return refusals() >= at+8 }) // more than any row may burn
		if n := refusals(); n > 60 {
			t.Errorf("%d sends into destinations that take nothing, %s before the restart: a storm", n, before)
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.parked WHERE attempts > 0 OR state <> 'waiting'"); n != "0" {
			t.Errorf("%s rows burnt an attempt in an outage (P8)", n)
		}
		s.must(ch.QueueBind("bills", "bills", "shop", false, nil))
		bound := time.Now()
		s.waitFor(500)
		t.Logf("500 rows were there %s after the binding was", time.Since(bound).Round(time.Millisecond))
		s.wait("all are marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status<>'SENT'") == "0" })
		s.must(ch.QueueBind("bills", "elsewhere", "shop", false, nil))
		s.waitFor(501)
		s.forgotten()
		stop()
		s.mu.Lock()
		s.arrived = s.arrived[:len(s.arrived)-1] // the note
		s.mu.Unlock()
		s.inOrder(7)
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%d ids came twice, as %.100v", len(twice), twice)
		}
	})
}

func TestAMissingExchangeStopsNoOtherTableAndItsRowsFollowOnceItIsDeclared(t *testing.T) {
	t.Parallel()
	server := labtest.MySQL(t, servers["mysql with GTID"])
	s, ch := parkedShop(t, server, "fast", parkedBills+deleteSlips, createParkedBill, createSlip)
	s.must(ch.ExchangeDelete("shop", false, false))
	stop := s.lead()
	s.insertKeyed("bill", 1, 300, 7)
	s.insertMany("slip", 2000)
	s.waitFor(2000)
	s.must(ch.ExchangeDeclare("shop", "direct", true, false, false, false, nil))
	s.must(ch.QueueBind("bills", "bills", "shop", false, nil))
	s.waitFor(2300)
	s.forgotten()
	stop()
	if n := s.value("SELECT COUNT(*) FROM bill WHERE status<>'SENT' OR tries>0"); n != "0" {
		t.Errorf("%s rows are not marked, or burnt an attempt", n)
	}
}

func TestAFullQueueBreaksNoOrderInAStrictTableAndIsCountedInAFastOne(t *testing.T) {
	for _, ordering := range []string{"strict", "fast"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			server := labtest.MySQL(t, servers["mysql with GTID"])
			s, ch := parkedShop(t, server, ordering, parkedBills, createParkedBill)
			_, err := ch.QueueDeclare("small", true, false, false, false, amqp.Table{"x-max-length": 40, "x-overflow": "reject-publish"})
			s.must(err)
			s.must(ch.QueueUnbind("bills", "bills", "shop", nil))
			s.must(ch.QueueBind("small", "bills", "shop", false, nil))
			stop := s.lead()
			s.insertKeyed("bill", 1, 400, 7)
			s.wait("the queue is full", func() bool { return s.metric("closed_destinations") == 1 })
			// A consumer that comes and goes: the queue fills again and again.
			for end := time.Now().Add(25 * time.Second); time.Now().Before(end); {
				d, ok, err := ch.Get("small", true)
				s.must(err)
				s.mu.Lock()
				n := len(s.times)
				if ok {
					s.arrived = append(s.arrived, d.MessageId)
					s.times[d.MessageId]++
					n = len(s.times)
				}
				s.mu.Unlock()
				if n == 400 {
					break
				}
				if !ok {
					time.Sleep(time.Millisecond)
				}
			}
			if len(s.times) != 400 {
				t.Errorf("%d of 400 arrived, %s failed", len(s.times), s.value("SELECT COUNT(*) FROM {state}.parked WHERE state='failed'"))
				t.Log(s.value("SELECT GROUP_CONCAT(DISTINCT CONCAT(state, ' ', class, ' ', attempts, ' ', refusals)) FROM {state}.parked"))
			}
			s.forgotten()
			stop()
			if ordering == "strict" {
				s.inOrder(7)
			} else if s.metric("order_breaks_total") == 0 {
				t.Error("a fast table lost its order uncounted")
			}
		})
	}
}

// A headers exchange takes red rows and no others: one row's refusal is its own.
func TestARowThatIsNeverTakenFailsWhileOthersPassAndIsSentWhenAPersonSaysSo(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s, ch := parkedShop(t, server, "strict", strings.ReplaceAll(parkedBills, `exchange: "shop"`, `exchange: "colours"`), createParkedBill)
		s.must(ch.ExchangeDeclare("colours", "headers", true, false, false, false, nil))
		s.must(ch.QueueBind("bills", "", "colours", false, amqp.Table{"x-match": "all", "colour": "red"}))
		stop := s.lead()
		s.exec("INSERT INTO bill (id, k) VALUES (1, 1)")
		s.waitFor(1)
		s.exec("INSERT INTO bill (id, k, colour) VALUES (2, 2, 'blue'), (3, 2, 'red'), (4, 3, 'blue')")
		id := 10
		s.wait("both have failed", func() bool {
			s.exec("INSERT INTO bill (id, k) VALUES (?, 1)", id)
			id++
			return s.value("SELECT COUNT(*) FROM bill WHERE status='FAILED'") == "2"
		})
		if row := s.value("SELECT CONCAT_WS('|', tries, COALESCE(next_try, 'none'), problem) FROM bill WHERE id=2"); !strings.HasPrefix(row, "3|none|312") {
			t.Errorf("the failed row says %q", row)
		}
		if n := s.metric("parked_rows", "failed"); n != 2 {
			t.Errorf("towpath_parked_rows says %v failed, want 2", n)
		}
		s.wait("others flow", func() bool { return len(s.times) == 1+id-10 })
		if s.times["3"] > 0 {
			t.Error("row 3 passed row 2 of its key (P6)")
		}
		// A reversed bill withdraws its failed message; the other is mended and tried again.
		s.exec("UPDATE bill SET status='ABANDONED' WHERE id=4")
		s.must(ch.QueueBind("bills", "", "colours", false, amqp.Table{"x-match": "all", "colour": "blue"}))
		result := s.ask(RequestParkedRetry, `{}`)
		if !strings.Contains(result, `"changed":`) {
			t.Errorf("retry answered %s", result)
		}
		s.wait("rows 2 and 3 arrive", func() bool { return s.times["2"] == 1 && s.times["3"] == 1 })
		s.forgotten()
		stop()
		if s.times["4"] > 0 || s.value("SELECT status FROM bill WHERE id=4") != "ABANDONED" {
			t.Error("a withdrawn row was sent (P10)")
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='parked.withdrawn' AND detail LIKE '%\"4\"%'"); n != "1" {
			t.Errorf("the withdrawal is %s times in the audit", n)
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='parked.retry' AND operator='ann' AND reason='mended'"); n != "1" {
			t.Errorf("the retry is %s times in the audit", n)
		}
		if n := s.value("SELECT COUNT(*) FROM bill WHERE status<>'SENT'"); n != "1" {
			t.Errorf("%s rows are not marked, want the withdrawn one", n)
		}
	})
}

// ask leaves a request and returns its answer.
func (s *shop) ask(kind, args string) string {
	s.Helper()
	s.exec("INSERT INTO "+s.state+".request (stream, kind, args, operator, reason, state, requested_at) VALUES ('shop', ?, ?, 'ann', 'mended', 'new', UTC_TIMESTAMP(6))", kind, args)
	s.wait("the request is done", func() bool {
		return s.value("SELECT COUNT(*) FROM {state}.request WHERE state IN ('new', 'taken')") == "0"
	})
	return s.value("SELECT result FROM {state}.request ORDER BY id DESC LIMIT 1")
}

func TestAKeepTableWithoutRoomForParkedRowsHaltsUntilThereIsAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	server := labtest.MySQL(t, servers["mariadb"])
	s, ch := parkedShop(t, server, "strict", parkedNotes, createParkedNote)
	stop := s.lead()
	s.insertKeyed("note", 1, 10, 3)
	s.waitFor(10)
	s.must(ch.QueueUnbind("bills", "bills", "shop", nil))
	s.insertKeyed("note", 11, 100, 3)
	s.wait("the stream halts", func() bool { return s.metric("halted", "parked") == 1 })
	s.wait("max_parked are parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked") == "20" })
	s.must(ch.QueueBind("bills", "bills", "shop", false, nil))
	s.waitFor(110)
	s.wait("the halt is over", func() bool { return s.metric("halted", "parked") == 0 })
	s.forgotten()
	stop()
	s.inOrder(3)
}

func TestAMarkTableWithoutRoomForParkedRowsLeavesThemUnsentInTheTable(t *testing.T) {
	t.Parallel()
	server := labtest.MySQL(t, servers["mysql without GTID"])
	tables := strings.ReplaceAll(strings.ReplaceAll(parkedBills, "fallback: {every: 1h}", "fallback: {every: 200ms}"), "max_parked: 5000", "max_parked: 50")
	s, ch := parkedShop(t, server, "strict", tables+deleteSlips, createParkedBill, createSlip)
	s.must(ch.QueueUnbind("bills", "bills", "shop", nil))
	stop := s.lead()
	s.insertKeyed("bill", 1, 300, 3)
	s.insertMany("slip", 10)
	s.waitFor(10)
	s.wait("there is no more room", func() bool {
		return s.metric("rows_total", "bill", "deferred") > 0 || s.value("SELECT COUNT(*) FROM {state}.parked") == "50"
	})
	s.must(ch.QueueBind("bills", "bills", "shop", false, nil))
	s.waitFor(310)
	s.forgotten()
	stop()
}

func TestARowOfAKeepTableIsSentWhenItIsDue(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s, _ := parkedShop(t, server, "strict", parkedNotes, createParkedNote)
		stop := s.lead()
		s.exec("INSERT INTO note (id, k, due) VALUES (1, 1, UTC_TIMESTAMP(6) + INTERVAL 2 SECOND), (2, 1, NULL)")
		committed := time.Now()
		s.waitFor(1)
		s.wait("it is parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked") == "1" })
		row := s.value("SELECT CONCAT_WS('|', class, state, refusals, TIMESTAMPDIFF(MICROSECOND, next_attempt_at, (SELECT due FROM " + s.schema + ".note WHERE id=1)) BETWEEN -300000 AND 300000) FROM {state}.parked")
		if row != "scheduled|waiting|0|1" {
			t.Errorf("parked as %s", row)
		}
		if n := s.metric("refusals_total"); n != 0 {
			t.Errorf("%v refusals are counted", n)
		}
		stop()
		stop = s.lead()
		s.waitFor(2)
		if after := s.sawAt["n1"].Sub(committed); after < 1900*time.Millisecond || after > 4*time.Second {
			t.Errorf("it arrived %s after its commit, it was due after 2 s", after)
		}
		s.forgotten()
		stop()
	})
}
