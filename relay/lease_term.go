package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
)

var (
	// ErrLeaseLost ends a leadership: another leader has begun, or the lease
	// could not be renewed in time.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrYielded ends a leadership that was given up for somebody else's benefit.
	ErrYielded = errors.New("the lease was given up")
)

// Term is one leadership. Its methods are safe for use by several goroutines.
type Term struct {
	checkpoint.Takeover

	ctx    context.Context // ends with the leadership, and only with it
	cancel context.CancelCauseFunc
	asks   chan ask
	broker func(context.Context, checkpoint.Broker) error
}

// ask is a wish to the goroutine that owns the lease's session.
type ask struct {
	do     func(ctx context.Context) error // nil: renew
	answer chan error
}

// Context ends when the leadership does, with the cause, but not with the
// context that lead was given: what drains after a stop works under it.
func (t *Term) Context() context.Context { return t.ctx }

// Prove renews the lease now. Its renewal starts after the call: what was true
// before the call, such as that all fences are held, was so while this
// leadership lasted (promise P4).
func (t *Term) Prove(ctx context.Context) error { return t.ask(ctx, nil) }

// Record writes into the lease where this leader holds its fences, for its
// successor. It is called when the fences of the old leader are held too, and
// before the first publish: until then the successor must know the old ones.
func (t *Term) Record(ctx context.Context, b checkpoint.Broker) error {
	return t.ask(ctx, func(ctx context.Context) error { return t.broker(ctx, b) })
}

// Yield gives the leadership up, and keeps this process from the next one for
// a ttl. The lead's context ends.
func (t *Term) Yield() { t.cancel(ErrYielded) }

func (t *Term) ask(ctx context.Context, do func(context.Context) error) error {
	a := ask{do: do, answer: make(chan error, 1)}
	select {
	case t.asks <- a:
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-a.answer:
		return err
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pulse keeps one leadership alive: it renews the lease every third of its ttl
// and ends the term when the trust in it does. Trust lasts for ttl from the
// start of the last renewal that succeeded, by the monotonic clock: the
// database counts from when it did the renewal, which is later, so trust ends
// before the lease does, however slow the answer was.
type pulse struct {
	ttl   time.Duration
	renew func(ctx context.Context) error // one attempt
	ping  func(ctx context.Context) error // cheap, several between two renewals
	term  *Term
	log   *zap.Logger

	renewed time.Time   // start of the last renewal that succeeded
	trust   *time.Timer // ends the term
	failing bool        // the last attempt failed
}

// run keeps the term until done, and returns what came from it. base is never
// cancelled.
func (p *pulse) run(base context.Context, done <-chan error) error {
	p.trust = time.AfterFunc(time.Until(p.renewed.Add(p.ttl)), p.lose)
	defer p.trust.Stop()
	beat := time.NewTicker(min(p.ttl/10, time.Second))
	defer beat.Stop()
	for {
		select {
		case err := <-done:
			return err
		case a := <-p.term.asks:
			a.answer <- p.serve(base, a)
		case <-beat.C:
			p.beat(base)
		}
	}
}

// beat renews when that is due, or when the session has gone: then it may have
// gone because somebody else leads.
func (p *pulse) beat(base context.Context) {
	if p.term.ctx.Err() != nil {
		return
	}
	if time.Since(p.renewed) < p.ttl/3 && !p.failing {
		ctx, cancel := p.patience(base)
		err := p.ping(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	_ = p.attempt(base)
}

func (p *pulse) serve(base context.Context, a ask) error {
	if p.term.ctx.Err() != nil {
		return context.Cause(p.term.ctx)
	}
	if a.do == nil {
		return p.attempt(base)
	}
	ctx, cancel := p.patience(base)
	defer cancel()
	return p.judge(a.do(ctx))
}

// lockWait is longer than a statement waits for a row's lock, which is a second
// and the server's own delay in noticing: an attempt that is given up before the
// server answers costs the session, and with it the lock.
const lockWait = 2500 * time.Millisecond

// patience bounds one exchange, which is of no use once trust has ended.
func (p *pulse) patience(base context.Context) (context.Context, context.CancelFunc) {
	left := time.Until(p.renewed.Add(p.ttl))
	return context.WithTimeout(base, min(max(p.ttl/3, lockWait), left))
}

// attempt renews once.
func (p *pulse) attempt(base context.Context) error {
	ctx, cancel := p.patience(base)
	defer cancel()
	start := time.Now()
	err := p.judge(p.renew(ctx))
	if err != nil {
		if !p.failing {
			p.log.Warn("the lease could not be renewed", zap.Error(err), zap.Duration("trusted_for", time.Until(p.renewed.Add(p.ttl))))
		}
		p.failing = true
		return err
	}
	left := time.Until(start.Add(p.ttl))
	if !p.trust.Stop() || left <= 0 { // trust ended while the answer was under way, and does not come back
		p.lose()
		return context.Cause(p.term.ctx)
	}
	if p.failing {
		p.log.Info("the lease is renewed again")
	}
	p.failing, p.renewed = false, start
	p.trust.Reset(left)
	return nil
}

// lose ends the term for want of a renewal.
func (p *pulse) lose() {
	p.term.cancel(fmt.Errorf("%w: it could not be renewed within its ttl of %s", ErrLeaseLost, p.ttl))
}

// judge ends the term when the database says that it is over.
func (p *pulse) judge(err error) error {
	if errors.Is(err, checkpoint.ErrFenced) {
		err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
		p.term.cancel(err)
	}
	return err
}

// runLeader leads until lead returns. The error is lead's; or ErrLeaseLost, or
// ErrYielded.
func (e *Elector) runLeader(ctx context.Context, takeover checkpoint.Takeover, anchor time.Time, lead func(context.Context, *Term) error) error {
	base := context.WithoutCancel(ctx) // the lease is kept while lead drains
	termCtx, cancel := context.WithCancelCause(base)
	defer cancel(context.Canceled)
	term := &Term{Takeover: takeover, ctx: termCtx, cancel: cancel, asks: make(chan ask)}
	term.broker = func(ctx context.Context, b checkpoint.Broker) error {
		return e.exchange(ctx, func(s *checkpoint.LeaseSession) error { return s.RecordBroker(ctx, takeover.Fence, b) })
	}
	p := &pulse{
		ttl: e.TTL, renewed: anchor, term: term, log: e.Log,
		renew: func(ctx context.Context) error { return e.renew(ctx, takeover.Fence) },
		ping: func(ctx context.Context) error {
			return e.exchange(ctx, func(s *checkpoint.LeaseSession) error { return s.Ping(ctx) })
		},
	}
	if e.Fast && !e.locked {
		lockCtx, cancelLock := p.patience(base)
		_ = e.exchange(lockCtx, func(*checkpoint.LeaseSession) error { return e.holdLock(lockCtx, takeover.Fence) }) // the next renewal tries again
		cancelLock()
	}
	e.observe(LeaseState{Leading: true, Term: takeover.Fence.Term, Leader: e.Holder, Left: e.TTL, Took: time.Since(anchor)})

	leadCtx, stop := context.WithCancelCause(termCtx)
	defer stop(context.Canceled)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	done := make(chan error, 1)
	go func() { done <- lead(leadCtx, term) }()
	err := p.run(base, done)
	return e.leave(base, term, err)
}

// leave ends a leadership after lead has returned.
func (e *Elector) leave(base context.Context, term *Term, err error) error {
	if errors.Is(err, checkpoint.ErrFenced) { // the writer found out first
		term.cancel(fmt.Errorf("%w: %w", ErrLeaseLost, err))
	}
	cause := context.Cause(term.ctx)
	if !errors.Is(cause, checkpoint.ErrFenced) {
		ctx, cancel := context.WithTimeout(base, max(e.TTL/3, time.Second))
		defer cancel()
		resigned := e.exchange(ctx, func(s *checkpoint.LeaseSession) error { return s.Resign(ctx, term.Fence) })
		e.Log.Info("no longer leading", zap.Uint64("term", term.Fence.Term), zap.NamedError("cause", cause), zap.NamedError("resign", resigned))
	} else {
		e.Log.Warn("no longer leading", zap.Uint64("term", term.Fence.Term), zap.NamedError("cause", cause))
	}
	e.closeSession() // the lock goes after the lease: who gets it finds the lease free
	e.observe(LeaseState{Term: term.Fence.Term})
	if cause != nil {
		return cause
	}
	return err
}

// renew is one renewal, and what a new session needs besides.
func (e *Elector) renew(ctx context.Context, f checkpoint.Fence) error {
	return e.exchange(ctx, func(s *checkpoint.LeaseSession) error {
		if err := s.Renew(ctx, f, e.TTL); err != nil || !e.Fast || e.locked || e.refused {
			return err
		}
		_ = e.holdLock(ctx, f)
		return nil
	})
}

// holdLock takes the lock for a leader without one. The lease stops naming a
// lock first: the session that had it is gone, or hangs and is ended here.
func (e *Elector) holdLock(ctx context.Context, f checkpoint.Fence) error {
	if err := e.session.RecordLock(ctx, f, false); err != nil {
		return err
	}
	if err := e.session.EndLockHolder(ctx, e.Stream); err != nil {
		return e.refuse(err)
	}
	if err := e.lock(ctx, time.Second); err != nil || !e.locked {
		return err
	}
	err := e.session.RecordLock(ctx, f, true)
	if err != nil { // a lock that is not recorded serves nobody: the next session tries again
		e.closeSession()
	}
	return err
}

// exchange runs one exchange with the server on the lease's session, and
// closes a session that has failed. One that the server answered is kept, with
// the lock: a renewal can wait too long for a transaction of the leader's own.
func (e *Elector) exchange(ctx context.Context, do func(*checkpoint.LeaseSession) error) error {
	if err := e.openSession(ctx); err != nil {
		return err
	}
	err := do(e.session)
	if err != nil && !errors.Is(err, checkpoint.ErrFenced) && !checkpoint.Answered(err) {
		e.closeSession()
	}
	return err
}
