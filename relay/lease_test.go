package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// TestLease runs each scenario on each server, with the lock (fast_takeover)
// or without it. They wait more than they work, so many run at once, more than
// parallel tests would.
func TestLease(t *testing.T) {
	scenarios := []struct {
		name string
		fast []bool
		run  func(b *leaseBench)
	}{
		{"exactly one of many leads and the others know who", []bool{true, false}, oneLeads},
		{"a leader that resigns hands over at once", []bool{true, false}, resignHandsOver},
		{"a killed leader is followed well under a second", []bool{true}, killedIsFollowedAtOnce},
		{"a killed leader is followed when its lease expires", []bool{false}, killedIsFollowedByExpiry},
		{"a leader whose session is ended loses at once to the one that waits", []bool{true}, endedSession},
		{"a leader whose session is ended leads on when nobody waits", []bool{true, false}, endedSessionAlone},
		{"a stopped leader is followed and its late write is refused", []bool{true, false}, stoppedLeader},
		{"a leader stopped inside a transaction is followed and saves nothing", []bool{true, false}, stoppedInTransaction},
		{"a leader cut from the database ends by itself before its lease", []bool{true, false}, cutLeader},
		{"the lock of another server proves nothing", []bool{true}, lockElsewhere},
		{"a leader that yields stands back for a ttl", []bool{true, false}, yieldStandsBack},
		{"a database clock set back holds a dead leader's lease for a ttl only", []bool{false}, clockBack},
		{"a database clock set forward leaves one leader that can write", []bool{true, false}, clockForward},
		{"a successor learns of the old leader's broker", []bool{true}, successorLearns},
		{"the lease is kept while the lead drains", []bool{true, false}, keptWhileDraining},
		{"a session that hangs with the lock is ended by the next leader", []bool{true}, hungLockHolder},
		{"a renewal behind a transaction of the leader's own costs no lease", []bool{true}, renewalBehindOwnTransaction},
	}
	for _, kind := range []lab.Kind{lab.MySQL97, lab.MariaDB1011} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind, GTID: true})
			var group sync.WaitGroup
			slots := make(chan struct{}, 8)
			for _, s := range scenarios {
				for _, fast := range s.fast {
					slots <- struct{}{}
					group.Go(func() {
						defer func() { <-slots }()
						t.Run(fmt.Sprintf("%s/fast=%v", s.name, fast), func(t *testing.T) { s.run(newLeaseBench(t, server, fast)) })
					})
				}
			}
			group.Wait()
		})
	}
}

func TestARestartOfTheDatabaseMovesNoLeadership(t *testing.T) {
	for _, kind := range []lab.Kind{lab.MySQL97, lab.MariaDB1011} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind, GTID: true})
			b := newLeaseBench(t, server, true)
			b.TTL = 24 * time.Second // the restart is well inside it
			proxy, end := b.proxied()
			leader := b.stand("leader", end)
			term := receive(b, "it leads", leader.leads, soon)
			standby := b.stand("standby", b.leaseEnd)
			b.standsBy(standby, "leader")
			proxy.Set(lab.BlackHole) // so that the standby is back first, and finds the lock free
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			receiveState(b, standby, "notices", func(s LeaseState) bool { return s.Err != nil })
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.standsBy(standby, "leader")
			proxy.Set(lab.Fault{})
			proxy.Cut()
			b.lockIsHeld()
			if err := term.Prove(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case <-standby.leads:
				t.Error("the standby took over")
			default:
			}
		})
	}
}

// proxied is a way to the server that can be cut.
func (b *leaseBench) proxied() (*lab.Proxy, leaseEnd) {
	b.Helper()
	proxy, err := lab.StartProxy(b.Address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = proxy.Close() })
	end := b.leaseEnd
	end.Address = proxy.Addr()
	return proxy, end
}

func oneLeads(b *leaseBench) {
	b.TTL = 2 * brief
	var all []*candidate
	leads := make(chan *candidate, 16)
	for i := range 4 {
		c := b.stand(fmt.Sprint("c", i), b.leaseEnd)
		all = append(all, c)
		go func() {
			select {
			case <-c.leads:
				leads <- c
			case <-b.Context().Done():
			}
		}()
	}
	leader := receive(b, "one leads", leads, soon)
	for _, c := range all {
		if c != leader {
			if s := b.standsBy(c, leader.name); s.Left <= 0 || s.Left > b.TTL || s.Term != 1 {
				b.Errorf("%s sees %+v", c.name, s)
			}
		}
	}
	select {
	case second := <-leads:
		b.Errorf("%s leads too", second.name)
	case <-time.After(b.TTL + b.TTL/2): // several renewals
	}
}

func resignHandsOver(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	receive(b, "first leads", first.leads, soon)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	first.stop()
	term := receive(b, "second leads", second.leads, soon)
	if err := receive(b, "first is done", first.done, soon); err != nil {
		b.Error(err)
	}
	if term.Fence.Term != 2 || term.Old.Held() {
		b.Errorf("got %+v", term.Takeover)
	}
}

func killedIsFollowedAtOnce(b *leaseBench) {
	leader := b.child(b.leaseEnd)
	leader.says(b, "leading")
	standby := b.stand("standby", b.leaseEnd)
	receiveState(b, standby, "stands by", func(s LeaseState) bool { return s.Leader != "" })
	leader.signal(b, syscall.SIGKILL)
	killed := time.Now()
	term := receive(b, "the standby leads", standby.leads, soon)
	b.Logf("took over after %s", time.Since(killed)) // some 30 ms on an idle machine
	if !term.Old.Held() {
		b.Error("the old lease had expired: this was no fast takeover")
	}
}

func killedIsFollowedByExpiry(b *leaseBench) {
	leader := b.child(b.lasting(brief))
	leader.says(b, "leading")
	standby := b.stand("standby", b.leaseEnd)
	receiveState(b, standby, "stands by", func(s LeaseState) bool { return s.Leader != "" })
	leader.signal(b, syscall.SIGKILL)
	term := receive(b, "the standby leads", standby.leads, soon)
	if term.Old.Held() {
		b.Error("took over before the lease expired")
	}
}

func endedSession(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	receive(b, "first leads", first.leads, soon)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	b.killLockHolder()
	receive(b, "second leads", second.leads, soon)
	if cause := receive(b, "first ends", first.ends, soon); !errors.Is(cause, ErrLeaseLost) || !errors.Is(cause, checkpoint.ErrFenced) {
		b.Errorf("the cause was %v", cause)
	}
	b.standsBy(first, "second")
}

// killLockHolder ends the session of whoever holds the stream's lock.
func (b *leaseBench) killLockHolder() {
	b.Helper()
	b.exec("KILL " + b.value("SELECT IS_USED_LOCK(?)", b.lockName()))
}

func endedSessionAlone(b *leaseBench) {
	leader := b.stand("leader", b.leaseEnd)
	term := receive(b, "it leads", leader.leads, soon)
	rows, err := b.root.QueryContext(b.Context(), "SELECT id FROM information_schema.processlist WHERE user=?", b.User)
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	_ = rows.Close()
	for _, id := range ids {
		b.exec("KILL " + id)
	}
	for ctx := b.Context(); term.Prove(ctx) != nil; { // until it has a session again
		if term.Context().Err() != nil {
			b.Fatalf("the leadership ended: %v", context.Cause(term.Context()))
		}
	}
	if b.Fast && b.value("SELECT locked_on FROM {schema}.lease") == "" {
		b.Error("the new session does not hold the lock")
	}
	if err := save(b.Context(), leader.store, term.Fence, 4); err != nil {
		b.Error(err)
	}
}
