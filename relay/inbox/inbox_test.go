package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay/inbox"
)

func TestADeliveryThatComesAgainIsAcknowledgedAndAppliedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		again := message("a")
		again.Headers["tenant"], again.AppId = "us", "replay" // not content
		r.publish(message("a"), again, message("b"), message("a"))
		stop := r.run(r.new(inbox.Config{Workers: 4}))
		r.reaches("processed_total", "applied", 2)
		r.reaches("processed_total", "duplicate", 2)
		stop()
		r.expectEffects("a", "b")
		if left := r.left(); left != nil {
			t.Errorf("left in the queue: %v", left)
		}
		if n := r.metric("delay_seconds", ""); n != 2 {
			t.Errorf("delay of %v messages, want 2", n)
		}
		if r.metric("waiting", "") != 0 || r.metric("in_progress", "") != 0 || r.metric("oldest_waiting_seconds", "") != 0 {
			t.Error("something waits after the stop")
		}
	})
}

func TestOfManyThatProcessOneMessageAtOnceOneAppliesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{})
		var mu sync.Mutex
		outcomes := map[inbox.Outcome]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					outcome, err := in.Once(t.Context(), inbox.Message{ID: "a", Body: []byte("x")})
					if err != nil && strings.Contains(err.Error(), "Deadlock") {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					outcomes[outcome]++
					mu.Unlock()
					return
				}
			})
		}
		all.Wait()
		if outcomes[inbox.Applied] != 1 || outcomes[inbox.Duplicate] != 7 {
			t.Errorf("outcomes %v", outcomes)
		}
		r.expectEffects("a")
	})
}

func TestAKnownIDWithDifferentContentIsIsolated(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		body, kind := message("a"), message("a")
		body.Body, kind.Type = []byte("other"), "order.deleted"
		in := r.new(inbox.Config{Workers: 1})
		r.publish(message("a"), body, kind, message("A"), message("a "))
		r.run(in)
		for range 2 {
			d := r.next(in.IsolationQueue())
			if d.MessageId != "a" || d.Headers[inbox.HeaderReason] != inbox.ReasonContent {
				t.Errorf("isolated %s: %v", d.MessageId, d.Headers)
			}
		}
		r.reaches("processed_total", "applied", 3) // letter case and spaces tell ids apart
		r.expectEffects("A", "a", "a ")
	})
}

func TestAnIsolatedMessageIsCompleteAndSaysWhy(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{Handler: func(context.Context, *sql.Tx, inbox.Message) error {
			return inbox.Permanent(errors.New("no such customer"))
		}})
		r.run(in)
		sent := message("a")
		sent.ContentType, sent.CorrelationId, sent.AppId, sent.Priority, sent.ReplyTo = "application/json", "c", "app", 3, "r"
		r.publish(sent, amqp.Publishing{Body: []byte("nameless")})
		for range 2 {
			d := r.next(in.IsolationQueue())
			got := fmt.Sprint(d.Headers[inbox.HeaderReason], "|", d.Headers[inbox.HeaderError], "|", d.Headers[inbox.HeaderConsumer], "|",
				d.Headers[inbox.HeaderTries], "|", d.Headers[inbox.HeaderExchange], "|", d.Headers[inbox.HeaderRoutingKey])
			want := "permanent|no such customer|shop|1|shop|order.created"
			if d.MessageId == "" {
				want = "no-message-id|the message has no message id, or one longer than 255 bytes|shop|1|shop|order.created"
			} else if string(d.Body) != "body of a" || d.Type != "order.created" || d.ContentType != "application/json" || d.CorrelationId != "c" || d.AppId != "app" ||
				d.Priority != 3 || d.ReplyTo != "r" || !d.Timestamp.Equal(sent.Timestamp.Truncate(time.Second)) || d.Headers["tenant"] != "eu" || d.DeliveryMode != amqp.Persistent {
				t.Errorf("isolated %+v", d)
			}
			if got != want {
				t.Errorf("headers %s, want %s", got, want)
			}
		}
		r.expectEffects()
	})
}

func TestAFailureIsTriedAgainAfterItsDelaysAndThenIsolated(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		tries := map[string][]time.Time{}
		in := r.new(inbox.Config{Delays: []time.Duration{100 * time.Millisecond, 400 * time.Millisecond},
			Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
				mu.Lock()
				tries[m.ID] = append(tries[m.ID], time.Now())
				n := len(tries[m.ID])
				mu.Unlock()
				if err := effect(ctx, tx, m); err != nil {
					return err
				}
				switch {
				case m.ID == "panic":
					panic("broken handler")
				case m.ID == "bad" || m.ID == "mended" && n < 3:
					return errors.New("not now")
				}
				return nil
			}})
		stop := r.run(in)
		r.publish(message("bad"), message("mended"), message("panic"), message("good"))
		for range 2 {
			d := r.next(in.IsolationQueue())
			if d.Headers[inbox.HeaderReason] != inbox.ReasonTries || d.Headers[inbox.HeaderTries] != int64(3) ||
				d.Headers[inbox.HeaderExchange] != "shop" || string(d.Body) != "body of "+d.MessageId {
				t.Errorf("isolated %s: %v", d.MessageId, d.Headers)
			}
			for name := range d.Headers {
				if strings.Contains(name, "death") || strings.Contains(name, "fail") {
					t.Errorf("header %s is left: put back, the message would not start anew", name)
				}
			}
		}
		r.reaches("processed_total", "applied", 2)
		stop()
		r.expectEffects("good", "mended")
		mu.Lock()
		defer mu.Unlock()
		for _, id := range []string{"bad", "mended", "panic"} {
			at := tries[id]
			if len(at) != 3 {
				t.Fatalf("%s was tried %d times, want 3", id, len(at))
			}
			if at[1].Sub(at[0]) < 75*time.Millisecond || at[2].Sub(at[1]) < 300*time.Millisecond {
				t.Errorf("%s was tried again after %v and %v", id, at[1].Sub(at[0]), at[2].Sub(at[1]))
			}
		}
		if n := r.metric("retried_total", ""); n != 6 {
			t.Errorf("%v retries, want 6", n)
		}
	})
}

func TestRetriesEndAtTheWallClockLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{Delays: []time.Duration{50 * time.Millisecond, time.Hour}, Within: time.Minute,
			Handler: func(context.Context, *sql.Tx, inbox.Message) error { return errors.New("not now") }})
		r.run(in)
		r.publish(message("a"))
		if d := r.next(in.IsolationQueue()); d.Headers[inbox.HeaderReason] != inbox.ReasonTime || d.Headers[inbox.HeaderTries] != int64(2) {
			t.Errorf("isolated: %v", d.Headers)
		}
	})
}

func TestADeliveryIsNotAcknowledgedBeforeItsCopyIsSafe(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{Handler: func(context.Context, *sql.Tx, inbox.Message) error { return inbox.Permanent(errors.New("bad")) }})
		stop := r.run(in)
		r.publish(message("a"))
		r.next(in.IsolationQueue())
		if _, err := r.ch.QueueDelete(in.IsolationQueue(), false, false, false); err != nil {
			t.Fatal(err)
		}
		r.publish(message("b")) // its copy is returned: nothing takes it
		r.until("the consumer waits for the broker", func() bool { return r.metric("broker_waits_total", "") > 1 })
		stop()
		if d := r.next(queue); d.MessageId != "b" {
			t.Errorf("message %s came back, want b", d.MessageId)
		}
	})
}

// RabbitMQ 4 gives up a message whose consumers die again and again.
func TestAMessageThatKeepsKillingItsConsumersIsIsolated(t *testing.T) {
	t.Parallel()
	r := newRig(t, labtest.MySQL(t, lab.MySQLOptions{Kind: lab.MySQL97}), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	in := r.new(inbox.Config{})
	for _, q := range in.Topology() {
		if _, err := r.ch.QueueDeclare(q.Name, true, false, false, false, amqp.Table(q.Arguments)); err != nil {
			t.Fatal(err)
		}
	}
	r.publish(message("deadly"))
	for range 21 {
		ch, err := r.conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		messages, err := ch.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-messages:
		case <-time.After(within):
			t.Fatal("the message is gone")
		}
		if err := ch.Close(); err != nil { // as a death does, it gives the delivery back
			t.Fatal(err)
		}
	}
	if d := r.next(in.IsolationQueue()); d.MessageId != "deadly" || string(d.Body) != "body of deadly" {
		t.Errorf("isolated %+v", d)
	}
}

func TestContentIsTheHashThatTheDocumentsTellOtherLanguages(t *testing.T) {
	text, err := os.ReadFile("../../deploy/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", inbox.Content("order.created", []byte(`{"id": 1}`))); !strings.Contains(string(text), sum) {
		t.Errorf("deploy/consumers.md does not give %s as an example", sum)
	}
}

func TestABatchIsOneTransactionAndAFailureInItStaysAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.exec("CREATE TABLE batch (message_id VARCHAR(64) PRIMARY KEY, connection BIGINT NOT NULL, started VARCHAR(40) NOT NULL)")
		var ids []string
		for i := range 30 {
			id := fmt.Sprintf("m%02d", i)
			ids = append(ids, id)
			r.publish(message(id))
		}
		r.publish(message("bad"), message("m00"))
		transactions := map[*sql.Tx]int{}
		in := r.new(inbox.Config{Workers: 1, Batch: 10, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			if m.ID == "bad" {
				return inbox.Permanent(errors.New("bad"))
			}
			transactions[tx]++ // one worker: one goroutine
			return effect(ctx, tx, m)
		}})
		stop := r.run(in)
		r.next(in.IsolationQueue())
		r.reaches("processed_total", "applied", 30)
		r.reaches("processed_total", "duplicate", 1)
		stop()
		r.expectEffects(ids...)
		shared := 0
		for _, n := range transactions {
			if n > 1 {
				shared++
			}
		}
		if shared == 0 {
			t.Error("no transaction held several deliveries")
		}
	})
}

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
		<-started
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		close(release)
		<-stopped
		done := r.effects()
		if len(done) == 0 || done[0] != "a" {
			t.Fatalf("effects %v: what was in progress did not end", done)
		}
		if got := append(done, r.left()...); strings.Join(got, "") != "abc" {
			t.Errorf("effects and what is left: %v", got)
		}
	})
}

func TestAStopDoesNotWaitForAHandlerWithoutEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		started := make(chan struct{})
		in := r.new(inbox.Config{StopWithin: 50 * time.Millisecond, Handler: func(ctx context.Context, _ *sql.Tx, _ inbox.Message) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		}})
		stop := r.run(in)
		r.publish(message("a"))
		<-started
		stop()
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

func TestPurgeKeepsTheReplayWindowAndOtherConsumers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.exec(`INSERT INTO towpath_inbox (consumer, message_id, content, processed_at)
			WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i < 900)
			SELECT c, CONCAT(d, '-', i), REPEAT('x', 32), UTC_TIMESTAMP(6) - INTERVAL d HOUR
			FROM n, (SELECT 'shop' AS c UNION SELECT 'other') AS c, (SELECT 47 AS d UNION SELECT 49 UNION SELECT 100) AS d`)
		in := r.new(inbox.Config{Within: time.Hour, ReplayWindow: 48 * time.Hour})
		if _, err := in.Purge(t.Context(), 47*time.Hour); err == nil || !strings.Contains(err.Error(), "replay window") {
			t.Errorf("records younger than the replay window were purged: %v", err)
		}
		n, err := in.Purge(t.Context(), 48*time.Hour)
		if n != 1800 || err != nil || r.metric("purged_total", "") != 1800 {
			t.Errorf("purged %d, %v", n, err)
		}
		var shop, other int
		if err := r.db.QueryRow("SELECT SUM(consumer='shop'), SUM(consumer='other') FROM towpath_inbox").Scan(&shop, &other); err != nil || shop != 900 || other != 2700 {
			t.Errorf("left %d and %d, %v", shop, other, err)
		}
	})
}

func TestAWrongConfigurationIsRefusedWithEachFaultNamed(t *testing.T) {
	db, err := sql.Open("mysql", "root@tcp(127.0.0.1:1)/x")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	_, err = inbox.New(db, inbox.Config{Consumer: "Ünsinn", Workers: 5, Batch: -1, Within: 20 * 24 * time.Hour, Delays: []time.Duration{time.Millisecond}})
	for _, want := range []string{"Consumer must", "Queue must", "Handler is missing", "5 workers on a pool of 4", "Batch must", "each of Delays", "shorter than ReplayWindow"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	in, err := inbox.New(db, inbox.Config{Consumer: "c", Queue: "q", Handler: effect})
	if err != nil || in.Workers != 4 || in.Prefetch() != 8 {
		t.Errorf("%v; %d workers, prefetch %d for a pool of 4", err, in.Workers, in.Prefetch())
	}
}

func TestRetryQueuesAreNamedByTheirDelays(t *testing.T) {
	db, _ := sql.Open("mysql", "root@tcp(127.0.0.1:1)/x")
	defer db.Close()
	in, err := inbox.New(db, inbox.Config{Consumer: "c", Queue: "q", Handler: effect,
		Delays: []time.Duration{time.Second, 90 * time.Second, time.Minute, 2 * time.Hour, 2 * time.Hour, 10 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, q := range in.Topology() {
		names = append(names, q.Name)
	}
	if got := strings.Join(names, " "); got != "q.isolated q.retry.1s q.retry.1m q.retry.1m30s q.retry.10m q.retry.2h" {
		t.Errorf("queues %s", got)
	}
}
