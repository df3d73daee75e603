package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

func TestKilledAtAnyMomentARelayLosesNothingAndInventsNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		p := r.running(config)
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
		committed, duplicates := s.accounted()
		r.marked(len(committed)) // one that was locked in its moment is found by the fallback
		p.stop()
		t.Logf("%d committed, %d duplicates in 8 kills", len(committed), duplicates)
	})
}

func TestOfTwoRelaysOneStreamsAndTheOtherTakesOverAtOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		const ttl = 30 * time.Second
		r.options = fmt.Sprintf("checkpoint: {every: 50ms, idle: 1s}\nlease: {ttl: %s, yield_after: 60s}\n", ttl)
		leader := r.running(r.config())
		standby := r.standby()
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
		s.accounted()
		if t.Logf("takeover after kill -9: %s", took); took >= ttl { // by the lock, not by expiry
			t.Errorf("the standby published %s after the leader was killed", took)
		}
	})
}

// A rolling restart, as the operations page has it.
func TestTwoRelaysAreRestartedOneByOneWithoutADuplicate(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		leader := r.running(r.config())
		s := r.trade(2)
		s.traded(100)
		r.standby().stop()
		standby := r.standby()
		for range 2 { // the leader, and what was the standby
			if code, text := standby.get("/readyz"); code != 200 {
				t.Errorf("/readyz is %d: %s", code, text)
			}
			leader.stop()
			standby.publishing()
			s.traded(100)
			leader, standby = standby, r.standby()
		}
		if _, n := s.accounted(); n != 0 {
			t.Errorf("%d duplicates after stops in good order", n)
		}
	})
}

func TestAPausedLeaderNeitherPublishesNorSavesAfterItsSuccessorHasBegun(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		leader := r.running(r.config())
		s := r.trade(2)
		s.traded(100)
		standby := r.standby()
		leader.signal(syscall.SIGSTOP)
		standby.publishing()
		s.traded(100)
		leader.signal(syscall.SIGCONT)
		leader.says("no longer leading", 1)
		s.traded(100)
		s.accounted()
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
		proxy := proxied(t, r.mysql.Addr())
		r.source = proxy.Addr()
		leader := r.running(r.config())
		s := r.trade(2)
		s.traded(100)
		r.source = r.mysql.Addr()
		standby := r.standby()
		proxy.Set(lab.BlackHole) // its RabbitMQ is still there
		standby.publishing()
		s.traded(100)
		proxy.Set(lab.Fault{})
		leader.says("no longer leading", 1)
		s.traded(50)
		s.accounted()
	})
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	r := oneServer(t)
	proxy := proxied(t, r.rabbit.Addr())
	r.broker = proxy.Addr()
	p := r.running(r.config())
	p.says("swept", 1) // from here on rows come by the stream, into its window
	proxy.Set(lab.BlackHole)
	r.trade(1)
	r.eventually("it holds rows that cannot be confirmed", func() bool { return p.metric("towpath_window_rows") > 0 })
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
