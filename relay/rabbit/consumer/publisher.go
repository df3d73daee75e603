package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/relay/inbox"
)

// confirmWithin bounds the wait for one confirm; what happens after it is
// unknown, and a copy may then exist twice.
const confirmWithin = 30 * time.Second

// publisher publishes copies on confirm channels, one message in flight on
// each, so that a return can only be that message's.
type publisher struct {
	conn *amqp.Connection
	free chan *confirmChannel // as many as may exist; nil: not opened yet
}

func newPublisher(conn *amqp.Connection, channels int) *publisher {
	p := &publisher{conn: conn, free: make(chan *confirmChannel, channels)}
	for range channels {
		p.free <- nil
	}
	return p
}

type confirmChannel struct {
	*amqp.Channel
	returns chan amqp.Return
}

// Publish implements inbox.Publisher. A channel that failed is closed, and the
// next message opens another.
func (p *publisher) Publish(ctx context.Context, queue string, m inbox.Message, expiration time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	var ch *confirmChannel
	select {
	case ch = <-p.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.free <- ch }()
	if ch == nil || ch.IsClosed() {
		if ch, err = p.open(); err != nil {
			ch = nil
			return err
		}
	}
	known, err := ch.publish(ctx, queue, m, expiration)
	if !known {
		_ = ch.Close() // the answer that may still come must not meet the next message
		ch = nil
	}
	return err
}

func (p *publisher) open() (*confirmChannel, error) {
	ch, err := p.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := ch.Confirm(false); err != nil {
		return nil, errors.Join(fmt.Errorf("select confirms: %w", err), ch.Close())
	}
	// Room for the one return that can come: it never waits and is never dropped.
	return &confirmChannel{ch, ch.NotifyReturn(make(chan amqp.Return, 1))}, nil
}

// publish sends one message and waits for its answer; known says that it came.
func (ch *confirmChannel) publish(ctx context.Context, queue string, m inbox.Message, expiration time.Duration) (known bool, err error) {
	out := amqp.Publishing{
		MessageId: m.ID, Type: m.Type, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		CorrelationId: m.CorrelationID, ReplyTo: m.ReplyTo, AppId: m.AppID, Priority: m.Priority,
		Timestamp: m.Timestamp, Headers: m.Headers, Body: m.Body, DeliveryMode: amqp.Persistent,
	}
	if expiration > 0 {
		out.Expiration = strconv.FormatInt(min(expiration.Milliseconds(), math.MaxInt32), 10)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, out)
	if err != nil {
		return false, fmt.Errorf("publish to %s: %w", queue, err)
	}
	acked, err := confirm.WaitContext(ctx)
	if err != nil {
		return false, fmt.Errorf("publish to %s: no confirm: %w", queue, err)
	}
	select { // a return comes before its confirm
	case r, open := <-ch.returns:
		if open {
			return true, fmt.Errorf("publish to %s: returned: %s", queue, r.ReplyText)
		}
	default:
	}
	if !acked {
		return !ch.IsClosed(), fmt.Errorf("publish to %s: the broker did not take it", queue)
	}
	return true, nil
}
