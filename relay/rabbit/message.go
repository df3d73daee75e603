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
