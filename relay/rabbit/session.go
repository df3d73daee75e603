package rabbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one connection of a lane, from its fence on. It ends when its
// context does, whose cause says why; then the socket is closed before anything
// is asked of the library, which could otherwise wait for ever.
type session struct {
	*connection
	ctx  context.Context
	fail context.CancelCauseFunc

	blocked  atomic.Pointer[string] // the alarm that forbids publishing, nil without one
	inFlight atomic.Bool            // something may be under way: no gentle close
	watchers sync.WaitGroup
	over     chan struct{} // closed when the socket is
}

// openSession connects and takes the fence. The session must be closed.
func openSession(ctx context.Context, b Broker, fence string, buffer int, wake func(), waiting func()) (*session, error) {
	c, err := b.connect(ctx, buffer, wake)
	if err != nil {
		return nil, err
	}
	s := &session{connection: c, over: make(chan struct{})}
	s.ctx, s.fail = context.WithCancelCause(ctx)
	context.AfterFunc(s.ctx, func() {
		defer close(s.over)
		if ctx.Err() != nil && !s.inFlight.Load() {
			s.closeGently()
		}
		s.wire.abort()
		wake()
	})
	s.watchers.Go(func() { s.watchClose(c.NotifyClose(make(chan *amqp.Error, 1))) })
	blocks := c.NotifyBlocked(make(chan amqp.Blocking, 16))
	s.watchers.Go(func() { s.watchBlocked(blocks, wake) })

	deliveries, err := takeFence(s.ctx, c, fence, waiting)
	if err != nil {
		if cause := context.Cause(s.ctx); cause != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		s.close(err)
		return nil, err
	}
	s.watchers.Go(func() { s.watchFence(deliveries) })
	return s, nil
}

// end closes the socket for the given reason, if there was none before. When it
// returns nothing more is sent.
func (s *session) end(cause error) {
	s.fail(cause)
	<-s.over
}

// close ends the session and waits for its goroutines.
func (s *session) close(cause error) {
	s.end(cause)
	s.watchers.Wait()
	<-s.wire.done
}

// watchClose turns the end of the connection into the end of the session. The
// library tells it here before it does anything that can block.
func (s *session) watchClose(closed <-chan *amqp.Error) {
	select {
	case e := <-closed:
		if e == nil {
			s.fail(errBroken)
			return
		}
		s.fail(fmt.Errorf("the connection to %s ended: %w", s.peer.Address, spoken{e}))
	case <-s.ctx.Done():
	}
}

func (s *session) watchBlocked(blocks <-chan amqp.Blocking, wake func()) {
	for {
		select {
		case b, open := <-blocks:
			if !open {
				return
			}
			if s.blocked.Store(nil); b.Active {
				s.blocked.Store(&b.Reason)
			}
			wake()
		case <-s.ctx.Done():
			return
		}
	}
}

// watchFence ends the session with its fence (P4). Whatever is published to a
// fence is thrown away.
func (s *session) watchFence(deliveries <-chan amqp.Delivery) {
	for {
		select {
		case _, open := <-deliveries:
			if !open && !s.IsClosed() { // else the end of the connection tells why
				s.fail(errFenceLost)
			}
			if !open {
				return
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// channel is a confirm channel with the listeners that the lane reads. It is used
// for publishing only: a request that meets a publish ends the connection. The
// exception is a barrier, beside which nothing is published.
type channel struct {
	*amqp.Channel
	returns <-chan amqp.Return
	closed  <-chan *amqp.Error
	barrier chan error // the running barrier's end, nil without one
}

// startBarrier asks the channel for what it already does, in a goroutine: under
// an alarm the answer waits until that is over. signal is called at the end.
func (ch *channel) startBarrier(signal func()) {
	done := make(chan error, 1)
	ch.barrier = done
	go func() {
		done <- ch.Confirm(false)
		signal()
	}()
}

// busy reports whether a barrier runs.
func (ch *channel) busy() bool { return ch.barrier != nil }

// passedBarrier reports, once, that a barrier was answered: the channel has
// survived everything published before it.
func (ch *channel) passedBarrier() bool {
	select {
	case err := <-ch.barrier:
		ch.barrier = nil
		return err == nil
	default:
		return false
	}
}

// openChannel opens a channel for at most window messages in flight. The
// returns of all of them fit its buffer: the library drops what does not, and
// a lost return makes a lost message look delivered (P2).
func (s *session) openChannel(window int) (*channel, error) {
	ch := &channel{}
	err := s.guard(func() (err error) {
		if ch.Channel, err = s.Channel(); err != nil {
			return err
		}
		ch.returns = ch.NotifyReturn(make(chan amqp.Return, window))
		ch.closed = ch.NotifyClose(make(chan *amqp.Error, 1))
		return ch.Confirm(false)
	})
	if err != nil {
		return nil, fmt.Errorf("open a confirm channel: %w", plainly(err))
	}
	return ch, nil
}

// spoken is a library error in plain words.
type spoken struct{ reason *amqp.Error }

func (e spoken) Unwrap() error { return e.reason }

func (e spoken) Error() string {
	if e.reason.Server {
		return fmt.Sprintf("%s (%d)", e.reason.Reason, e.reason.Code)
	}
	return e.reason.Reason
}

// plainly returns err without the library's wording, where it is the library's.
func plainly(err error) error {
	if e, ok := err.(*amqp.Error); ok {
		return spoken{e}
	}
	return err
}

// channelError says that the broker ended a channel and not its connection.
type channelError struct{ spoken }

// ended returns why the channel ended, nil while it is open.
func (s *session) ended(ch *channel) error {
	if !ch.IsClosed() {
		return nil
	}
	select {
	case e := <-ch.closed: // follows the mark at once
		if e != nil && e.Server && !s.IsClosed() {
			return channelError{spoken{e}}
		}
	case <-s.ctx.Done():
	}
	return s.cause()
}

// cause waits for the reason of a session whose connection is known to be gone.
func (s *session) cause() error {
	giveUp := time.AfterFunc(closeTimeout, func() { s.fail(errBroken) })
	defer giveUp.Stop()
	<-s.ctx.Done()
	return context.Cause(s.ctx)
}

// replyCode returns the code and text of the broker's own words in err, 0 without.
func replyCode(err error) (int, string) {
	var e *amqp.Error
	if errors.As(err, &e) && e.Server {
		return e.Code, e.Reason
	}
	return 0, ""
}
