package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

func TestAStopEndsWhatIsInProgressAndLeavesTheRestToTheBroker(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		started, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		in := r.new(inbox.Config{Workers: 1, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			once.Do(func() { close(started) })
			<-release
			return effect(ctx, tx, m)
		}})
		stop := r.run(in)
		r.publish(message("a"), message("b"), message("c"))
		r.await("the handler begins", started)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		close(release)
		r.await("the consumer stops", stopped)
		done := r.effects()
		if len(done) == 0 || done[0] != "a" {
			t.Fatalf("effects %v: what was in progress did not end", done)
		}
		if got := append(done, r.left()...); strings.Join(got, "") != "abc" {
			t.Errorf("effects and what is left: %v", got)
		}
	})
}

func TestAStopTakesNoMore(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		started, release := make(chan struct{}, 3), make(chan struct{})
		in := r.new(inbox.Config{Workers: 1, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			started <- struct{}{}
			<-release
			return effect(ctx, tx, m)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		deliveries, stopped, acks := make(chan inbox.Delivery), make(chan struct{}), &tags{}
		go func() {
			in.Run(ctx, deliveries, nil)
			close(stopped)
		}()
		for i, id := range []string{"a", "b", "c"} { // the others are taken in, and wait for the worker
			deliveries <- inbox.Delivery{Message: inbox.Message{ID: id}, Tag: uint64(i + 1), Acknowledger: acks}
		}
		r.await("the handler begins", started)
		cancel()
		close(release)
		r.await("Run returns", stopped)
		r.expectEffects("a")
		if !slices.Equal(acks.all, []uint64{1}) {
			t.Errorf("acknowledged %v, want the first", acks.all)
		}
	})
}

// await waits for a channel's event.
func (r *rig) await(what string, event <-chan struct{}) {
	r.t.Helper()
	select {
	case <-event:
	case <-time.After(within):
		r.t.Fatalf("within %v it did not come true that %s", within, what)
	}
}

// tags are the acknowledgements of one worker.
type tags struct{ all []uint64 }

func (a *tags) Ack(tag uint64, _ bool) error { a.all = append(a.all, tag); return nil }

func TestAStopDoesNotWaitForAHandlerWithoutEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		started := make(chan struct{})
		var told atomic.Bool
		in := r.new(inbox.Config{StopWithin: 50 * time.Millisecond, Timeout: time.Hour, Handler: func(ctx context.Context, _ *sql.Tx, _ inbox.Message) error {
			close(started)
			select {
			case <-ctx.Done():
				told.Store(true)
			case <-time.After(within):
			}
			return ctx.Err()
		}})
		stop := r.run(in)
		r.publish(message("a"))
		r.await("the handler begins", started)
		stop()
		if !told.Load() {
			t.Error("the handler was not told that its time is over")
		}
		if d := r.next(queue); d.MessageId != "a" {
			t.Errorf("message %s came back, want a", d.MessageId)
		}
	})
}

func TestAHandlerThatTakesTooLongIsAFailureAlsoIfItDoesNotSay(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{Timeout: 50 * time.Millisecond, Delays: []time.Duration{50 * time.Millisecond},
			Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error { <-ctx.Done(); return nil }})
		r.run(in)
		r.publish(message("a"))
		if d := r.next(in.IsolationQueue()); d.Headers[inbox.HeaderReason] != inbox.ReasonTries {
			t.Errorf("isolated: %v", d.Headers)
		}
		r.expectEffects()
	})
}

func TestOutagesOfDatabaseAndBrokerBurnNoTryAndNeedNoHand(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		database, broker := proxy(t, r.mysql.Addr()), proxy(t, r.rabbit.Addr())
		db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/%s", database.Addr(), r.schema))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		r.db, r.broker = db, broker.Addr()
		var cut atomic.Bool
		in := r.new(inbox.Config{Delays: []time.Duration{time.Hour}, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			if m.ID == "m30" && cut.CompareAndSwap(false, true) { // in the middle of a transaction
				database.Set(lab.Fault{Refuse: true})
				database.Cut()
			}
			return effect(ctx, tx, m)
		}}) // a burnt try would not come back
		stop := r.run(in)
		var ids []string
		publish := func(from, to int) {
			for i := from; i < to; i++ {
				ids = append(ids, fmt.Sprintf("m%02d", i))
				r.publish(message(ids[len(ids)-1]))
			}
		}
		publish(0, 20)
		r.reaches("processed_total", "applied", 20)
		publish(20, 40)
		r.until("the consumer waits for the database", func() bool { return r.metric("database_waits_total", "") > 3 })
		database.Set(lab.Fault{})
		r.reaches("processed_total", "", 40) // one whose commit was cut off may count as a duplicate
		broker.Set(lab.Fault{Refuse: true})
		broker.Cut()
		publish(40, 60)
		broker.Set(lab.Fault{})
		r.until("all are processed", func() bool { return r.metric("processed_total", "") >= 60 })
		stop()
		r.db = r.direct
		r.expectEffects(ids...)
		if n := r.metric("retried_total", "") + r.metric("isolated_total", ""); n != 0 {
			t.Errorf("%v messages were moved", n)
		}
	})
}

func proxy(t *testing.T, addr string) *lab.Proxy {
	t.Helper()
	p, err := lab.StartProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A handler whose statement makes the server hang up is not tried for ever, and
// one that was hit once by a lost connection burns no try.
func TestALostConnectionBurnsNoTryUnlessTheMessageCausesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var once atomic.Bool
		in := r.new(inbox.Config{Delays: []time.Duration{time.Hour}, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			if m.ID == "always" || once.CompareAndSwap(false, true) {
				_, err := tx.ExecContext(ctx, "KILL CONNECTION_ID()")
				if err == nil {
					err = effect(ctx, tx, m)
				}
				if err != nil {
					return errors.New("the handler hides what happened")
				}
			}
			return effect(ctx, tx, m)
		}})
		r.run(in)
		r.publish(message("a"))
		r.reaches("processed_total", "applied", 1)
		r.publish(message("always"))
		r.reaches("retried_total", "", 1)
		r.expectEffects("a")
	})
}

func TestContentionIsTriedAgainAtOnceAndNotForEver(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO stock VALUES (1, 0)")
		in := r.new(inbox.Config{Workers: 1, Delays: []time.Duration{time.Hour}, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			if _, err := tx.ExecContext(ctx, "SET innodb_lock_wait_timeout=1"); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET n=n+1 WHERE id=1"); err != nil {
				return err
			}
			return effect(ctx, tx, m)
		}})
		r.run(in)
		lock := func() *sql.Tx {
			tx, err := r.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("SELECT * FROM stock WHERE id=1 FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			return tx
		}
		first := lock()
		defer first.Rollback()
		r.publish(message("once"))
		r.until("the transaction meets the lock", func() bool { return r.metric("contentions_total", "") > 0 })
		if err := first.Rollback(); err != nil {
			t.Fatal(err)
		}
		r.until("it is tried again at once", func() bool { return len(r.effects()) == 1 })
		if n := r.metric("retried_total", ""); n != 0 {
			t.Errorf("%v messages went to a retry queue", n)
		}
		second := lock()
		defer second.Rollback()
		r.publish(message("always")) // the lock may be the message's own doing
		r.reaches("retried_total", "", 1)
		r.expectEffects("once")
	})
}

func TestMetricsTellWhatWaitsAndThatThePoolIsTooSmall(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		db, err := sql.Open("mysql", r.mysql.DSN(r.schema))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(2)
		r.db = db
		release := make(chan struct{})
		in := r.new(inbox.Config{Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return effect(ctx, tx, m)
		}})
		r.run(in)
		for i := range 10 {
			m := message(fmt.Sprint(i))
			m.Timestamp = time.Now().Add(-time.Hour)
			r.publish(m)
		}
		r.reaches("in_progress", "", 2)                  // as many workers as connections
		r.reaches("waiting", "", float64(in.Prefetch())) // the rest stays in the broker
		if age := r.metric("oldest_waiting_seconds", ""); age < 3590 || age > 3700 {
			t.Errorf("the oldest has waited for %v s, want an hour", age)
		}
		if n := r.metric("pool_waits_total", ""); n != 0 {
			t.Errorf("%v waits for a connection", n)
		}
		looked := make(chan error)
		go func() { looked <- db.PingContext(t.Context()) }() // whoever else uses the pool
		r.until("somebody waits for a connection", func() bool { return r.metric("pool_waits_total", "") == 1 })
		if n := r.metric("waiting", ""); int(n) != in.Prefetch() {
			t.Errorf("%v deliveries are here, want the prefetch of %d", n, in.Prefetch())
		}
		close(release)
		if err := <-looked; err != nil {
			t.Error(err)
		}
		r.reaches("processed_total", "applied", 10)
		if n, s := r.metric("processing_seconds", ""), r.metric("pool_wait_seconds_total", ""); n != 10 || s == 0 {
			t.Errorf("processing time of %v messages, want 10; waited %v s for the pool", n, s)
		}
	})
}

// What deploy/consumers.md says of acknowledgements that come in a burst.
func TestAcknowledgementsThatAreLostWithTheirConnectionMakeDuplicatesAndNothingElse(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{Workers: 1})
		var ids []string
		for round := 0; r.metric("processed_total", "duplicate") == 0; round++ {
			if round == 20 { // it does so in nine rounds of ten
				t.Fatal("the broker lost no acknowledgement: deploy/consumers.md says that it does")
			}
			var burst []amqp.Publishing
			for i := range 200 {
				burst = append(burst, message(fmt.Sprint(round, "-", i)))
				ids = append(ids, burst[i].MessageId)
			}
			r.publish(burst...)
			r.processAndClose(in, len(burst))
			stop := r.run(in)
			last := fmt.Sprint("last of ", round)
			r.publish(message(last)) // behind all that comes again
			ids = append(ids, last)
			r.until("the queue is empty", func() bool { return slices.Contains(r.effects(), last) })
			stop()
		}
		r.expectEffects(ids...)
	})
}

// processAndClose processes n deliveries, then acknowledges each of them, and
// closes its connection in good order.
func (r *rig) processAndClose(in *inbox.Inbox, n int) {
	r.t.Helper()
	conn, err := amqp.Dial(r.vhost.URL())
	if err != nil {
		r.t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	messages, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []inbox.Delivery
	for len(all) < n {
		select {
		case m := <-messages:
			all = append(all, consumer.Delivery(m))
		case <-time.After(within):
			r.t.Fatalf("%d of %d deliveries came", len(all), n)
		}
		if _, err := in.Once(r.t.Context(), all[len(all)-1].Message); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, d := range all {
		if err := d.Acknowledger.Ack(d.Tag, false); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		r.t.Fatal(err)
	}
}
