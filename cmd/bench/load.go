package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// trip is one row's way: all times are of this program's clock.
type trip struct {
	sent, committed, arrived time.Time // COMMIT was sent; it returned; its message came first
}

// watcher notes when the message of each row arrives. It takes all messages of
// a stream's queue until it is closed.
type watcher struct {
	ch   *amqp.Channel
	done chan struct{}

	mu       sync.Mutex
	trips    map[int64]*trip
	missing  int
	news     chan struct{} // has a token when a message has arrived
	messages int
}

func (s *stream) watch() (*watcher, error) {
	w := &watcher{done: make(chan struct{}), trips: map[int64]*trip{}, news: make(chan struct{}, 1)}
	var err error
	if w.ch, err = s.conn.Channel(); err != nil {
		return nil, err
	}
	messages, err := w.ch.Consume(queueName, "", true, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		for m := range messages {
			if id, err := strconv.ParseInt(m.MessageId, 10, 64); err == nil {
				w.arrive(id, time.Now())
			}
		}
	}()
	return w, nil
}

func (w *watcher) close() {
	_ = w.ch.Close()
	<-w.done
}

func (w *watcher) arrive(id int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages++
	t := w.trips[id]
	if t == nil || !t.arrived.IsZero() {
		return
	}
	t.arrived = at
	w.missing--
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// begin notes rows first to last, whose COMMIT is sent now.
func (w *watcher) begin(first, last int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := first; id <= last; id++ {
		w.trips[id] = &trip{sent: at}
		w.missing++
	}
}

func (w *watcher) committed(first, last int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := first; id <= last; id++ {
		w.trips[id].committed = at
	}
}

// all waits until every row's message has arrived, and returns the trips.
func (w *watcher) all(ctx context.Context) (map[int64]*trip, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		missing, trips := w.missing, w.trips
		if missing == 0 {
			w.trips = map[int64]*trip{}
		}
		w.mu.Unlock()
		if missing == 0 {
			return trips, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the messages of %d rows: %w", missing, ctx.Err())
		case <-w.news:
		}
	}
}

// load commits rows at a rate, for a time, on sessions enough that a commit does
// not hold up the next; after each commit it calls publish, if that is given.
// Above 200 rows a second several rows share a transaction.
func (s *stream) load(ctx context.Context, w *watcher, rate int, lasts time.Duration, publish func(worker int, first, last int64) error) error {
	each := int64(max(1, rate/200))
	total := int64(float64(rate) * lasts.Seconds())
	every := time.Duration(float64(time.Second) * float64(each) / float64(rate))
	type job struct{ first, last int64 }
	jobs := make(chan job, 64)
	errs := make(chan error, loaders)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for worker := range loaders {
		go func() {
			for j := range jobs {
				err := s.commitWatched(ctx, w, j.first, j.last)
				if err == nil && publish != nil {
					err = publish(worker, j.first, j.last)
				}
				if err != nil {
					cancel()
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	began, n := time.Now(), int64(0)
	for ; n < total && ctx.Err() == nil; n += each {
		timer := time.NewTimer(time.Until(began.Add(time.Duration(n/each) * every)))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		select {
		case jobs <- job{s.last + 1, s.last + each}:
			s.last += each
		case <-ctx.Done():
		}
	}
	close(jobs)
	var all error
	for range loaders {
		all = errors.Join(all, <-errs)
	}
	if took := time.Since(began); all == nil && took > lasts*13/10+time.Second {
		progress(s.bed, "the database took only %.0f of %d rows a second", float64(n)/took.Seconds(), rate)
	}
	return all
}

const loaders = 8

// commitWatched commits rows first to last in one transaction.
func (s *stream) commitWatched(ctx context.Context, w *watcher, first, last int64) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := s.insert(ctx, tx, 0, first, last); err != nil {
		return err
	}
	w.begin(first, last, time.Now())
	if err := tx.Commit(); err != nil {
		return err
	}
	w.committed(first, last, time.Now())
	return nil
}

// arrivals counts the rows that have arrived since all was called last.
func (w *watcher) arrivals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.trips) - w.missing
}

// firstAfter is when the first row arrived whose COMMIT was sent after at; zero
// if none has.
func (w *watcher) firstAfter(at time.Time) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.trips {
		if t.sent.After(at) && !t.arrived.IsZero() && (first.IsZero() || t.arrived.Before(first)) {
			first = t.arrived
		}
	}
	return first
}
