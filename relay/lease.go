package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
)

// LeaseConfig is what an [Elector] works by.
type LeaseConfig struct {
	Stream string
	Holder string // unique per start of a process, see [NewHolder]
	TTL    time.Duration
	// Fast lets the leader hold a server lock besides, by whose release a
	// standby sees at once that the leader is dead.
	Fast bool
	// Observe is told what is seen, by a standby at least every ten seconds,
	// from the goroutine of Run; nil for nobody.
	Observe func(LeaseState)
	Log     *zap.Logger
}

// LeaseState is what an elector knows of its stream's lease.
type LeaseState struct {
	Leading bool
	Term    uint64        // own one when leading, else the leader's
	Leader  string        // holder's name; empty when nobody leads or it is not known
	Left    time.Duration // of the leader's lease when this was seen
	Took    time.Duration // when leading: from the moment when the lease was seen to be free
	Err     error         // why the lease cannot be read or taken; nil when it can
}

// NewHolder names this process for the lease, unlike any other start of it.
func NewHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	return fmt.Sprintf("%.200s/%d/%s", host, os.Getpid(), hex.EncodeToString(random))
}

// Elector alternates between two states, standby and leader. One goroutine,
// that of Run, owns its SQL session.
type Elector struct {
	LeaseConfig
	store   *checkpoint.Store
	session *checkpoint.LeaseSession // nil: to be opened
	locked  bool                     // session holds the lock
	refused bool                     // session was refused the lock: not asked again
	grace   time.Time                // until when a free lock proves nothing, see standBy
	seen    checkpoint.Lease         // the lease as it was when it last changed
	seenAt  time.Time                // when that was seen first
	state   LeaseState               // as told to Observe
}

// NewElector returns an elector that has done nothing yet.
func NewElector(store *checkpoint.Store, c LeaseConfig) *Elector {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &Elector{LeaseConfig: c, store: store}
}

// Run waits for the lease and then leads, and again after it was lost. lead is
// called for each leadership; its context ends with the leadership or with
// ctx, and it must return soon after, having closed whatever could still
// publish. While lead runs, also while it drains after ctx has ended, the
// lease is renewed. When lead returns by itself the lease is given up and Run
// returns its error; when ctx ends, Run returns lead's error or nil.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, term *Term) error) error {
	defer e.closeSession()
	for {
		takeover, anchor, err := e.runStandby(ctx)
		if err != nil {
			return nil // ctx ended: that is no failure of a standby
		}
		err = e.runLeader(ctx, takeover, anchor, lead)
		switch {
		case errors.Is(err, ErrYielded):
			e.Log.Info("standing back so that another may lead", zap.Duration("for", e.TTL))
			if !sleep(ctx, e.TTL) {
				return nil
			}
		case errors.Is(err, ErrLeaseLost):
		default:
			return err
		}
	}
}

// runStandby returns when the lease was taken, with the moment from which its
// ttl counts, or with an error when ctx has ended.
func (e *Elector) runStandby(ctx context.Context) (checkpoint.Takeover, time.Time, error) {
	e.seen, e.seenAt = checkpoint.Lease{}, time.Time{}
	for {
		takeover, anchor, err := e.standBy(ctx)
		if err == nil {
			return takeover, anchor, nil
		}
		if ctx.Err() != nil {
			return checkpoint.Takeover{}, time.Time{}, ctx.Err()
		}
		if !errors.Is(err, checkpoint.ErrHeld) {
			if !checkpoint.Answered(err) {
				e.closeSession()
				e.grace = time.Now().Add(e.TTL / 3)
			}
			e.observe(LeaseState{Err: err})
			if !sleep(ctx, e.poll()) {
				return checkpoint.Takeover{}, time.Time{}, ctx.Err()
			}
		}
	}
}

// standBy looks at the lease once and takes it if it is free. Else it waits a
// while, for the lock where that proves something, and returns ErrHeld.
func (e *Elector) standBy(ctx context.Context) (checkpoint.Takeover, time.Time, error) {
	lease, err := e.look(ctx)
	if err != nil {
		return checkpoint.Takeover{}, time.Time{}, err
	}
	claim := checkpoint.Claim{Stream: e.Stream, Holder: e.Holder, TTL: e.TTL, Locked: e.locked}
	if time.Since(e.seenAt) > e.TTL {
		claim.Unmoved = e.seen
	}
	if !lease.Held() || lease.Holder == e.Holder || lease.Behind || e.locked {
		takeover, anchor, err := e.take(ctx, claim)
		if !errors.Is(err, checkpoint.ErrHeld) {
			return takeover, anchor, err
		}
		if e.locked { // another leads, by expiry: the lock is that one's to have
			e.closeSession()
			return takeover, anchor, err
		}
	}
	e.observe(LeaseState{Term: lease.Term, Leader: lease.Holder, Left: lease.Left})
	// The lock counts only on the server that the leader took it on. After a
	// restart of that server all locks are free; a leader gets the time to take
	// its own again, else each restart would move the leadership.
	if !e.Fast || e.refused || time.Now().Before(e.grace) || lease.LockedOn != e.session.Server() {
		sleep(ctx, min(e.poll(), max(lease.Left, minPoll)))
		return checkpoint.Takeover{}, time.Time{}, checkpoint.ErrHeld
	}
	if err := e.lock(ctx, min(max(lease.Left, minPoll), maxLockWait)); err != nil {
		return checkpoint.Takeover{}, time.Time{}, err
	}
	return checkpoint.Takeover{}, time.Time{}, checkpoint.ErrHeld // look again, with the lock or without
}

// look reads the lease, and notes since when it has not changed.
func (e *Elector) look(ctx context.Context) (checkpoint.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, e.patience())
	defer cancel()
	if err := e.openSession(ctx); err != nil {
		return checkpoint.Lease{}, err
	}
	lease, err := e.session.Read(ctx, e.Stream)
	if err != nil {
		return lease, err
	}
	if lease.Term != e.seen.Term || lease.Renewed != e.seen.Renewed || e.seenAt.IsZero() {
		e.seen, e.seenAt = lease, time.Now()
	}
	return lease, nil
}

// take claims the lease; trust in it counts from the moment before.
func (e *Elector) take(ctx context.Context, claim checkpoint.Claim) (checkpoint.Takeover, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, e.patience())
	defer cancel()
	anchor := time.Now()
	takeover, err := e.session.Take(ctx, claim)
	return takeover, anchor, err
}

// lock waits for the server lock.
func (e *Elector) lock(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait+e.patience())
	defer cancel()
	held, err := e.session.Lock(ctx, e.Stream, wait)
	e.locked = held
	return e.refuse(err)
}

// refuse takes a refused lock for an answer: this session goes without.
func (e *Elector) refuse(err error) error {
	if !errors.Is(err, checkpoint.ErrLockRefused) {
		return err
	}
	e.refused = true
	e.Log.Warn("the server lock is refused: a takeover waits for the lease to expire", zap.Error(err))
	return nil
}

func (e *Elector) openSession(ctx context.Context) error {
	if e.session != nil {
		return nil
	}
	session, err := e.store.LeaseSession(ctx)
	e.session, e.locked, e.refused = session, false, false
	return err
}

func (e *Elector) closeSession() {
	if e.session != nil {
		e.session.Close()
	}
	e.session, e.locked = nil, false
}

// observe tells a change, and logs it.
func (e *Elector) observe(s LeaseState) {
	last := e.state
	e.state = s
	if e.Observe != nil {
		e.Observe(s)
	}
	switch {
	case s.Leading:
		e.Log.Info("leading", zap.Uint64("term", s.Term), zap.Duration("took", s.Took))
	case s.Err != nil && last.Err == nil:
		e.Log.Warn("the lease cannot be reached", zap.Error(s.Err))
	case s.Err == nil && s.Leader != "" && (s.Leader != last.Leader || s.Term != last.Term || last.Leading):
		e.Log.Info("standing by", zap.String("leader", s.Leader), zap.Uint64("term", s.Term), zap.Duration("lease_left", s.Left))
	}
}

const (
	minPoll = 20 * time.Millisecond
	// maxLockWait is how long a standby waits for the lock without a look at the lease.
	maxLockWait = 10 * time.Second
)

// poll is how often a standby looks at a lease that no lock watches over.
func (e *Elector) poll() time.Duration { return max(min(e.TTL/10, time.Second), minPoll) }

// patience bounds one exchange with the server: longer than the second that a
// statement may wait for a lock.
func (e *Elector) patience() time.Duration { return max(e.TTL/3, 3*time.Second) }

// sleep reports whether it lasted the whole time.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
