package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/relay/inbox"
	rabbit "github.com/towpath/towpath/relay/rabbit/consumer"
)

// The broker's side of the demo: one exchange, one queue that takes everything.
const (
	exchange = "shop"
	queue    = "shop.events"
)

// marker is the message id of the last message.
const marker = "end of the demo"

// consumer is a service as a user would write it: each message makes one
// effect, a row of its own table, in the transaction that notes the message.
type consumer struct {
	db      *sql.DB
	inbox   *inbox.Inbox
	metrics *prometheus.Registry
	arrived func(id string, at time.Time)
}

// effects is what the consumer writes. Nothing in it keeps a message from
// having two effects, so that it would show.
const effects = `CREATE TABLE effect (n BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, message_id VARCHAR(255) NOT NULL)`

// newConsumer prepares a consumer that tells of each message that it processes.
// One worker keeps the order of messages; batches keep it quick.
func newConsumer(db *sql.DB, arrived func(id string, at time.Time)) (c *consumer, err error) {
	c = &consumer{db: db, metrics: prometheus.NewRegistry(), arrived: arrived}
	c.inbox, err = inbox.New(db, inbox.Config{
		Consumer: "demo", Queue: queue, Workers: 1, Batch: 50, Metrics: c.metrics, Handler: c.process,
		Delays: []time.Duration{time.Second, 5 * time.Second},
	})
	return c, err
}

func (c *consumer) process(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
	at := time.Now()
	if m.ID != marker {
		if _, err := tx.ExecContext(ctx, "INSERT INTO effect (message_id) VALUES (?)", m.ID); err != nil {
			return err
		}
	}
	c.arrived(m.ID, at)
	return nil
}

// run consumes until ctx ends, through broker restarts.
func (c *consumer) run(ctx context.Context, url string) error {
	return rabbit.Run(ctx, rabbit.Config{URLs: []string{url}}, c.inbox)
}

// processed counts the deliveries that came to an outcome.
func (c *consumer) processed(outcome inbox.Outcome) (n int) {
	families, err := c.metrics.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "towpath_inbox_processed_total" && l.GetName() == "outcome" && l.GetValue() == string(outcome) {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// effects reads how often each message id has its effect; what is no number
// counts as 0, which no row has.
func (c *consumer) effects(ctx context.Context) (map[uint64]int, error) {
	rows, err := c.db.QueryContext(ctx, "SELECT message_id, COUNT(*) FROM effect GROUP BY message_id")
	if err != nil {
		return nil, fmt.Errorf("read the effects: %w", err)
	}
	defer rows.Close()
	found := map[uint64]int{}
	for rows.Next() {
		var text string
		var n int
		if err := rows.Scan(&text, &n); err != nil {
			return nil, fmt.Errorf("read the effects: %w", err)
		}
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			id = 0
		}
		found[id] += n
	}
	return found, rows.Err()
}

// declare makes exchange and queue; the consumer makes those of its retries.
func (c *consumer) declare(url string) error {
	return withChannel(url, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table(c.inbox.MainQueue().Arguments)); err != nil {
			return err
		}
		return ch.QueueBind(queue, "#", exchange, false, nil)
	})
}

// sendMarker puts a message behind all that the queue holds.
func sendMarker(ctx context.Context, url string) error {
	return withChannel(url, func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{MessageId: marker, DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		_, err = c.WaitContext(ctx)
		return err
	})
}

func withChannel(url string, do func(*amqp.Channel) error) error {
	c, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}
