package main

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The broker's side of the demo: one exchange, one queue that takes everything.
const (
	exchange = "shop"
	queue    = "shop.events"
)

// declare makes exchange and queue.
func declare(url string) error {
	return withChannel(url, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
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

// marker is the message id of the last message.
const marker = "end of the demo"

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

// consumer notes every message that arrives, through broker restarts.
type consumer struct {
	url  string
	note func(func(*demo))
}

func (c *consumer) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = c.consume(ctx) // whatever ended it, the next try tells whether it is over
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *consumer) consume(ctx context.Context) error {
	conn, err := amqp.DialConfig(c.url, amqp.Config{Heartbeat: 5 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(200, 0, false); err != nil {
		return err
	}
	messages, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for m := range messages {
		at := time.Now()
		c.note(func(d *demo) { d.arrived(m.MessageId, m.Redelivered, at) })
		if err := m.Ack(false); err != nil {
			return err
		}
	}
	return nil
}
