package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// traffic is rows that are committed at a steady rate, and when they arrive.
type traffic struct {
	stage *stage
	table string
	rate  int // rows a second
	first int // id of the first row
	size  int // bytes of a body

	// direct publishes what was committed, nil when a relay does.
	direct func(id int, body string) error

	mu        sync.Mutex
	committed []time.Time // by id, from first on; when COMMIT returned
	arrived   []time.Time
}

// transactions a second, at most: more rows come in larger transactions.
const transactions = 200

// produce commits rows until ctx ends, on schedule: a commit that takes long is
// followed by those that it has held up.
func (t *traffic) produce(ctx context.Context) error {
	each := max(1, t.rate/transactions)
	every := time.Duration(each) * time.Second / time.Duration(t.rate)
	body := fmt.Sprintf(`{"text": "%s"}`, strings.Repeat("x", max(0, t.size-12)))
	args := make([]any, 0, 4*each)
	insert := "INSERT INTO bench." + t.table + " (id, aggregate, type, payload) VALUES " + strings.TrimSuffix(strings.Repeat("(?,?,?,?),", each), ",")
	began := time.Now()
	for n := 0; ; {
		due := began.Add(time.Duration(n/each) * every)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(due)):
		}
		args = args[:0]
		for i := range each {
			id := t.first + n + i
			args = append(args, id, fmt.Sprintf("key-%d", id%1000), "created", body)
		}
		if _, err := t.stage.db.ExecContext(context.WithoutCancel(ctx), insert, args...); err != nil {
			return err
		}
		now := time.Now()
		t.mu.Lock()
		for range each {
			t.committed = append(t.committed, now)
		}
		t.mu.Unlock()
		if t.direct != nil {
			for i := range each {
				if err := t.direct(t.first+n+i, body); err != nil {
					return err
				}
			}
		}
		n += each
	}
}

// consume takes the time of every row's first arrival until ctx ends.
func (t *traffic) consume(ctx context.Context) error {
	ch, err := t.stage.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	deliveries, err := ch.ConsumeWithContext(ctx, theQueue, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		now := time.Now()
		id, err := strconv.Atoi(d.MessageId)
		if err != nil || id < t.first {
			continue // of an earlier measurement
		}
		t.mu.Lock()
		for len(t.arrived) <= id-t.first {
			t.arrived = append(t.arrived, time.Time{})
		}
		if t.arrived[id-t.first].IsZero() {
			t.arrived[id-t.first] = now
		}
		t.mu.Unlock()
	}
	if ctx.Err() == nil {
		return errors.New("the consumer's channel was closed")
	}
	return nil
}

// waits is how long each row took from its commit to its arrival, by id; a row
// that arrived before the producer heard of its commit took none. ok is false
// while rows are missing.
func (t *traffic) waits() (waits []time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.arrived) < len(t.committed) || slices.ContainsFunc(t.arrived, time.Time.IsZero) {
		return nil, false
	}
	for i, at := range t.committed {
		waits = append(waits, max(0, t.arrived[i].Sub(at)))
	}
	return waits, true
}

// play produces for some time and returns the waits once all have arrived.
func (t *traffic) play(ctx context.Context, during func(context.Context) error) ([]time.Duration, error) {
	helpers, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	consumed, produced := make(chan error, 1), make(chan error, 1)
	wg.Go(func() { consumed <- t.consume(helpers) })
	producing, stopProducing := context.WithCancel(ctx)
	defer stopProducing()
	wg.Go(func() { produced <- t.produce(producing) })
	if err := during(ctx); err != nil {
		return nil, err
	}
	stopProducing()
	if err := <-produced; err != nil {
		return nil, fmt.Errorf("commit rows: %w", err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if waits, ok := t.waits(); ok {
			return waits, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.New("rows did not arrive within a minute")
		}
		select {
		case err := <-consumed:
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// publisher publishes with confirms and without waiting for each.
func (s *stage) publisher() (publish func(id int, body string) error, close func(), err error) {
	conn, err := amqp.Dial(s.vhost.URL())
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	return func(id int, body string) error {
		_, err := ch.PublishWithDeferredConfirm("", theQueue, true, false, amqp.Publishing{
			MessageId: strconv.Itoa(id), Type: "created", ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(body)})
		return err
	}, func() { conn.Close() }, err
}
