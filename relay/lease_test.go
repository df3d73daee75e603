package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
			b.TTL = 15 * time.Second // the restart is well inside it
			proxy, end := b.proxied()
			leader := b.stand("leader", end)
			term := receive(b, "it leads", leader.leads, 5*time.Second)
			standby := b.stand("standby", b.leaseEnd)
			b.waitsForLock(1)
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
			b.waitsForLock(1) // so the leader has it
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
	leader := receive(b, "one leads", leads, 5*time.Second)
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
	receive(b, "first leads", first.leads, 5*time.Second)
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
	b.waitsForLock(1)
	leader.signal(b, syscall.SIGKILL)
	killed := time.Now()
	term := receive(b, "the standby leads", standby.leads, soon)
	b.Logf("took over after %s", time.Since(killed))
	if !term.Old.Held() {
		b.Error("the old lease had expired: this was no fast takeover")
	}
}

func killedIsFollowedByExpiry(b *leaseBench) {
	leader := b.child(b.leaseEnd)
	leader.says(b, "leading")
	standby := b.stand("standby", b.leaseEnd)
	receiveState(b, standby, "stands by", func(s LeaseState) bool { return s.Leader != "" })
	leader.signal(b, syscall.SIGKILL)
	term := receive(b, "the standby leads", standby.leads, b.TTL+soon)
	if term.Old.Held() {
		b.Error("took over before the lease expired")
	}
}

func endedSession(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	receive(b, "first leads", first.leads, 5*time.Second)
	second := b.stand("second", b.leaseEnd)
	b.waitsForLock(1)
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
	id := b.value("SELECT id FROM information_schema.processlist WHERE user=? AND IS_USED_LOCK(?)=id", b.User, b.lockName())
	b.exec("KILL " + id)
}

func endedSessionAlone(b *leaseBench) {
	leader := b.stand("leader", b.leaseEnd)
	term := receive(b, "it leads", leader.leads, 5*time.Second)
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

func stoppedLeader(b *leaseBench) { b.stopAndFollow("") }

func stoppedInTransaction(b *leaseBench) { b.stopAndFollow("transaction") }

// stopAndFollow stops a leader for so long that a standby takes over, and lets
// it go on with its write.
func (b *leaseBench) stopAndFollow(where string) {
	end := b.leaseEnd
	end.Freeze = where
	leader := b.child(end)
	leader.says(b, "leading")
	leader.signal(b, syscall.SIGSTOP)
	standby := b.stand("standby", b.leaseEnd)
	// Its lease expires, its sessions are ended by wait_timeout at about the
	// same time, and a lock wait in the takeover may take a second.
	term := receive(b, "the standby leads", standby.leads, 2*b.TTL+2*time.Second)
	if !term.Checkpoint.Position.IsZero() {
		b.Errorf("the standby starts from %s, which was never committed", term.Checkpoint.Position)
	}
	leader.signal(b, syscall.SIGCONT)
	if _, err := leader.stdin.Write([]byte("\n")); err != nil {
		b.Fatal(err)
	}
	if got := leader.says(b, "wrote"); got != "first: true, fenced: true" {
		b.Errorf("the stopped leader's write: %s", got)
	}
	if got := leader.says(b, "ended"); !strings.Contains(got, ErrLeaseLost.Error()) {
		b.Errorf("its leadership: %s", got)
	}
	if n := b.value("SELECT COUNT(*) FROM {schema}.checkpoint"); n != "0" {
		b.Error("the stopped leader saved a position")
	}
	if err := save(b.Context(), standby.store, term.Fence, 4); err != nil {
		b.Errorf("the successor cannot save: %v", err)
	}
}

func cutLeader(b *leaseBench) {
	proxy, end := b.proxied()
	leader := b.stand("leader", end)
	old := receive(b, "it leads", leader.leads, 5*time.Second)
	standby := b.stand("standby", b.leaseEnd)
	b.standsBy(standby, "leader")
	proxy.Set(lab.BlackHole)
	cause := receive(b, "the cut leader ends", leader.ends, b.TTL+soon)
	if !errors.Is(cause, ErrLeaseLost) || errors.Is(cause, checkpoint.ErrFenced) {
		b.Errorf("the cause was %v", cause)
	}
	term := receive(b, "the standby leads", standby.leads, b.TTL+2*time.Second)
	if got := b.value("SELECT locked_on FROM {schema}.lease"); b.Fast && got == "" {
		b.Error("the successor leads without the lock, which a session of the cut leader holds")
	}
	proxy.Set(lab.Fault{})
	proxy.Cut()
	var err error
	for i := 0; i < 10 && !errors.Is(err, checkpoint.ErrFenced); i++ { // its dead sessions fail first
		err = save(b.Context(), leader.store, old.Fence, 666)
	}
	if !errors.Is(err, checkpoint.ErrFenced) {
		b.Errorf("the late write: %v", err)
	}
	if err := save(b.Context(), standby.store, term.Fence, 4); err != nil {
		b.Error(err)
	}
}

func lockElsewhere(b *leaseBench) {
	end := b.leaseEnd
	end.Fast = false // it has its lock on another node of the cluster: here the lock is free
	first := b.stand("first", end)
	old := receive(b, "first leads", first.leads, 5*time.Second)
	b.exec("UPDATE {schema}.lease SET locked_on='another server'")
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	select {
	case <-second.leads:
		b.Error("it took a lease by a lock that proves nothing")
	case <-time.After(b.TTL + b.TTL/2):
	}
	if err := save(b.Context(), first.store, old.Fence, 4); err != nil {
		b.Errorf("the leader was deposed: %v", err)
	}
	first.stop()
	receive(b, "second leads once the lease is free", second.leads, soon)
	if got := b.value("SELECT locked_on FROM {schema}.lease"); got == "another server" || got == "" {
		b.Errorf("the new leader's lock is recorded as on %q", got)
	}
}

func yieldStandsBack(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	receive(b, "first leads", first.leads, 5*time.Second).Yield()
	yielded := time.Now()
	if cause := receive(b, "first ends", first.ends, soon); !errors.Is(cause, ErrYielded) {
		b.Errorf("the cause was %v", cause)
	}
	term := receive(b, "nobody else wants it, so it leads again", first.leads, b.TTL+2*soon)
	if stood := time.Since(yielded); stood < b.TTL {
		b.Errorf("it stood back for %s only", stood)
	}
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	term.Yield()
	receive(b, "another leads at once", second.leads, soon)
}

func clockBack(b *leaseBench) {
	leader := b.child(b.leaseEnd)
	leader.says(b, "leading")
	standby := b.stand("standby", b.leaseEnd)
	receiveState(b, standby, "stands by", func(s LeaseState) bool { return s.Leader != "" })
	leader.signal(b, syscall.SIGKILL)
	// To the database's clock, an hour before the last renewal.
	b.exec("UPDATE {schema}.lease SET renewed_at=renewed_at + INTERVAL 1 HOUR, expires_at=expires_at + INTERVAL 1 HOUR")
	receive(b, "the standby leads", standby.leads, 2*b.TTL+2*soon)
}

func clockForward(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	old := receive(b, "first leads", first.leads, 5*time.Second)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	var term *Term
	deadline := time.After(10 * time.Second)
	for term == nil { // a renewal of the leader may come first and mend it
		b.exec("UPDATE {schema}.lease SET expires_at=UTC_TIMESTAMP(6) - INTERVAL 1 HOUR WHERE term=1")
		select {
		case term = <-second.leads:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			b.Fatal("nobody took the expired lease")
		}
	}
	if err := save(b.Context(), first.store, old.Fence, 666); !errors.Is(err, checkpoint.ErrFenced) {
		b.Errorf("the old leader's write: %v", err)
	}
	if err := save(b.Context(), second.store, term.Fence, 4); err != nil {
		b.Error(err)
	}
	if cause := receive(b, "first ends", first.ends, b.TTL); !errors.Is(cause, ErrLeaseLost) {
		b.Errorf("the cause was %v", cause)
	}
	if err := old.Prove(b.Context()); !errors.Is(err, ErrLeaseLost) {
		b.Errorf("the old leader proves: %v", err)
	}
}

func successorLearns(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	term := receive(b, "first leads", first.leads, 5*time.Second)
	broker := checkpoint.Broker{Cluster: "rabbit@a", VHost: "/shop", Lanes: 4}
	if err := errors.Join(term.Prove(b.Context()), term.Record(b.Context(), broker)); err != nil {
		b.Fatal(err)
	}
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	first.stop()
	old := receive(b, "second leads", second.leads, soon).Old
	if old.Broker != broker || old.Term != 1 || old.Left > 0 {
		b.Errorf("got %+v", old)
	}
}

func keptWhileDraining(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	first.drain = make(chan struct{})
	term := receive(b, "first leads", first.leads, 5*time.Second)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	first.stop()
	select {
	case <-second.leads:
		b.Error("another leads while the old leader drains")
	case <-time.After(b.TTL + b.TTL/2):
	}
	if err := errors.Join(term.Context().Err(), save(b.Context(), first.store, term.Fence, 4)); err != nil {
		b.Errorf("the draining leader: %v", err)
	}
	close(first.drain)
	if got := receive(b, "second leads", second.leads, soon).Checkpoint.Position.Offset; got != 4 {
		b.Errorf("the successor starts at %d", got)
	}
}

func hungLockHolder(b *leaseBench) {
	hung := b.leaseEnd
	hung.TTL = time.Hour // its server would wait that long for it
	_, db, err := hung.open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(b.Context(), "DO GET_LOCK(?, 0)", b.lockName()); err != nil {
		b.Fatal(err)
	}
	leader := b.stand("leader", b.leaseEnd)
	receive(b, "it leads", leader.leads, 5*time.Second)
	if b.value("SELECT locked_on FROM {schema}.lease") == "" {
		b.Error("the leader does not have the lock")
	}
	if err := conn.PingContext(b.Context()); err == nil {
		b.Error("the session that hangs lives")
	}
}

func renewalBehindOwnTransaction(b *leaseBench) {
	b.TTL = 6 * time.Second // room for a lock wait, which takes up to two
	first := b.stand("first", b.leaseEnd)
	term := receive(b, "first leads", first.leads, 5*time.Second)
	second := b.stand("second", b.leaseEnd)
	b.waitsForLock(1)
	tx, err := b.root.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tx.ExecContext(b.Context(), "SELECT term FROM "+b.Schema+".lease LOCK IN SHARE MODE"); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), b.TTL)
	defer cancel()
	if err := term.Prove(ctx); err == nil {
		b.Error("the renewal did not wait for the transaction")
	}
	if err := tx.Rollback(); err != nil {
		b.Fatal(err)
	}
	if err := term.Prove(b.Context()); err != nil {
		b.Error(err)
	}
	select {
	case <-second.leads:
		b.Error("the lock was given up")
	case <-term.Context().Done():
		b.Error(context.Cause(term.Context()))
	default:
	}
}
