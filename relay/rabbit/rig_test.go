package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap/zaptest"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

var kinds = []lab.Kind{lab.Rabbit310, lab.Rabbit43}

// shared returns this package's shared broker of a version.
func shared(t testing.TB, kind lab.Kind) *lab.RabbitServer {
	return labtest.Rabbit(t, lab.RabbitOptions{
		Kind: kind, TLS: true,
		Plugins: []string{"rabbitmq_auth_mechanism_ssl"},
		Config:  []string{"ssl_cert_login_from = common_name", "auth_mechanisms.1 = PLAIN", "auth_mechanisms.2 = EXTERNAL"},
	})
}

// onEach runs a test on the shared broker of each version.
func onEach(t *testing.T, test func(*testing.T, *lab.RabbitServer, lab.Vhost)) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			mq := shared(t, kind)
			test(t, mq, labtest.Vhost(t, mq))
		})
	}
}

const giveUpAfter = 30 * time.Second

// rig is a running lane with a ledger: every ticket sent, every outcome, every
// state. A second outcome for a ticket fails the test on the spot.
type rig struct {
	t    testing.TB
	lane *Lane
	stop func()

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	sent    map[uint64]*Message
	settled map[uint64]Outcome
	states  []State
}

func options(urls ...string) Options {
	return Options{
		Broker:         Broker{URLs: urls, Name: "towpath/test/lane.0", Heartbeat: 10 * time.Second},
		Fence:          "towpath.test.lane.0",
		InFlight:       256,
		InFlightBytes:  16 << 20,
		MaxMessageSize: 16 << 20,
		ConfirmTimeout: time.Minute,
	}
}

// start runs a lane until the test ends. also are told of outcomes after the ledger.
func start(t testing.TB, opt Options, also ...func([]Outcome)) *rig {
	t.Helper()
	r := &rig{t: t, changed: make(chan struct{}), sent: map[uint64]*Message{}, settled: map[uint64]Outcome{}}
	opt.State = func(s State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states = append(r.states, s)
		r.notify()
	}
	if opt.Logger == nil {
		opt.Logger = zaptest.NewLogger(t)
	}
	r.lane = NewLane(opt, func(outcomes []Outcome) {
		r.settle(outcomes)
		for _, f := range also {
			f(outcomes)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.lane.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(giveUpAfter):
			t.Error("Run did not return")
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *rig) settle(outcomes []Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range outcomes {
		if _, known := r.sent[o.Token]; !known {
			r.t.Errorf("an outcome for token %d, which was never sent", o.Token)
		}
		if before, twice := r.settled[o.Token]; twice {
			r.t.Errorf("token %d settled twice: %+v, then %+v", o.Token, before, o)
		}
		r.settled[o.Token] = o
	}
	r.notify()
}

// send hands messages to the lane and returns their tokens.
func (r *rig) send(messages ...*Message) []uint64 {
	r.mu.Lock()
	var tickets []Ticket
	var tokens []uint64
	for _, m := range messages {
		token := uint64(len(r.sent) + 1)
		r.sent[token] = m
		tickets = append(tickets, Ticket{token, m})
		tokens = append(tokens, token)
	}
	r.mu.Unlock()
	r.lane.Send(tickets)
	return tokens
}

// until waits for a condition on the ledger.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.After(giveUpAfter)
	for {
		r.mu.Lock()
		ok, changed := condition(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("gave up waiting until %s: %d of %d settled, states %v", what, len(r.settled), len(r.sent), r.states)
		}
	}
}

// all waits until everything sent is settled.
func (r *rig) all() {
	r.t.Helper()
	r.until("all is settled", func() bool { return len(r.settled) == len(r.sent) })
}

func (r *rig) phase(p Phase) State {
	r.t.Helper()
	var s State
	r.until("the lane is "+p.String(), func() bool {
		if len(r.states) == 0 {
			return false
		}
		s = r.states[len(r.states)-1]
		return s.Phase == p
	})
	return s
}

// entered counts how often the lane entered a phase.
func (r *rig) entered(p Phase) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.states {
		if s.Phase == p {
			n++
		}
	}
	return n
}

func (r *rig) outcome(token uint64) Outcome {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.settled[token]
	if !ok {
		r.t.Fatalf("token %d is not settled", token)
	}
	return o
}

// counts returns how many messages ended in each result.
func (r *rig) counts() map[Result]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[Result]int{}
	for _, o := range r.settled {
		n[o.Result]++
	}
	return n
}

// message n for a queue, by the default exchange.
func message(n int, queue string) *Message {
	return &Message{ID: strconv.Itoa(n), RoutingKey: queue, Persistent: true, Mandatory: true, Body: []byte("body of " + strconv.Itoa(n))}
}

func messages(from, to int, queue string) (ms []*Message) {
	for n := from; n < to; n++ {
		ms = append(ms, message(n, queue))
	}
	return ms
}

// admin is a plain connection for the test's own side of things.
func admin(t testing.TB, v lab.Vhost) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial(v.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declare(t testing.TB, ch *amqp.Channel, queue, kind string, args amqp.Table) {
	t.Helper()
	if args == nil {
		args = amqp.Table{}
	}
	args["x-queue-type"] = kind
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// consumed takes everything out of a queue, in order: at least want different
// ids, and what else is there by then.
func consumed(t testing.TB, ch *amqp.Channel, queue string, want int) (ids []string) {
	t.Helper()
	seen := map[string]bool{}
	deliveries, err := ch.Consume(queue, "drain-"+queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(giveUpAfter)
	for len(seen) < want {
		select {
		case d := <-deliveries:
			seen[d.MessageId] = true
			ids = append(ids, d.MessageId)
		case <-deadline:
			t.Fatalf("queue %s gave only %d of %d different messages", queue, len(seen), want)
		}
	}
	if err := ch.Cancel("drain-"+queue, false); err != nil {
		t.Fatal(err)
	}
	for d := range deliveries {
		ids = append(ids, d.MessageId)
	}
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return ids
		}
		ids = append(ids, d.MessageId)
	}
}

// inOrder fails unless the first occurrences of ids are from..to-1, in order.
func inOrder(t testing.TB, ids []string, from, to int) (duplicates int) {
	t.Helper()
	next := from
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case n == next:
			next++
		case n > next:
			t.Fatalf("message %d came before %d", n, next)
		default:
			duplicates++
		}
	}
	if next != to {
		t.Fatalf("messages %d to %d are missing", next, to-1)
	}
	return duplicates
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}
