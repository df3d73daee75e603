package rabbit

import (
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	minFrameMax = 4096       // the smallest that the protocol allows
	maxExpiry   = 4294967295 // milliseconds, RabbitMQ's own bound

	directReplyTo = "amq.rabbitmq.reply-to" // only for a channel that consumes from it
)

// validate says why a message can never be published on a connection with the
// given frame size, or "". What it lets through costs no connection and no
// channel for its form: over-long strings and headers would end the whole
// connection, the rest the channel with everything in flight on it.
func (m *Message) validate(frameMax, maxBody int64) string {
	if len(m.Body) > int(maxBody) {
		return fmt.Sprintf("the body has %d bytes, max_message_size is %d", len(m.Body), maxBody)
	}
	if m.ID == "" {
		return "the message id is empty"
	}
	if len(m.Exchange) > maxExchangeName {
		return tooLong("exchange", len(m.Exchange), maxExchangeName)
	}
	for _, f := range [...]struct{ name, value string }{
		{"message id", m.ID}, {"routing key", m.RoutingKey}, {"type", m.Type}, {"content type", m.ContentType},
		{"correlation id", m.CorrelationID}, {"reply to", m.ReplyTo}, {"app id", m.AppID},
	} {
		if len(f.value) > maxShortString {
			return tooLong(f.name, len(f.value), maxShortString)
		}
	}
	if m.ReplyTo == directReplyTo {
		return "reply to is " + directReplyTo + ", which only a channel that consumes replies may use"
	}
	if m.Expiration != "" && !validExpiration(m.Expiration) {
		return "the expiration is not a number of milliseconds up to " + strconv.Itoa(maxExpiry)
	}
	if !m.Timestamp.IsZero() && m.Timestamp.Unix() < 0 {
		return "the timestamp is before 1970"
	}
	if reason := m.validateHeaders(); reason != "" {
		return reason
	}
	if room := frameMax - frameOverhead - contentHeader - headerMargin; int64(m.propertiesSize()) > room {
		return fmt.Sprintf("headers and properties take %d bytes, the broker's frame has room for %d", m.propertiesSize(), room)
	}
	return ""
}

func (m *Message) validateHeaders() string {
	for i, h := range m.Headers {
		if len(h.Name) > maxShortString {
			return tooLong("name of header "+strconv.Itoa(i+1), len(h.Name), maxShortString)
		}
		switch h.Value.(type) {
		case string, int64:
		default:
			return fmt.Sprintf("header %q has a value of type %T", h.Name, h.Value)
		}
		if h.Name == "CC" || h.Name == "BCC" {
			return fmt.Sprintf("header %q is the broker's own and must be a list", h.Name)
		}
		for _, other := range m.Headers[:i] {
			if other.Name == h.Name {
				return fmt.Sprintf("header %q is there twice", h.Name)
			}
		}
	}
	return ""
}

func validExpiration(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n <= maxExpiry
}

func tooLong(what string, n, limit int) string {
	return fmt.Sprintf("the %s has %d bytes, AMQP allows %d", what, n, limit)
}

// publishing returns the message as the library wants it. The library keeps
// headers in a map and writes them in its order, so the order of two headers on
// the wire is not fixed; to a consumer a header table has none.
func (m *Message) publishing() amqp.Publishing {
	p := amqp.Publishing{
		MessageId:     m.ID,
		Type:          m.Type,
		ContentType:   m.ContentType,
		CorrelationId: m.CorrelationID,
		ReplyTo:       m.ReplyTo,
		AppId:         m.AppID,
		Expiration:    m.Expiration,
		Priority:      m.Priority,
		Timestamp:     m.Timestamp,
		DeliveryMode:  amqp.Transient,
		Body:          m.Body,
	}
	if m.Persistent {
		p.DeliveryMode = amqp.Persistent
	}
	if len(m.Headers) > 0 {
		p.Headers = make(amqp.Table, len(m.Headers))
		for _, h := range m.Headers {
			p.Headers[h.Name] = h.Value
		}
	}
	return p
}
