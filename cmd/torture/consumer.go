package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// consumer notes every message of one queue, through whatever happens to the
// broker. A message is noted before it is acknowledged.
type consumer struct {
	url    string
	queue  string
	ledger *ledger

	mu      sync.Mutex
	runs    []stretch     // of messages by one publisher
	hold    chan struct{} // closed to go on; nil: goes on
	dropped context.CancelFunc
	ended   chan struct{} // closed when the end marker has come
}

func newConsumer(url, queue string, l *ledger) *consumer {
	return &consumer{url: url, queue: queue, ledger: l, ended: make(chan struct{})}
}

func (c *consumer) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		hold := c.hold
		session, cancel := context.WithCancel(ctx)
		c.dropped = cancel
		c.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		} else {
			_ = c.consume(session) // whatever ended it, the next try tells whether it is over
			pause(ctx, 100*time.Millisecond)
		}
		cancel()
	}
}

// stretch is messages in a row by one process.
type stretch struct {
	publisher string
	from, to  time.Time // of arrival
}

func (c *consumer) published(by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if n := len(c.runs); n == 0 || c.runs[n-1].publisher != by {
		c.runs = append(c.runs, stretch{publisher: by, from: now})
	}
	c.runs[len(c.runs)-1].to = now
}

// stall stops consuming until resume is called.
func (c *consumer) stall() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hold := make(chan struct{})
	c.hold = hold
	if c.dropped != nil {
		c.dropped()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hold = nil
		close(hold)
	}
}

func (c *consumer) consume(ctx context.Context) error {
	conn, err := amqp.DialConfig(c.url, amqp.Config{Heartbeat: 3 * time.Second, Dial: amqp.DefaultDial(3 * time.Second)})
	if err != nil {
		return err
	}
	defer conn.CloseDeadline(time.Now().Add(time.Second))
	defer context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(500, 0, false); err != nil {
		return err
	}
	messages, err := ch.Consume(c.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for m := range messages {
		if m.MessageId == endMarker {
			select {
			case <-c.ended:
			default:
				close(c.ended)
			}
		} else {
			c.ledger.arrive(m.MessageId, sha256.Sum256(m.Body), envelope(&m), time.Now())
			if !m.Redelivered { // by the broker itself: that is not in the order of publishing
				c.published(m.AppId)
				c.ledger.published(m.MessageId, m.AppId, time.Now())
			}
		}
		if err := m.Ack(false); err != nil {
			return err
		}
	}
	return nil
}

// envelope is a digest of all of a message that its row decides, but the body.
// The publisher's name is not: it is the one thing in which the relays'
// configurations differ.
func envelope(m *amqp.Delivery) [sha256.Size]byte {
	headers := amqp.Table{}
	for name, v := range m.Headers {
		if name != "x-delivery-count" && name != "x-acquired-count" { // the broker's own
			headers[name] = v
		}
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %v %d %d %q %v", m.Exchange, m.RoutingKey, m.Type, m.ContentType,
		m.Timestamp.UnixMilli(), m.DeliveryMode, m.Priority, m.CorrelationId, headers))
}

// endMarker is the message id of the last message of each queue.
const endMarker = "end of the torture"
