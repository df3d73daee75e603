package rabbit

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Probe looks at a broker through one connection, publishing nothing and leaving
// nothing behind. It must be closed. It is for one goroutine.
type Probe struct {
	c    *connection
	stop func() bool
}

// Probe connects to the first of the broker's urls that answers. To look at each
// node, give it one url at a time. When ctx is done, the probe's methods fail.
func (b Broker) Probe(ctx context.Context) (*Probe, error) {
	c, err := b.connect(ctx, controlBytes, func() {})
	if err != nil {
		return nil, err
	}
	return &Probe{c, context.AfterFunc(ctx, c.wire.abort)}, nil
}

// Close ends the connection.
func (p *Probe) Close() {
	p.stop()
	p.c.closeGently()
	<-p.c.wire.done
}

// Peer says what was reached.
func (p *Probe) Peer() Peer { return p.c.peer }

// MayFence reports why a lane could not hold a fence of that name: it takes the
// permissions configure and read. The name must be nobody's fence.
func (p *Probe) MayFence(name string) error {
	return p.try("declare, consume and delete the queue "+name, func(ch *amqp.Channel) error {
		if _, err := declareFence(ch, name); err != nil {
			return err
		}
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	})
}

// MayPublish reports why the broker would refuse a message: the exchange is
// missing, or the permission to write to it with that routing key. Whether a
// queue would get the message it cannot tell. The broker is asked by a
// transaction that is rolled back: it checks at once and delivers at commit.
func (p *Probe) MayPublish(exchange, routingKey string) error {
	return p.try(fmt.Sprintf("publish to exchange %q with routing key %q", exchange, routingKey), func(ch *amqp.Channel) error {
		if err := ch.Tx(); err != nil {
			return err
		}
		if err := ch.Publish(exchange, routingKey, false, false, amqp.Publishing{}); err != nil {
			return err
		}
		return ch.TxRollback()
	})
}

// ExchangeExists reports whether an exchange is there, asked as MayPublish does.
// An error says that it cannot be told, or that an empty routing key is refused.
func (p *Probe) ExchangeExists(name string) (bool, error) {
	err := p.MayPublish(name, "")
	if code, _ := replyCode(err); code == amqp.NotFound {
		return false, nil
	}
	return err == nil, err
}

// QueueExists reports whether a queue is there, which is where a message to the
// default exchange goes. Not known: the broker wants the permission configure
// for an answer (4.3 does).
func (p *Probe) QueueExists(name string) (exists, known bool, err error) {
	err = p.try("look for the queue "+name, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, false, false, false, false, nil)
		return err
	})
	switch code, _ := replyCode(err); {
	case err == nil, code == amqp.ResourceLocked: // another connection's own queue
		return true, true, nil
	case code == amqp.NotFound:
		return false, true, nil
	case code == amqp.AccessRefused:
		return false, false, nil
	}
	return false, false, err
}

// try runs requests on a channel of their own, which a refusal closes.
func (p *Probe) try(what string, requests func(*amqp.Channel) error) error {
	err := p.c.guard(func() error {
		ch, err := p.c.Channel()
		if err != nil {
			return err
		}
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		if err := requests(ch); err != nil {
			// A request that finds the channel closed does not say why.
			if reason := <-closed; errors.Is(err, amqp.ErrClosed) && reason != nil {
				return reason
			}
			return err
		}
		return ch.Close()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, plainly(err))
	}
	return nil
}
