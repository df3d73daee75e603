package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/relay/inbox"
)

// Config says where the queue is.
type Config struct {
	URLs []string    // amqp or amqps, all of one cluster and vhost; tried in turn
	TLS  *tls.Config // for amqps; nil for the system's roots
	Name string      // of the connection, as the broker shows it; [the inbox's consumer]

	// Declared says that somebody else declares what inbox.Topology lists: the
	// account then needs no configure permission.
	Declared bool
}

const (
	heartbeat   = 10 * time.Second
	dialWithin  = 10 * time.Second
	closeWithin = 5 * time.Second
	maxPause    = 5 * time.Second // between two tries to connect: also how long a broker that is back may wait
	steadyAfter = time.Minute     // a session that lasted so long starts the pauses anew
)

// Run consumes until ctx ends, through every outage of broker and database. It
// returns nil after a stop in good order: transactions in progress are ended
// and acknowledged, the rest goes back to the queue.
func Run(ctx context.Context, c Config, in *inbox.Inbox) error {
	if len(c.URLs) == 0 {
		return errors.New("run consumer: Config.URLs is empty")
	}
	pause := time.Duration(0)
	for n := 0; ctx.Err() == nil; n++ {
		started := time.Now()
		err := session(ctx, c, c.URLs[n%len(c.URLs)], in)
		if ctx.Err() != nil {
			break
		}
		if time.Since(started) > steadyAfter {
			pause = 0
		}
		pause = min(max(2*pause, 100*time.Millisecond), maxPause)
		in.Log.Warn("waiting for the broker", "consumer", in.Consumer, "queue", in.Queue, "error", err)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// session consumes on one connection until it breaks or ctx ends.
func session(ctx context.Context, c Config, url string, in *inbox.Inbox) error {
	conn, raw, err := dial(c, url, in)
	if err != nil {
		return err
	}
	defer func() {
		// The library's close waits behind a write that the network holds up.
		defer time.AfterFunc(closeWithin, func() { _ = raw.Close() }).Stop()
		_ = conn.CloseDeadline(time.Now().Add(closeWithin))
	}()
	lost := conn.NotifyClose(make(chan *amqp.Error, 1))
	if !c.Declared {
		if err := declare(conn, in); err != nil {
			return err
		}
	}
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	canceled := ch.NotifyCancel(make(chan string, 1))
	if err := ch.Qos(in.Prefetch(), 0, false); err != nil {
		return fmt.Errorf("set the prefetch: %w", err)
	}
	messages, err := ch.Consume(in.Queue, "", false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume from %s: %w", in.Queue, err)
	}
	in.Log.Info("consuming", "consumer", in.Consumer, "queue", in.Queue)

	alive, end := context.WithCancelCause(ctx)
	defer end(nil)
	deliveries := make(chan inbox.Delivery)
	p := newPublisher(conn, in.Workers)
	var all sync.WaitGroup
	all.Go(func() { in.Run(alive, deliveries, p); end(errors.New("the deliveries ended")) })
	all.Go(func() {
		defer close(deliveries)
		forward(alive, messages, deliveries)
	})
	select {
	case e := <-lost:
		_ = raw.Close() // frees a write that the library would wait for without end
		end(fmt.Errorf("lost the connection: %w", asError(e)))
	case e := <-closed:
		end(fmt.Errorf("lost the channel: %w", asError(e)))
	case <-canceled:
		end(errors.New("the queue was deleted or lost its leader"))
	case <-alive.Done():
	}
	defer time.AfterFunc(in.StopWithin+closeWithin, func() { _ = raw.Close() }).Stop()
	all.Wait()
	return context.Cause(alive)
}

// asError is a close without a reason as an error, too.
func asError(e *amqp.Error) error {
	if e == nil {
		return amqp.ErrClosed
	}
	return e
}

// forward passes deliveries on until the session ends.
func forward(ctx context.Context, messages <-chan amqp.Delivery, deliveries chan<- inbox.Delivery) {
	for {
		select {
		case <-ctx.Done():
			return
		case m, open := <-messages:
			if !open {
				return
			}
			select {
			case deliveries <- Delivery(m):
			case <-ctx.Done():
				return
			}
		}
	}
}

// Delivery is amqp091's delivery as the inbox takes it.
func Delivery(d amqp.Delivery) inbox.Delivery {
	return inbox.Delivery{
		Message: inbox.Message{
			ID: d.MessageId, Type: d.Type, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
			CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, AppID: d.AppId, Priority: d.Priority,
			Timestamp: d.Timestamp, Headers: d.Headers, Body: d.Body,
		},
		Exchange: d.Exchange, RoutingKey: d.RoutingKey, Tag: d.DeliveryTag, Acknowledger: d.Acknowledger,
	}
}

// dial connects, and returns the library's connection and the bare one under
// it. What the library changes in its configuration is made anew each time.
func dial(c Config, url string, in *inbox.Inbox) (conn *amqp.Connection, raw net.Conn, err error) {
	properties := amqp.NewConnectionProperties()
	name := c.Name
	if name == "" {
		name = in.Consumer
	}
	properties.SetClientConnectionName(name)
	open := amqp.DefaultDial(dialWithin)
	conn, err = amqp.DialConfig(url, amqp.Config{
		Heartbeat: heartbeat, Properties: properties, TLSClientConfig: c.TLS.Clone(),
		Dial: func(network, addr string) (net.Conn, error) {
			var err error
			raw, err = open(network, addr)
			return raw, err
		},
	})
	if err != nil {
		if raw != nil {
			_ = raw.Close()
		}
		return nil, nil, fmt.Errorf("connect to the broker: %w", err)
	}
	return conn, raw, nil
}

// declare makes the queues of retries and isolation, on a channel of its own:
// a refusal closes it.
func declare(conn *amqp.Connection, in *inbox.Inbox) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	for _, q := range in.Topology() {
		if _, err := ch.QueueDeclare(q.Name, true, false, false, false, amqp.Table(q.Arguments)); err != nil {
			return fmt.Errorf("declare %s (delete it if its arguments are older ones, or set Declared): %w", q.Name, err)
		}
	}
	if err := ch.Close(); err != nil {
		return fmt.Errorf("declare the queues of %s: %w", in.Queue, err)
	}
	return nil
}
