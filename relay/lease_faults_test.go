package relay

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

func stoppedLeader(b *leaseBench) { b.stopAndFollow("") }

func stoppedInTransaction(b *leaseBench) { b.stopAndFollow("transaction") }

// stopAndFollow stops a leader for so long that a standby takes over, and lets
// it go on with its write.
func (b *leaseBench) stopAndFollow(where string) {
	end := b.lasting(brief)
	end.Freeze = where
	leader := b.child(end)
	leader.says(b, "leading")
	leader.signal(b, syscall.SIGSTOP)
	standby := b.stand("standby", b.leaseEnd)
	// Its lease expires, and its sessions are ended by wait_timeout at about the
	// same time, so it cannot hold the takeover up for longer.
	term := receive(b, "the standby leads", standby.leads, soon)
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
	end.TTL = brief
	leader := b.stand("leader", end)
	old := receive(b, "it leads", leader.leads, soon)
	standby := b.stand("standby", b.leaseEnd)
	b.standsBy(standby, "leader")
	proxy.Set(lab.BlackHole)
	cause := receive(b, "the cut leader ends", leader.ends, soon)
	if !errors.Is(cause, ErrLeaseLost) || errors.Is(cause, checkpoint.ErrFenced) {
		b.Errorf("the cause was %v", cause)
	}
	term := receive(b, "the standby leads", standby.leads, soon)
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
	old := receive(b, "first leads", first.leads, soon)
	b.exec("UPDATE {schema}.lease SET locked_on='another server'")
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	select {
	case <-second.leads:
		b.Error("it took a lease by a lock that proves nothing")
	case <-time.After(2 * time.Second): // it looks every second
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
	first := b.stand("first", b.lasting(2*brief))
	receive(b, "first leads", first.leads, soon).Yield()
	yielded := time.Now()
	if cause := receive(b, "first ends", first.ends, soon); !errors.Is(cause, ErrYielded) {
		b.Errorf("the cause was %v", cause)
	}
	term := receive(b, "nobody else wants it, so it leads again", first.leads, soon)
	if stood := time.Since(yielded); stood < 2*brief {
		b.Errorf("it stood back for %s only", stood)
	}
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	term.Yield()
	receive(b, "another leads at once", second.leads, soon)
}

func clockBack(b *leaseBench) {
	leader := b.child(b.lasting(brief))
	leader.says(b, "leading")
	standby := b.stand("standby", b.lasting(brief))
	receiveState(b, standby, "stands by", func(s LeaseState) bool { return s.Leader != "" })
	leader.signal(b, syscall.SIGKILL)
	// To the database's clock, an hour before the last renewal.
	b.exec("UPDATE {schema}.lease SET renewed_at=renewed_at + INTERVAL 1 HOUR, expires_at=expires_at + INTERVAL 1 HOUR")
	receive(b, "the standby leads", standby.leads, soon)
}

func clockForward(b *leaseBench) {
	first := b.stand("first", b.lasting(2*brief))
	old := receive(b, "first leads", first.leads, soon)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	var term *Term
	deadline := time.After(soon)
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
	if cause := receive(b, "first ends", first.ends, soon); !errors.Is(cause, ErrLeaseLost) {
		b.Errorf("the cause was %v", cause)
	}
	if err := old.Prove(b.Context()); !errors.Is(err, ErrLeaseLost) {
		b.Errorf("the old leader proves: %v", err)
	}
}

func successorLearns(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	term := receive(b, "first leads", first.leads, soon)
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
	first := b.stand("first", b.lasting(2*brief))
	first.drain = make(chan struct{})
	term := receive(b, "first leads", first.leads, soon)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
	first.stop()
	select {
	case <-second.leads:
		b.Error("another leads while the old leader drains")
	case <-time.After(3 * brief):
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
	receive(b, "it leads", leader.leads, soon)
	if b.value("SELECT locked_on FROM {schema}.lease") == "" {
		b.Error("the leader does not have the lock")
	}
	if err := conn.PingContext(b.Context()); err == nil {
		b.Error("the session that hangs lives")
	}
}

func renewalBehindOwnTransaction(b *leaseBench) {
	first := b.stand("first", b.leaseEnd)
	term := receive(b, "first leads", first.leads, soon)
	second := b.stand("second", b.leaseEnd)
	b.standsBy(second, "first")
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
