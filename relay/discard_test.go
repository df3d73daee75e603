package relay

import (
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestWhatIsDiscardedIsNeverSent(t *testing.T) {
	t.Parallel()
	server := labtest.MySQL(t, servers["mysql with GTID"])
	tables := strings.ReplaceAll(parkedBills, "fallback: {every: 1h}", "fallback: {every: 200ms}") + strings.ReplaceAll(deleteSlips, `exchange: "", routing_key: bills}`, "exchange: shop, routing_key: slips}\n    retry: {base: 300ms, factor: 2, max: 1s, attempts: 3}") + parkedNotes
	s, ch := parkedShop(t, server, "strict", tables, createParkedBill, createSlip, createParkedNote)
	s.must(ch.QueueUnbind("bills", "bills", "shop", nil))
	stop := s.lead()
	s.insertMany("slip", 10)
	s.insertKeyed("bill", 1, 10, 2)
	s.insertKeyed("note", 1, 10, 2) // last: only the stream brings them, and then it has brought all
	s.wait("all are parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked WHERE state='waiting'") == "30" })
	if answer := s.ask(RequestParkedDiscard, `{"ids": ["1", "3", "n1", "n2", "s1"]}`); !strings.Contains(answer, `"rows":5`) {
		t.Errorf("discard answered %s", answer)
	}
	s.wait("all are discarded", func() bool { // also one that was just being tried
		return s.value("SELECT COUNT(*) FROM {state}.parked WHERE message_id IN ('1', '3', 'n1', 'n2', 's1') AND state='waiting'") == "0"
	})
	stop()
	stop = s.lead()
	for _, key := range []string{"bills", "slips"} {
		s.must(ch.QueueBind("bills", key, "shop", false, nil))
	}
	s.waitFor(25)
	s.exec("INSERT INTO bill (id, status) VALUES (50, 'SENT')")
	s.exec("UPDATE bill SET status='PENDING' WHERE id=50") // only the fallback finds it
	s.waitFor(26)
	stop()
	if len(s.times) != 26 || s.times["1"]+s.times["3"]+s.times["n1"]+s.times["n2"]+s.times["s1"] > 0 {
		t.Errorf("%d ids arrived: %v", len(s.times), s.arrived)
	}
	if n := s.value("SELECT COUNT(*) FROM bill WHERE status='FAILED'"); n != "2" {
		t.Errorf("%s discarded rows show it in their status, want 2", n)
	}
	if n := s.value("SELECT GROUP_CONCAT(message_id) FROM {state}.parked"); n != "s1" {
		t.Errorf("parked are %q; only the slip, which looks unsent in its table, is to be remembered", n)
	}
}

func TestARowThatIsDiscardedWhileItIsOnItsWayIsGivenUpWhenItIsRefused(t *testing.T) {
	t.Parallel()
	server := labtest.MySQL(t, servers["mariadb"])
	s, ch := parkedShop(t, server, "strict", parkedNotes, createParkedNote)
	mq := labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43})
	stop := s.lead()
	s.exec("INSERT INTO note (id, kind) VALUES (1, 'aside')")
	s.wait("it is parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked WHERE state='waiting'") == "1" })
	if _, err := ch.QueueDeclare("aside", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	s.must(mq.SuspendQueue(t.Context(), s.vhost, "aside")) // it answers nothing
	s.must(ch.QueueBind("aside", "aside", "shop", false, nil))
	s.wait("it is on its way", func() bool {
		return s.metric("retries_total") > 0 && s.metric("retries_total") == s.metric("refusals_total")
	})
	if answer := s.ask(RequestParkedDiscard, `{"ids": ["n1"]}`); !strings.Contains(answer, `"under_way":1`) {
		t.Errorf("discard answered %s", answer)
	}
	s.must(mq.KillQueue(t.Context(), s.vhost, "aside")) // which refuses what it had not taken
	s.forgotten()
	s.must(ch.QueueBind("bills", "aside", "shop", false, nil))
	s.exec("INSERT INTO note (id, kind) VALUES (2, 'aside')")
	s.waitFor(1)
	stop()
	if s.times["n1"] > 0 || s.times["n2"] != 1 {
		t.Errorf("arrived %v", s.times)
	}
}

func TestARowThatIsDiscardedWhileItsTableIsNotConfiguredDoesNotComeBackWithIt(t *testing.T) {
	t.Parallel()
	server := labtest.MySQL(t, servers["mysql with GTID"])
	s, ch := parkedShop(t, server, "strict", strings.ReplaceAll(parkedBills, "fallback: {every: 1h}", "fallback: {every: 200ms}")+parkedNotes, createParkedBill, createParkedNote)
	s.must(ch.QueueUnbind("bills", "bills", "shop", nil))
	stop := s.lead()
	s.begun()
	s.exec("INSERT INTO bill (id) VALUES (1)")
	s.wait("it is parked", func() bool { return s.value("SELECT COUNT(*) FROM {state}.parked WHERE state='waiting'") == "1" })
	stop()
	all := s.tables
	s.tables = all[strings.LastIndex(all, "\n  - table:"):] // the notes alone
	stop = s.lead()
	if answer := s.ask(RequestParkedDiscard, `{"ids": ["1"]}`); !strings.Contains(answer, `"changed":1`) {
		t.Errorf("discard answered %s", answer)
	}
	stop()
	s.tables = all
	s.must(ch.QueueBind("bills", "bills", "shop", false, nil))
	stop = s.lead()
	s.begun()
	quiet := s.session()
	quiet("SET SESSION sql_log_bin=0")
	quiet("INSERT INTO bill (id) VALUES (2)") // only a look of the fallback, which could see bill 1, finds it
	s.waitFor(1)
	s.wait("the first shows that it was given up", func() bool { return s.value("SELECT status FROM bill WHERE id=1") == "FAILED" })
	stop()
	if s.times["1"] > 0 || s.times["2"] != 1 {
		t.Errorf("arrived %v", s.times)
	}
}
