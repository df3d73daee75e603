package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay/inbox"
)

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

func TestTheWallClockLimitCountsFromTheFirstFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		// A few of the delays are shorter than the limit, all of them are longer.
		in := r.new(inbox.Config{Delays: slices.Repeat([]time.Duration{300 * time.Millisecond}, 12), Within: 2 * time.Second,
			Handler: func(context.Context, *sql.Tx, inbox.Message) error { return errors.New("not now") }})
		r.run(in)
		r.publish(message("a"))
		if d := r.next(in.IsolationQueue()); d.Headers[inbox.HeaderReason] != inbox.ReasonTime {
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

func TestACopyThatTheBrokerRefusesIsNotTakenForSafe(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{Handler: func(context.Context, *sql.Tx, inbox.Message) error { return inbox.Permanent(errors.New("bad")) }})
		// Isolation is full, and says so by a negative confirm.
		if _, err := r.ch.QueueDeclare(in.IsolationQueue(), true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"}); err != nil {
			t.Fatal(err)
		}
		for full := false; !full; {
			c, err := r.ch.PublishWithDeferredConfirm("", in.IsolationQueue(), true, false, message("filler"))
			if err != nil {
				t.Fatal(err)
			}
			taken, err := c.WaitContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			full = !taken
		}
		r.declared = true
		stop := r.run(in)
		r.publish(message("a"))
		r.until("the consumer waits for the broker", func() bool { return r.metric("broker_waits_total", "") > 1 || r.metric("isolated_total", "") > 0 })
		stop()
		if n := r.metric("isolated_total", ""); n != 0 {
			t.Error("the message counts as isolated")
		}
		if d := r.next(queue); d.MessageId != "a" {
			t.Errorf("message %s came back, want a", d.MessageId)
		}
	})
}

// RabbitMQ 4 gives up a message whose consumers die again and again.
func TestAMessageThatKeepsKillingItsConsumersIsIsolated(t *testing.T) {
	t.Parallel()
	r := newRig(t, labtest.MySQL(t, lab.MySQLOptions{Kind: lab.MySQL97}), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	in := r.new(inbox.Config{})
	r.declareTopology(in)
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
