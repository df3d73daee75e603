package rabbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"
)

const (
	retryCeiling = 5 * time.Second
	// steadyAfter is how long a session without any outcome must have lived for the
	// next to be opened without a long pause.
	steadyAfter = 10 * time.Second
)

var errUnconfirmed = errors.New("the broker left a message unconfirmed for too long")

// Options are a lane's settings. All must be set except where it says so.
type Options struct {
	Broker
	// Fence is the name of the lane's exclusive queue.
	Fence string
	// InFlight and InFlightBytes bound what is published and not answered, in
	// messages and in bytes as [Message.Size] counts them. A larger message goes alone.
	InFlight      int
	InFlightBytes int64
	// MaxMessageSize bounds a body, in bytes.
	MaxMessageSize int64
	// ConfirmTimeout is how long a message may stay unanswered, time under an
	// alarm not counted.
	ConfirmTimeout time.Duration
	// Ready is called in each session when the fence is held, before the first
	// publish. Publishing begins when it returns nil; an error ends the session,
	// and another is tried. Its context ends with the session. Nil: always ready.
	Ready func(context.Context) error
	// State is called with each change of the lane's state, from the goroutine of
	// Run. Nil: not called.
	State func(State)
	// Logger may be nil.
	Logger *zap.Logger
}

// Lane is one broker connection with one confirm channel. It publishes what it
// is sent in that order, and reports one outcome for each message.
type Lane struct {
	opt      Options
	outcomes func([]Outcome)
	log      *zap.Logger
	wake     chan struct{} // something happened: tickets, answers, an alarm, an end

	mu     sync.Mutex
	intake []Ticket

	// What follows belongs to the goroutine of Run.
	flight   *flight
	spare    []Ticket // for reuse as intake
	clock    clock
	state    State
	failures int  // sessions that ended since the lane was last up
	progress bool // something settled in this session
}

// NewLane returns a lane, which works while Run runs. outcomes is called from
// that goroutine with all that settled at one wake-up, and must not keep the
// slice.
func NewLane(opt Options, outcomes func([]Outcome)) *Lane {
	if opt.Ready == nil {
		opt.Ready = func(context.Context) error { return nil }
	}
	if opt.State == nil {
		opt.State = func(State) {}
	}
	if opt.Logger == nil {
		opt.Logger = zap.NewNop()
	}
	return &Lane{
		opt: opt, outcomes: outcomes, log: opt.Logger,
		wake:   make(chan struct{}, 1),
		flight: newFlight(opt.InFlight, int(opt.InFlightBytes)),
		state:  State{Phase: Down},
	}
}

// Send hands messages over, whatever the state of the broker. It never blocks:
// the caller keeps what has no outcome yet within InFlight and InFlightBytes,
// and leaves messages unchanged until their outcome. After Run has returned
// nothing more settles.
func (l *Lane) Send(tickets []Ticket) {
	l.mu.Lock()
	l.intake = append(l.intake, tickets...)
	l.mu.Unlock()
	l.signal()
}

func (l *Lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx is done, whose cause it returns. Nothing else ends
// it: without a broker it waits and connects again (P8). When ctx ends the
// connection is closed at once.
func (l *Lane) Run(ctx context.Context) error {
	for n := 0; ; n++ {
		opened := time.Now()
		err := l.runSession(ctx)
		if ctx.Err() != nil {
			l.opt.State(State{Phase: Down, Reason: "stopped"})
			return context.Cause(ctx)
		}
		l.enter(State{Phase: Down, Reason: err.Error(), Peer: l.state.Peer})
		if l.progress || time.Since(opened) > steadyAfter {
			n = 0
		}
		_ = pause(ctx, backoff(n, retryCeiling))
	}
}

// runSession opens a session and publishes until it ends. Never nil.
func (l *Lane) runSession(ctx context.Context) error {
	l.progress = false
	l.enter(State{Phase: Connecting})
	s, err := openSession(ctx, l.opt.Broker, l.opt.Fence, l.bufferSize(), l.signal, func() {
		l.enter(State{Phase: Connecting, Reason: "another connection holds the fence " + l.opt.Fence})
	})
	if err != nil {
		return err
	}
	defer func() { s.close(err) }()
	l.enter(State{Phase: Fenced, Peer: s.peer})
	if err = l.opt.Ready(s.ctx); err != nil { // P4: fence first, then the lease
		return fmt.Errorf("make sure of the lease: %w", err)
	}
	l.clock.resume()
	l.enter(State{Phase: Up, Peer: s.peer})
	for err == nil {
		err = l.runChannel(s)
	}
	return err
}

// bufferSize returns what the wire must take without blocking: all that may be
// in flight, and the library's own frames.
func (l *Lane) bufferSize() int {
	return int(max(l.opt.InFlightBytes, l.opt.MaxMessageSize+frameMax)) + controlBytes
}

// runChannel publishes on one channel until it ends. It returns nil when a
// message ended the channel and the session goes on with another.
func (l *Lane) runChannel(s *session) error {
	ch, err := s.openChannel(l.flight.window)
	if err != nil {
		return err
	}
	err = l.publishAndSettle(s, ch)
	var exception channelError
	goesOn := errors.As(err, &exception) && l.flight.inFlight() > 0
	if !goesOn {
		s.end(err)
	}
	if !errors.Is(err, errStrayReturn) {
		// What was confirmed before the end need not be sent again. A stray return
		// found only now leaves its session no worse: it is over.
		_ = l.flight.sweep(ch.returns, ch.IsClosed)
	}
	code, reason := replyCode(err)
	switch {
	case errors.Is(err, errUnconfirmed):
		l.flight.expire(l.clock.now(), l.opt.ConfirmTimeout)
	case l.flight.convict(code, reason):
	case s.blocked.Load() == nil:
		l.flight.died(code, err.Error())
	}
	l.flight.rewind()
	l.report()
	if goesOn {
		l.log.Warn("the broker closed the channel", zap.String("lane", l.opt.Name), zap.Int("code", code), zap.String("reason", reason))
		return nil
	}
	return err
}

// publishAndSettle is the lane's steady state. It returns why the channel, or
// the session, is over.
func (l *Lane) publishAndSettle(s *session, ch *channel) error {
	tick := time.NewTicker(max(min(patience/4, l.opt.ConfirmTimeout/4), time.Millisecond))
	defer tick.Stop()
	for {
		l.accept()
		alarm := s.blocked.Load()
		l.observe(s, alarm)
		if alarm == nil && !ch.busy() {
			if err := l.publish(s, ch); err != nil {
				return err
			}
			if l.flight.wantsBarrier(l.clock.now()) {
				ch.startBarrier(l.signal)
			}
		}
		l.report()
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-l.wake:
		case <-tick.C:
		}
		if err := l.flight.sweep(ch.returns, ch.IsClosed); err != nil {
			return err
		}
		s.inFlight.Store(l.flight.inFlight() > 0)
		if err := s.ended(ch); err != nil {
			return err
		}
		if ch.passedBarrier() {
			l.flight.survived()
		}
		if l.flight.overdue(l.clock.now(), l.opt.ConfirmTimeout) {
			return errUnconfirmed
		}
	}
}

// publish sends what may be sent.
func (l *Lane) publish(s *session, ch *channel) error {
	now := l.clock.now()
	m := l.flight.next(now)
	if m == nil {
		return nil
	}
	s.inFlight.Store(true)
	s.wire.hold()
	defer s.wire.release()
	for ; m != nil; m = l.flight.next(now) {
		if reason := m.validate(int64(s.Config.FrameSize), l.opt.MaxMessageSize); reason != "" {
			l.flight.reject(reason)
			continue
		}
		confirm, err := ch.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, m.Mandatory, false, m.publishing())
		switch {
		case err == nil:
			l.flight.published(confirm, now)
		case ch.IsClosed():
			return s.ended(ch)
		case errors.Is(err, errBroken), errors.Is(err, amqp.ErrClosed):
			return s.cause()
		default:
			// The library could not encode it; half of it may be on the wire.
			l.flight.reject(err.Error())
			return fmt.Errorf("publish a message: %w", err)
		}
	}
	return nil
}

// accept takes in what was sent to the lane.
func (l *Lane) accept() {
	l.mu.Lock()
	tickets := l.intake
	l.intake = l.spare[:0]
	l.mu.Unlock()
	l.flight.push(tickets)
	clear(tickets)
	l.spare = tickets
}

// report hands over what settled.
func (l *Lane) report() {
	if len(l.flight.out) == 0 {
		return
	}
	l.progress = true
	l.outcomes(l.flight.out)
	clear(l.flight.out)
	l.flight.out = l.flight.out[:0]
}

// observe follows the broker's alarms.
func (l *Lane) observe(s *session, alarm *string) {
	switch {
	case alarm != nil:
		l.clock.pause()
		l.enter(State{Phase: Blocked, Reason: *alarm, Peer: s.peer})
	case l.state.Phase == Blocked:
		l.clock.resume()
		l.enter(State{Phase: Up, Peer: s.peer})
	}
}

// enter changes the state, and tells and logs it if it is another. Of an outage
// ever fewer attempts are logged.
func (l *Lane) enter(s State) {
	if s == l.state {
		return
	}
	l.state = s
	l.opt.State(s)
	fields := []zap.Field{zap.String("lane", l.opt.Name), zap.String("reason", s.Reason)}
	switch {
	case s.Phase == Down:
		if l.failures++; l.failures&(l.failures-1) == 0 {
			l.log.Warn("lane down", append(fields, zap.Int("attempt", l.failures))...)
		}
	case s.Phase == Up:
		l.log.Info("lane up", zap.String("lane", l.opt.Name), zap.String("address", s.Peer.Address), zap.Int("failures_before", l.failures))
		l.failures = 0
	case s.Reason != "":
		l.log.Warn("lane "+s.Phase.String(), fields...)
	}
}

// clock tells the time that passed outside alarms and between sessions.
type clock struct {
	total   time.Duration
	running time.Time // zero while it stands
}

func (c *clock) now() time.Duration {
	if c.running.IsZero() {
		return c.total
	}
	return c.total + time.Since(c.running)
}

func (c *clock) pause() {
	c.total = c.now()
	c.running = time.Time{}
}

func (c *clock) resume() {
	c.total = c.now()
	c.running = time.Now()
}
