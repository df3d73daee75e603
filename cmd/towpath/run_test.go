package main

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

var servers = []lab.MySQLOptions{
	{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"},
	{Kind: lab.MySQL97, GTID: false, RowMetadata: "MINIMAL"},
	{Kind: lab.MariaDB1011},
}

func name(o lab.MySQLOptions) string {
	if o.Kind == lab.MySQL97 && !o.GTID {
		return string(o.Kind) + "-file"
	}
	return string(o.Kind)
}

// eachServer runs a test on every kind of source, with a rig of its own.
func eachServer(t *testing.T, test func(t *testing.T, r *rig)) {
	rabbits := []lab.Kind{lab.Rabbit43, lab.Rabbit43, lab.Rabbit310}
	for i, o := range servers {
		t.Run(name(o), func(t *testing.T) {
			test(t, newRig(t, labtest.MySQL(t, o), labtest.Rabbit(t, lab.RabbitOptions{Kind: rabbits[i]})))
		})
	}
}

func (r *rig) init(config string) {
	r.t.Helper()
	if code, out := towpath(r.t, "init", "-c", config); code != 0 {
		r.t.Fatalf("init: exit code %d: %s", code, out)
	}
}

func TestKilledAtAnyMomentARelayLosesNothingAndInventsNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		r.init(config)
		p := start(t, config)
		p.publishing()
		s := r.trade(4)
		random := rand.New(rand.NewPCG(1, 2))
		for range 8 {
			s.traded(20 + random.IntN(200))
			p.kill()
			p = start(t, config)
			if random.IntN(2) == 0 {
				p.publishing()
			}
		}
		p.publishing()
		s.traded(50)
		committed := s.stop()
		r.inbox.holds(committed)
		duplicates := r.inbox.account(committed)
		s.inOrder()
		p.stop()
		r.allMarked(committed)
		t.Logf("%d committed, %d duplicates in 8 kills", len(committed), duplicates)
	})
}

// allMarked waits until no row is left unsent in its table.
func (r *rig) allMarked(committed []string) {
	r.t.Helper()
	var sent int
	if err := r.db.QueryRow("SELECT COUNT(*) FROM outbox WHERE status = 'SENT'").Scan(&sent); err != nil {
		r.t.Fatal(err)
	}
	if sent > len(committed) {
		r.t.Errorf("%d rows are marked as sent, %d were committed", sent, len(committed))
	}
}

func TestOfTwoRelaysOneStreamsAndTheOtherTakesOverAtOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		r.init(config)
		leader := start(t, config)
		leader.publishing()
		standby := start(t, r.config())
		standby.says("standing by", 1)
		s := r.trade(2)
		s.traded(50)
		if code, text := standby.get("/readyz"); code != 200 {
			t.Errorf("a standby's /readyz is %d: %s", code, text)
		}
		if strings.Contains(standby.text(), "\tleading\t") {
			t.Fatal("both lead")
		}
		killed := time.Now()
		leader.kill()
		standby.publishing()
		took := time.Since(killed)
		s.traded(50)
		committed := s.stop()
		r.inbox.holds(committed)
		r.inbox.account(committed)
		s.inOrder()
		if t.Logf("takeover after kill -9: %s", took); took > 2500*time.Millisecond { // less than the ttl of 3 s: by the lock, not by expiry
			t.Errorf("the standby published %s after the leader was killed", took)
		}
	})
}

func TestALeaderThatIsToldToStopHandsOverWithoutADuplicate(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		r.init(config)
		leader := start(t, config)
		leader.publishing()
		s := r.trade(2)
		s.traded(100)
		standby := start(t, r.config())
		standby.says("standing by", 1)
		leader.stop()
		standby.publishing()
		s.traded(100)
		committed := s.stop()
		r.inbox.holds(committed)
		if n := r.inbox.account(committed); n != 0 {
			t.Errorf("%d duplicates after a stop in good order", n)
		}
		s.inOrder()
	})
}

func TestAPausedLeaderNeitherPublishesNorSavesAfterItsSuccessorHasBegun(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		r.init(config)
		leader := start(t, config)
		leader.publishing()
		s := r.trade(2)
		s.traded(100)
		standby := start(t, r.config())
		standby.says("standing by", 1)
		leader.signal(syscall.SIGSTOP)
		standby.publishing()
		s.traded(100)
		leader.signal(syscall.SIGCONT)
		leader.says("no longer leading", 1)
		s.traded(100)
		committed := s.stop()
		r.inbox.holds(committed)
		r.inbox.account(committed)
		s.inOrder()
		if now := r.term(); now < 2 {
			t.Errorf("the position was saved by term %d", now)
		}
	})
}

func (r *rig) term() (term int) {
	r.t.Helper()
	if err := r.db.QueryRow("SELECT term FROM " + r.state + ".checkpoint").Scan(&term); err != nil {
		r.t.Fatal(err)
	}
	return term
}

func TestALeaderCutOffFromItsDatabaseStopsPublishingBeforeItsSuccessorBegins(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		proxy, err := lab.StartProxy(r.mysql.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.Close()
		r.source = proxy.Addr()
		config := r.config()
		r.init(config)
		leader := start(t, config)
		leader.publishing()
		s := r.trade(2)
		s.traded(100)
		r.source = r.mysql.Addr()
		standby := start(t, r.config())
		standby.says("standing by", 1)
		proxy.Set(lab.BlackHole) // its RabbitMQ is still there
		standby.publishing()
		s.traded(100)
		proxy.Set(lab.Fault{})
		leader.says("no longer leading", 1)
		s.traded(50)
		committed := s.stop()
		r.inbox.holds(committed)
		r.inbox.account(committed)
		s.inOrder()
	})
}

// allSent waits until so many rows are marked as sent.
func (r *rig) allSent(want int) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var sent int
		if err := r.db.QueryRow("SELECT COUNT(*) FROM outbox WHERE status = 'SENT'").Scan(&sent); err != nil {
			r.t.Fatal(err)
		}
		if sent == want {
			return
		}
	}
	r.t.Fatalf("not all of %d rows were marked as sent within 30 s", want)
}

func TestAnIdleRelayCommitsNoMoreThanItsLeaseAndIdleSaves(t *testing.T) {
	r := newRig(t, labtest.MySQL(t, servers[0]), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	r.options = "checkpoint: {every: 50ms, idle: 2s}\nlease: {ttl: 6s, yield_after: 60s}\n"
	config := r.config()
	r.init(config)
	p := start(t, config)
	p.publishing()
	s := r.trade(1)
	s.traded(10)
	committed := s.stop()
	r.inbox.holds(committed)
	r.allSent(len(committed))
	before := p.metric("towpath_checkpoint_saves_total")
	time.Sleep(6 * time.Second)                                          // nothing can be waited for where nothing may happen
	if n := p.metric("towpath_checkpoint_saves_total") - before; n > 5 { // one for the last rows, one every 2 s, and one by rounding
		t.Errorf("%v saves in 6 idle seconds, at most one every 2 s is explained", n)
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	r := newRig(t, labtest.MySQL(t, servers[0]), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	proxy, err := lab.StartProxy(r.rabbit.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	r.broker = proxy.Addr()
	config := r.config()
	r.init(config)
	p := start(t, config)
	p.publishing()
	p.says("swept", 1) // from here on rows come by the stream, into its window
	proxy.Set(lab.BlackHole)
	r.trade(1)
	for p.metric("towpath_window_rows") == 0 { // it holds rows that cannot be confirmed
		time.Sleep(20 * time.Millisecond)
	}
	p.signal(syscall.SIGTERM)
	p.says("stopping", 1) // its window cannot settle
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		t.Fatal("still there 5 s after the second signal")
	}
	if code := p.cmd.ProcessState.ExitCode(); code == 0 {
		t.Error("it ended as if all was settled")
	}
}
