package rabbit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/checkpoint/broken"
)

const fenceRetry = 500 * time.Millisecond // ceiling

var errFenceLost = errors.New("the fence was lost: the broker cancelled its consumer")

// takeFence declares the exclusive queue name on a connection and consumes from
// it (P4). While any other connection holds the queue this waits, calling held
// once: an exclusive queue dies with its connection, after everything that the
// connection had published was dealt with. Without a consumer an `expires`
// policy would remove the queue under its living owner; with one, the returned
// channel closes when the fence is lost for any reason.
func takeFence(ctx context.Context, c *connection, name string, held func()) (<-chan amqp.Delivery, error) {
	if broken.SkipFence {
		name = fmt.Sprintf("%s.%d", name, os.Getpid())
	}
	for n := 0; ; n++ {
		deliveries, err := tryFence(c, name)
		if err == nil {
			return deliveries, nil
		}
		var e *amqp.Error
		if !errors.As(err, &e) || e.Code != amqp.ResourceLocked {
			return nil, fmt.Errorf("take the fence %q (it needs the permissions configure and read): %w", name, plainly(err))
		}
		if n == 0 {
			held()
		}
		if err := pause(ctx, backoff(n, fenceRetry)); err != nil {
			return nil, fmt.Errorf("wait for the fence %q, which another connection holds: %w", name, err)
		}
	}
}

// tryFence tries once, on a channel of its own: a refusal closes it.
func tryFence(c *connection, name string) (deliveries <-chan amqp.Delivery, err error) {
	err = c.guard(func() error {
		ch, err := c.Channel()
		if err != nil {
			return err
		}
		deliveries, err = declareFence(ch, name)
		return err
	})
	return deliveries, err
}

// declareFence makes the queue: classic and transient whatever the vhost's
// default type is, as a fence must die with its connection.
func declareFence(ch *amqp.Channel, name string) (<-chan amqp.Delivery, error) {
	if _, err := ch.QueueDeclare(name, false, false, true, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
		return nil, err
	}
	return ch.Consume(name, "fence", true, true, false, false, nil)
}

// TakeFences waits until no other connection holds any of the named fences,
// through outages too, and lets them go again. When it returns nil, whoever
// held them before has lost its connection and must take them anew (and prove
// its lease) before it publishes: how a new leader makes sure of an old one's
// lanes that are not its own (P4).
func (b Broker) TakeFences(ctx context.Context, names []string) error {
	for n := 0; ; n++ {
		err := b.takeFences(ctx, names)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err) // an aborted request says only that its socket is closed
		}
		if err == nil {
			return nil
		}
		if pause(ctx, backoff(n, retryCeiling)) != nil {
			return err
		}
	}
}

func (b Broker) takeFences(ctx context.Context, names []string) error {
	c, err := b.connect(ctx, controlBytes, func() {})
	if err != nil {
		return err
	}
	defer c.closeGently()
	defer context.AfterFunc(ctx, c.wire.abort)()
	for _, name := range names {
		if _, err := takeFence(ctx, c, name, func() {}); err != nil {
			return err
		}
	}
	return nil
}
