package rabbit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// reply is a confirmation that a test gives.
type reply struct {
	done chan struct{}
	ack  bool
}

func (r *reply) Done() <-chan struct{} { return r.done }
func (r *reply) Acked() bool           { return r.ack }

// model plays the broker to a flight, at random, and knows what each message's
// outcome may be: it checks that every one is true.
type model struct {
	t       *testing.T
	rand    *rand.Rand
	f       *flight
	now     time.Duration
	closed  bool
	returns chan amqp.Return

	token     uint64
	waiting   map[uint64]*Message // given to the flight and not settled
	newest    []uint64            // published on this channel, in order
	replies   map[uint64]*reply   // of this channel
	answered  map[uint64]bool     // by the broker, not by the channel's end
	returned  map[uint64]bool
	delivered map[uint64]bool // acked and not returned, on any channel
	killers   map[uint64]int  // messages that end their channel, by code
}

const modelWindow = 8

func newModel(t *testing.T, seed1, seed2 uint64) *model {
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed1, seed2)), f: newFlight(modelWindow, 4000),
		waiting: map[uint64]*Message{}, delivered: map[uint64]bool{}, killers: map[uint64]int{},
	}
	m.openChannel()
	return m
}

func (m *model) openChannel() {
	m.closed, m.returns = false, make(chan amqp.Return, modelWindow)
	m.newest, m.replies, m.answered, m.returned = nil, map[uint64]*reply{}, map[uint64]bool{}, map[uint64]bool{}
}

func (m *model) push() {
	var tickets []Ticket
	for range 1 + m.rand.IntN(4) {
		m.token++
		msg := message(m.rand.IntN(20), fmt.Sprintf("q%d", m.rand.IntN(4)))
		msg.Exchange = fmt.Sprintf("x%d", m.rand.IntN(3))
		msg.Body = make([]byte, m.rand.IntN(1500))
		switch m.rand.IntN(60) {
		case 0:
			m.killers[m.token] = 404
		case 1:
			m.killers[m.token] = 403
		case 2:
			m.killers[m.token] = 406
		case 3:
			msg.Body = make([]byte, 5000) // above the window's bytes
		}
		m.waiting[m.token] = msg
		tickets = append(tickets, Ticket{m.token, msg})
	}
	m.f.push(tickets)
}

// publish sends what the flight lets go, and checks what it lets go.
func (m *model) publish() {
	for msg := m.f.next(m.now); msg != nil; msg = m.f.next(m.now) {
		e := &m.f.entries[m.f.sent]
		if e.msg != msg {
			m.t.Fatal("next is not the first of the unsent")
		}
		if n := len(m.newest); n > 0 && e.token <= m.newest[n-1] {
			m.t.Fatalf("token %d goes after %d", e.token, m.newest[n-1])
		}
		if m.rand.IntN(50) == 0 && m.killers[e.token] == 0 {
			m.killers[e.token] = -1 // only to be allowed as poison
			m.f.reject("invalid")
			continue
		}
		bytes := 0
		for _, other := range m.f.entries[m.f.head:m.f.sent] {
			bytes += other.size
			if other.msg.address() == msg.address() {
				m.t.Fatal("two alike are in flight")
			}
			if other.risk != 0 && !other.cleared {
				m.t.Fatal("a message goes beside one on probation")
			}
			if e.risk != 0 && !other.cleared {
				m.t.Fatal("a message on probation goes beside another")
			}
		}
		if n := m.f.inFlight(); n >= modelWindow || n > 0 && bytes+e.size > 4000 {
			m.t.Fatalf("%d messages and %d bytes in flight, and %d more", n, bytes, e.size)
		}
		r := &reply{done: make(chan struct{})}
		m.newest = append(m.newest, e.token)
		m.replies[e.token] = r
		m.f.published(r, m.now)
	}
}

// killer returns the first message on the channel that ends it, 0 without one.
func (m *model) killer() uint64 {
	for _, token := range m.newest {
		if m.killers[token] > 0 && !m.answered[token] {
			return token
		}
	}
	return 0
}

// answer lets the broker deal with one message in flight.
func (m *model) answer() {
	var open []uint64
	for _, token := range m.newest {
		if token == m.killer() {
			break // nothing behind it is looked at
		}
		if !m.answered[token] {
			open = append(open, token)
		}
	}
	if len(open) == 0 || m.closed {
		return
	}
	token := open[m.rand.IntN(len(open))]
	m.answered[token] = true
	r, msg := m.replies[token], m.waiting[token]
	switch m.rand.IntN(4) {
	case 0: // nacked
	case 1:
		m.returned[token] = true
		m.returns <- amqp.Return{ReplyCode: 312, MessageId: msg.ID, Exchange: msg.Exchange, RoutingKey: msg.RoutingKey}
		fallthrough
	default:
		r.ack = true
		m.delivered[token] = m.delivered[token] || !m.returned[token]
	}
	close(r.done)
}

// end closes the channel as the library does: what has no answer reads as nacked.
func (m *model) end() {
	m.closed = true
	for token, r := range m.replies {
		if !m.answered[token] {
			close(r.done)
		}
	}
	m.sweep()
}

func (m *model) sweep() {
	if err := m.f.sweep(m.returns, func() bool { return m.closed }); err != nil {
		m.t.Fatal(err)
	}
	m.check()
}

// check compares the outcomes with what happened.
func (m *model) check() {
	for _, o := range m.f.out {
		if m.waiting[o.Token] == nil {
			m.t.Fatalf("a second outcome: %+v", o)
		}
		delete(m.waiting, o.Token)
		ack := m.answered[o.Token] && m.replies[o.Token].ack
		ok := false
		switch o.Result {
		case Delivered:
			ok = ack && !m.returned[o.Token]
		case Unroutable:
			ok = ack && m.returned[o.Token]
		case Nacked:
			ok = m.answered[o.Token] && !ack
		case Refused:
			ok = m.killers[o.Token] == o.Code && (o.Code == 404 || o.Code == 403)
		case Poison:
			ok = m.killers[o.Token] == -1 || m.killers[o.Token] == 406 && o.Code == 406
		case Unknown:
			ok = !ack // a nack that the end of the channel overtook is one of many reasons
		}
		if !ok {
			m.t.Fatalf("%+v is not what happened", o)
		}
	}
	m.f.out = m.f.out[:0]
	inFlight := m.f.entries[m.f.head:m.f.sent]
	bytes, unclear := 0, 0
	for _, e := range inFlight {
		bytes += e.size
		if !e.cleared {
			unclear++
		}
	}
	if bytes != m.f.bytes || unclear != m.f.unclear || len(m.f.addresses) != len(inFlight) {
		m.t.Fatalf("the accounts are wrong: %d bytes for %d, %d unclear for %d, %d addresses for %d",
			m.f.bytes, bytes, m.f.unclear, unclear, len(m.f.addresses), len(inFlight))
	}
	if left := len(m.f.entries) - m.f.head; left != len(m.waiting) {
		m.t.Fatalf("the flight has %d messages, %d wait", left, len(m.waiting))
	}
}

func (m *model) step() {
	m.now += time.Duration(m.rand.IntN(200)) * time.Millisecond
	switch m.rand.IntN(12) {
	case 0, 1:
		m.push()
	case 2, 3, 4, 5:
		m.answer()
	case 6, 7:
		m.sweep()
	case 8:
		if m.f.wantsBarrier(m.now) && m.killer() == 0 {
			m.f.survived()
		}
	case 9:
		if token := m.killer(); token != 0 {
			m.end()
			if !m.f.convict(m.killers[token], "the broker's text") {
				m.t.Fatal("a channel ended by a message was not taken as that")
			}
			m.reopen()
		}
	case 10:
		if m.rand.IntN(8) == 0 { // the connection is lost
			m.end()
			m.f.died(0, "connection reset")
			m.reopen()
		}
	case 11:
		if m.f.overdue(m.now, 5*time.Second) {
			m.end()
			m.f.expire(m.now, 5*time.Second)
			m.reopen()
		}
	}
	m.publish()
}

func (m *model) reopen() {
	m.check()
	m.f.rewind()
	m.openChannel()
	m.check()
}

func playModel(t *testing.T, seed1, seed2 uint64, steps int) {
	m := newModel(t, seed1, seed2)
	for range steps {
		m.step()
	}
	m.drain()
}

// drain gives no new messages and answers until all is settled.
func (m *model) drain() {
	for n := 0; len(m.waiting) > 0; n++ {
		if n == 20000 {
			m.t.Fatalf("messages never settle: %v", slices.Collect(maps.Keys(m.waiting)))
		}
		m.now += 100 * time.Millisecond
		m.publish()
		m.answer()
		m.sweep()
		if token := m.killer(); token != 0 && n%3 == 0 {
			m.end()
			m.f.convict(m.killers[token], "the broker's text")
			m.reopen()
		} else if m.f.wantsBarrier(m.now) && token == 0 {
			m.f.survived()
		}
	}
}

func TestAnExpiryTakesWhatPlainlyWaitsWithTheOverdueAndLeavesTheRest(t *testing.T) {
	f := newFlight(10, 1<<20)
	const limit = 10 * time.Second
	var tickets []Ticket
	for i, queue := range []string{"stuck", "slow", "fresh", "stuck", "unsent"} {
		tickets = append(tickets, Ticket{uint64(i), message(i, queue)})
	}
	f.push(tickets)
	for _, at := range []time.Duration{0, 4 * time.Second, 6 * time.Second, 9 * time.Second} {
		if f.next(at) == nil {
			t.Fatal("nothing may be sent")
		}
		f.published(&reply{done: make(chan struct{})}, at)
	}
	if f.overdue(limit-1, limit) || !f.overdue(limit, limit) {
		t.Error("overdue is not when the limit has passed")
	}
	f.expire(limit, limit)
	f.rewind()
	got := map[uint64]Result{}
	for _, o := range f.out {
		got[o.Token] = o.Result
	}
	// 0 is overdue, 1 waits for more than half as long, 3 is where 0 is.
	if want := map[uint64]Result{0: Unknown, 1: Unknown, 3: Unknown}; !maps.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	for _, token := range []uint64{2, 4} {
		if f.next(limit) == nil || f.entries[f.sent].token != token {
			t.Fatalf("message %d is not sent next", token)
		}
		f.published(&reply{done: make(chan struct{})}, limit)
	}
}

func TestEveryMessageHasOneTrueOutcomeWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		playModel(t, seed, 1, 500)
	}
}

func FuzzEveryMessageHasOneTrueOutcome(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { playModel(t, a, b, 300) })
}
