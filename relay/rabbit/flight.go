package rabbit

import (
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/checkpoint/broken"
)

const (
	riskUnknown = 1   // entry.risk: it may be this message that ends sessions
	maxStrikes  = 3   // sessions that may end with one message alone in flight
	maxSilent   = 2   // sessions in a row that may end without one answer
	maxRefused  = 256 // destinations remembered as refusing

	// patience is how long an unanswered message may hold back others only because
	// of what its answer might be. A queue that confirms nothing must not stop
	// the rest of a lane (P9).
	patience = time.Second
)

var errStrayReturn = errors.New("the broker returned a message that is not in flight")

// confirmation is the part of the library's deferred confirmation that is used.
type confirmation interface {
	Done() <-chan struct{} // closed when answered, or when the channel is gone
	Acked() bool
}

// entry is one unsettled message.
type entry struct {
	token    uint64
	msg      *Message
	confirm  confirmation  // of the newest publish
	sent     time.Duration // when that was, on the lane's clock
	size     int
	returned uint16 // reply code, 0 when not returned
	risk     uint16 // not 0: the reply code that it may cause, or riskUnknown (see probation.go)
	strikes  uint8
	cleared  bool // the channel has survived it
	answered bool // scratch of sweep
}

// address is what a return is matched by.
type address struct{ id, exchange, key string }

// destination is where a refusal belongs to; key is "" for the exchange as a whole.
type destination struct{ exchange, key string }

func (m *Message) address() address         { return address{m.ID, m.Exchange, m.RoutingKey} }
func (m *Message) destination() destination { return destination{m.Exchange, m.RoutingKey} }

// flight is what a lane has to settle, in the order it was given: first what is
// in flight on the present channel, then what is not sent (yet, or any more).
// It decides what may be sent next and turns answers into outcomes. It is
// passive and belongs to the lane's goroutine.
type flight struct {
	window    int // messages in flight
	windowMax int // bytes in flight, one larger message alone excepted

	entries []entry // entries[head:sent] in flight, entries[sent:] to be sent
	head    int
	sent    int
	bytes   int // in flight
	unclear int // in flight and not cleared

	addresses map[address]struct{} // in flight; two alike could not be told apart by a return

	// probing is set while a channel is young: a destination has one message in
	// flight until its first delivery, or for as long as patience. A fresh
	// channel is told at once that a quorum queue has no leader, and the nack
	// must not punch a hole into a row of messages (P6).
	probing map[destination]probe
	answers int // on this channel
	silent  int // sessions in a row that ended without an answer

	refused map[destination]uint16 // the reply code that closed a channel last time

	out []Outcome // settled, not yet reported
}

// probe is what is known of a destination while a channel is young.
type probe struct {
	sent      time.Duration // the first message not known to be delivered
	delivered bool
}

func newFlight(window, windowMax int) *flight {
	return &flight{
		window: max(window, 1), windowMax: windowMax,
		addresses: map[address]struct{}{}, probing: map[destination]probe{}, refused: map[destination]uint16{},
	}
}

// push adds tickets at the end.
func (f *flight) push(tickets []Ticket) {
	if f.head > len(f.entries)/2 && len(f.entries)+len(tickets) > cap(f.entries) {
		n := copy(f.entries, f.entries[f.head:])
		clear(f.entries[n:])
		f.entries, f.sent, f.head = f.entries[:n], f.sent-f.head, 0
	}
	for _, t := range tickets {
		f.entries = append(f.entries, entry{token: t.Token, msg: t.Message, size: t.Message.Size()})
	}
}

func (f *flight) inFlight() int { return f.sent - f.head }

// next returns the message to send now, nil when none may be sent. Messages
// never overtake each other: what must wait holds back all behind it.
func (f *flight) next(now time.Duration) *Message {
	if f.sent == len(f.entries) {
		return nil
	}
	e := &f.entries[f.sent]
	if len(f.refused) > 0 && e.risk == 0 {
		e.risk = f.riskOf(e.msg)
	}
	n := f.inFlight()
	if n == 0 {
		return e.msg
	}
	if n >= f.window || f.bytes+e.size > f.windowMax || f.onProbation(e) {
		return nil
	}
	if f.probing != nil {
		if p, known := f.probing[e.msg.destination()]; known && !p.delivered && now-p.sent < patience {
			return nil
		}
	}
	if _, twice := f.addresses[e.msg.address()]; twice {
		return nil
	}
	return e.msg
}

// published says that the message of next was handed to the channel.
func (f *flight) published(confirm confirmation, now time.Duration) {
	e := &f.entries[f.sent]
	e.confirm, e.sent, e.returned, e.cleared = confirm, now, 0, false
	f.sent++
	f.bytes += e.size
	f.unclear++
	f.addresses[e.msg.address()] = struct{}{}
	if f.probing == nil {
		return
	}
	if _, known := f.probing[e.msg.destination()]; !known {
		f.probing[e.msg.destination()] = probe{sent: now}
	}
}

// reject settles the message of next without sending it.
func (f *flight) reject(reason string) {
	e := f.entries[f.sent]
	copy(f.entries[f.head+1:f.sent+1], f.entries[f.head:f.sent])
	f.entries[f.head] = entry{}
	f.head++
	f.sent++
	f.out = append(f.out, Outcome{Token: e.token, Result: Poison, Reason: reason})
}

// sweep settles what was answered. Returns are drained after the confirms were
// looked at and before anything settles: the broker sends a return ahead of
// its confirm, so a message without one here has none (P2).
//
// closed reports whether the channel is gone. The library then settles everything
// as nacked, and says before that it is gone: a nack on an open channel is the
// broker's, any other says nothing (P2).
func (f *flight) sweep(returns <-chan amqp.Return, closed func() bool) error {
	answered := 0
	for i := f.head; i < f.sent; i++ {
		select {
		case <-f.entries[i].confirm.Done():
			f.entries[i].answered = true
			answered++
		default:
		}
	}
	if err := f.drain(returns); err != nil {
		return err
	}
	if answered == 0 {
		return nil
	}
	gone := closed()
	for i := f.head; i < f.sent; i++ {
		e := &f.entries[i]
		switch {
		case !e.answered:
		case e.confirm.Acked() && e.returned != 0 && !broken.IgnoreReturns:
			f.settle(e, Unroutable, int(e.returned), "the broker found no queue for it")
		case e.confirm.Acked():
			f.settle(e, Delivered, 0, "")
		case !gone:
			f.settle(e, Nacked, 0, "the broker did not take it: a queue is full and rejects, or has no leader")
		default:
			e.answered = false
		}
	}
	f.compact()
	return nil
}

// drain notes the returns that have arrived. One that fits nothing means that
// the accounts are wrong: nothing of this channel may be believed.
func (f *flight) drain(returns <-chan amqp.Return) error {
	for {
		select {
		case r, open := <-returns:
			if !open {
				return nil
			}
			if !f.noteReturn(&r) {
				return errStrayReturn
			}
		default:
			return nil
		}
	}
}

func (f *flight) noteReturn(r *amqp.Return) bool {
	for i := f.head; i < f.sent; i++ {
		e := &f.entries[i]
		if e.msg.ID == r.MessageId && e.msg.RoutingKey == r.RoutingKey && e.msg.Exchange == r.Exchange {
			e.returned = r.ReplyCode
			return true
		}
	}
	return false
}

// settle reports e, which leaves the flight with the next compact.
func (f *flight) settle(e *entry, result Result, code int, reason string) {
	f.out = append(f.out, Outcome{Token: e.token, Result: result, Code: code, Reason: reason})
	e.answered = true
	f.bytes -= e.size
	if !e.cleared {
		f.unclear--
	}
	delete(f.addresses, e.msg.address())
	if result > Nacked {
		return
	}
	f.answers++
	f.silent = 0
	f.acquit(e)
	if f.probing == nil {
		return
	}
	if result == Delivered {
		f.probing[e.msg.destination()] = probe{delivered: true}
	} else {
		delete(f.probing, e.msg.destination())
	}
	if f.answers >= f.window || len(f.probing) > f.window {
		f.probing = nil
	}
}

// compact drops settled entries, moving those that stay up against the unsent
// ones: few move, as most that settle are the oldest.
func (f *flight) compact() {
	to := f.sent
	for i := f.sent - 1; i >= f.head; i-- {
		if f.entries[i].answered {
			continue
		}
		if to--; to != i {
			f.entries[to] = f.entries[i]
		}
	}
	clear(f.entries[f.head:to])
	if f.head = to; f.head == len(f.entries) {
		f.entries, f.head, f.sent = f.entries[:0], 0, 0
	}
}

// rewind makes everything in flight unsent again: its channel is gone.
func (f *flight) rewind() {
	for i := f.head; i < f.sent; i++ {
		f.entries[i].confirm = nil
	}
	f.sent, f.bytes, f.unclear, f.answers = f.head, 0, 0, 0
	clear(f.addresses)
	f.probing = map[destination]probe{}
}

// expire settles as unknown what had no answer for limit, and what plainly waits
// with it: of the same destination, or for half as long. The rest is sent again.
// The channel must be dead.
func (f *flight) expire(now, limit time.Duration) {
	late := map[destination]bool{}
	for _, e := range f.entries[f.head:f.sent] {
		if now-e.sent >= limit {
			late[e.msg.destination()] = true
		}
	}
	for i := f.head; i < f.sent; i++ {
		if e := &f.entries[i]; late[e.msg.destination()] || now-e.sent >= limit/2 {
			f.settle(e, Unknown, 0, "the broker did not confirm it in time")
		}
	}
	f.compact()
}

// overdue reports whether a message in flight had no answer for limit.
func (f *flight) overdue(now, limit time.Duration) bool {
	return f.inFlight() > 0 && now-f.entries[f.head].sent >= limit
}
