package inbox

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Headers of a message that waits for its next try.
const (
	headerFailures    = "x-towpath-failures"     // tries that have failed, int64
	headerFirstFailed = "x-towpath-first-failed" // when the first one did, Unix milliseconds, int64
)

// Headers of an isolated message. Put back into the queue, it starts anew: the
// headers above are not on it.
const (
	HeaderReason     = "x-towpath-reason"      // one of the reasons below
	HeaderError      = "x-towpath-error"       // text of the last error, cut to 1000 bytes
	HeaderConsumer   = "x-towpath-consumer"    // who isolated it
	HeaderTries      = "x-towpath-tries"       // int64
	HeaderIsolatedAt = "x-towpath-isolated-at" // RFC 3339, UTC
	HeaderExchange   = "x-towpath-exchange"    // where the relay published it
	HeaderRoutingKey = "x-towpath-routing-key"
)

// Reasons of isolation.
const (
	ReasonPermanent = "permanent"         // the handler said so
	ReasonContent   = "different-content" // its id was processed with other content
	ReasonNoID      = "no-message-id"
	ReasonTries     = "tries" // the delays are used up
	ReasonTime      = "time"  // the wall-clock limit is
)

// spread is how far a delay is spread either way.
const spread = 0.25

// longest is how long a message waits in a retry queue at most: the queue's own TTL.
func longest(delay time.Duration) time.Duration { return delay + time.Duration(spread*float64(delay)) }

// spreadDelay draws one message's delay. It expires at the head of the queue
// only, so that it may wait for those before it, up to longest.
func spreadDelay(delay time.Duration) time.Duration {
	return time.Duration(float64(delay) * (1 - spread + 2*spread*rand.Float64()))
}

// Queue is a queue to declare: durable, with these arguments.
type Queue struct {
	Name      string
	Arguments map[string]any
}

// RetryQueue is the name of the queue in which a message waits for a delay.
func (in *Inbox) RetryQueue(delay time.Duration) string {
	text := delay.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return in.Config.Queue + ".retry." + text
}

// IsolationQueue is the name of the queue for messages that a person must see.
func (in *Inbox) IsolationQueue() string { return in.Config.Queue + ".isolated" }

// MainQueue is how the consumer's own queue should be declared, by whoever owns
// it: RabbitMQ 4 drops a message after 20 deliveries that were not acknowledged,
// those to consumers that died included. This way it goes to isolation instead.
func (in *Inbox) MainQueue() Queue {
	return Queue{in.Config.Queue, map[string]any{
		"x-queue-type":              "quorum",
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": in.IsolationQueue(),
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish", // the strategy asks for it
	}}
}

// Topology lists the queues that retries and isolation need, quorum queues all.
// A message waits in a retry queue until it expires and is then dead-lettered,
// at least once, back into the consumer's queue. This needs RabbitMQ 3.10.
func (in *Inbox) Topology() []Queue {
	queues := []Queue{{in.IsolationQueue(), map[string]any{"x-queue-type": "quorum"}}}
	delays := slices.Compact(slices.Sorted(slices.Values(in.Delays)))
	for _, d := range delays {
		queues = append(queues, Queue{in.RetryQueue(d), map[string]any{
			"x-queue-type":              "quorum",
			"x-message-ttl":             longest(d).Milliseconds(),
			"x-dead-letter-exchange":    "",
			"x-dead-letter-routing-key": in.Config.Queue,
			"x-dead-letter-strategy":    "at-least-once",
			"x-overflow":                "reject-publish", // the strategy asks for it
		}})
	}
	return queues
}

// next decides what a failed try leads to: a copy for a retry queue after a
// delay, or the reason why there is none.
func (in *Inbox) next(d Delivery, now time.Time) (retry Message, delay time.Duration, reason string) {
	failed, first := failures(d.Headers)
	if first.IsZero() {
		first = now
	}
	if failed >= len(in.Delays) {
		return Message{}, 0, ReasonTries
	}
	delay = spreadDelay(in.Delays[failed])
	if now.Add(delay).Sub(first) > in.Within {
		return Message{}, 0, ReasonTime
	}
	retry = d.Message
	retry.Headers = cleanHeaders(d.Headers)
	retry.Headers[headerFailures] = int64(failed + 1)
	retry.Headers[headerFirstFailed] = first.UnixMilli()
	keepOrigin(d, retry.Headers)
	return retry, delay, ""
}

// isolated is the copy for the isolation queue.
func (in *Inbox) isolated(d Delivery, reason string, cause error, now time.Time) Message {
	failed, _ := failures(d.Headers)
	m := d.Message
	m.Headers = cleanHeaders(d.Headers)
	keepOrigin(d, m.Headers)
	delete(m.Headers, headerFailures)
	delete(m.Headers, headerFirstFailed)
	m.Headers[HeaderReason] = reason
	m.Headers[HeaderError] = cut(cause.Error(), 1000)
	m.Headers[HeaderConsumer] = in.Consumer
	m.Headers[HeaderTries] = int64(failed + 1)
	m.Headers[HeaderIsolatedAt] = now.UTC().Format(time.RFC3339)
	return m
}

// keepOrigin notes where the message was published first: on its way back it
// comes through the default exchange.
func keepOrigin(d Delivery, headers map[string]any) {
	if _, noted := headers[HeaderExchange]; !noted {
		headers[HeaderExchange], headers[HeaderRoutingKey] = d.Exchange, d.RoutingKey
	}
}

// failures reads the retry headers; what is not a sane number counts as none.
func failures(headers map[string]any) (failed int, first time.Time) {
	if n, ok := headers[headerFailures].(int64); ok && n > 0 && n < 1<<20 {
		failed = int(n)
	}
	if ms, ok := headers[headerFirstFailed].(int64); ok && ms > 0 {
		first = time.UnixMilli(ms)
	}
	return failed, first
}

// cleanHeaders copies headers without what the broker adds by itself.
func cleanHeaders(headers map[string]any) map[string]any {
	clean := make(map[string]any, len(headers)+8)
	maps.Copy(clean, headers)
	maps.DeleteFunc(clean, func(name string, _ any) bool {
		return name == "x-death" || name == "x-delivery-count" || name == "x-acquired-count" || name == "x-opt-deaths" ||
			strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
	})
	return clean
}

// cut shortens a text to at most n bytes and whole characters.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
