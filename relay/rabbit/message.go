package rabbit

import "time"

// Message is one publish, complete: equal messages are equal bytes at the consumer.
type Message struct {
	ID         string // message-id: the outbox row's unique id, and what a return is matched by
	Exchange   string // "" is the default exchange
	RoutingKey string

	Type          string
	ContentType   string
	CorrelationID string
	ReplyTo       string
	AppID         string
	Expiration    string    // milliseconds in decimal digits, "" for none
	Priority      uint8     // 0 to 255
	Timestamp     time.Time // whole seconds; zero for none
	Persistent    bool
	Mandatory     bool

	Headers []Header // in this order, names unique
	Body    []byte
}

// Header is one entry of a message's header table. Value is a string or an int64.
type Header struct {
	Name  string
	Value any
}

// Ticket pairs a message with the caller's token, which comes back in its outcome.
type Ticket struct {
	Token   uint64
	Message *Message
}

// Result is how the broker answered one message.
type Result uint8

// The results.
const (
	Delivered  Result = iota // confirmed and not returned
	Unroutable               // confirmed, but returned: no queue got it
	Nacked                   // negatively confirmed by the broker
	Refused                  // the channel died of it: exchange missing (404), no permission (403)
	Poison                   // can never be sent as it is: too large, a property out of its bounds (406, or found before sending)
	Unknown                  // no answer within the confirm timeout
)

// Outcome is the one answer to a Ticket.
type Outcome struct {
	Token  uint64
	Result Result
	Code   int    // AMQP reply code, 0 without one
	Reason string // the broker's text or the validation's, without payload; "" when delivered
}

// Bounds of the protocol, in bytes.
const (
	maxShortString  = 255
	maxExchangeName = 127
	frameOverhead   = 8
	contentHeader   = 14 // class, weight, body size, property flags
	headerMargin    = 64 // kept free in a header frame
)

// Size returns the bytes that the message takes in flight, an upper bound of
// its encoding. It is what a lane's in-flight bytes are counted in.
func (m *Message) Size() int {
	const methodFrame = frameOverhead + 16
	bodyFrames := (len(m.Body)/(minFrameMax-frameOverhead) + 1) * frameOverhead
	return methodFrame + len(m.Exchange) + len(m.RoutingKey) +
		frameOverhead + contentHeader + m.propertiesSize() + bodyFrames + len(m.Body)
}

// propertiesSize returns the exact encoded size of the properties.
func (m *Message) propertiesSize() int {
	n := 1 // delivery mode
	for _, s := range [...]string{m.ID, m.Type, m.ContentType, m.CorrelationID, m.ReplyTo, m.AppID, m.Expiration} {
		if s != "" {
			n += 1 + len(s)
		}
	}
	if m.Priority != 0 {
		n++
	}
	if !m.Timestamp.IsZero() {
		n += 8
	}
	if len(m.Headers) > 0 {
		n += 4
	}
	for _, h := range m.Headers {
		n += 1 + len(h.Name) + 1
		if s, ok := h.Value.(string); ok {
			n += 4 + len(s)
		} else {
			n += 8
		}
	}
	return n
}
