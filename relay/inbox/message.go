package inbox

import (
	"context"
	"crypto/sha256"
	"time"
)

// Message is what a delivery carries.
type Message struct {
	ID                           string // message-id, the key of once
	Type                         string
	ContentType, ContentEncoding string
	CorrelationID, ReplyTo       string
	AppID                        string
	Priority                     uint8
	Timestamp                    time.Time // zero if the publisher set none
	Headers                      map[string]any
	Body                         []byte
}

// Delivery is a message that waits for its acknowledgement.
type Delivery struct {
	Message
	Exchange, RoutingKey string
	Tag                  uint64
	Acknowledger         Acknowledger
}

// Acknowledger settles deliveries; the Acknowledger of amqp091's Delivery is one.
type Acknowledger interface {
	Ack(tag uint64, multiple bool) error
}

// Publisher publishes copies of messages, from several goroutines at once.
type Publisher interface {
	// Publish sends m to a queue through the default exchange, persistent and
	// mandatory. It returns nil only once the broker has confirmed the message
	// and has not returned it. Expiration is the message's own, 0 for none.
	Publish(ctx context.Context, queue string, m Message, expiration time.Duration) error
}

// Content is the hash that tells whether two messages of one id are the same:
// SHA-256 of the type's length in one byte, the type, and the body. What may
// differ on the way (headers, routing, timestamps) is not in it.
func Content(messageType string, body []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte{byte(len(messageType))})
	h.Write([]byte(messageType))
	h.Write(body)
	return [32]byte(h.Sum(nil))
}
