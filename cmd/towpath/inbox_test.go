package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
)

// inbox records every message that arrives, in order.
type inbox struct {
	t *testing.T

	mu      sync.Mutex
	arrived []string // message ids, duplicates included
	bodies  map[string]string
	changed chan struct{}
}

// consume declares a queue and records what arrives in it until the test ends;
// it connects again after the broker was away.
func consume(t *testing.T, v lab.Vhost, queue string) *inbox {
	t.Helper()
	in := &inbox{t: t, bodies: map[string]string{}, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	ready := make(chan struct{})
	wg.Go(func() {
		for ctx.Err() == nil {
			in.session(ctx, v, queue, ready)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatal("the consumer could not connect")
	}
	return in
}

func (in *inbox) session(ctx context.Context, v lab.Vhost, queue string, ready chan struct{}) {
	c, err := amqp.DialConfig(v.URL(), amqp.Config{Heartbeat: 2 * time.Second})
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.CloseDeadline(time.Now().Add(time.Second)) })()
	ch, err := c.Channel()
	if err != nil {
		return
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	select {
	case <-ready:
	default:
		close(ready)
	}
	for d := range deliveries {
		in.mu.Lock()
		in.arrived = append(in.arrived, d.MessageId)
		in.bodies[d.MessageId] = string(d.Body)
		close(in.changed)
		in.changed = make(chan struct{})
		in.mu.Unlock()
		if d.Ack(false) != nil {
			return
		}
	}
}

// ids returns what has arrived so far.
func (in *inbox) ids() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.arrived)
}

// holds waits until every one of the ids has arrived.
func (in *inbox) holds(ids []string) {
	in.t.Helper()
	deadline := time.After(90 * time.Second)
	for {
		in.mu.Lock()
		missing := 0
		for _, id := range ids {
			if _, ok := in.bodies[id]; !ok {
				missing++
			}
		}
		changed := in.changed
		in.mu.Unlock()
		if missing == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			in.t.Fatalf("%d of %d messages did not arrive within 90 s", missing, len(ids))
		}
	}
}

// account compares what arrived with what was committed, id by id, and returns
// the number of duplicates.
func (in *inbox) account(committed []string) (duplicates int) {
	in.t.Helper()
	want := map[string]int{}
	for _, id := range committed {
		want[id] = 0
	}
	for _, id := range in.ids() {
		if _, ok := want[id]; !ok {
			in.t.Errorf("message %s arrived, which nobody committed (P1)", id)
			continue
		}
		want[id]++
	}
	for id, n := range want {
		if n == 0 {
			in.t.Errorf("message %s was committed and never arrived (P2)", id)
		}
		duplicates += max(0, n-1)
	}
	return duplicates
}

// arrivedTimes waits until a message has arrived n times.
func (in *inbox) arrivedTimes(id string, n int) {
	in.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		in.mu.Lock()
		have := 0
		for _, a := range in.arrived {
			if a == id {
				have++
			}
		}
		changed := in.changed
		in.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			in.t.Fatalf("message %s arrived %d times within 60 s, want %d", id, have, n)
		}
	}
}

func (in *inbox) body(id string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.bodies[id]
}
