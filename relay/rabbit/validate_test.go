package rabbit

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const testFrameMax, testMaxBody = frameMax, 1 << 20

// poison lists messages that can never be sent, by what is wrong with them.
func poison() map[string]func(*Message) {
	long := strings.Repeat("x", 256)
	return map[string]func(*Message){
		"no message id":               func(m *Message) { m.ID = "" },
		"256-byte message id":         func(m *Message) { m.ID = long },
		"256-byte routing key":        func(m *Message) { m.RoutingKey = long },
		"256 bytes in 128 characters": func(m *Message) { m.RoutingKey = strings.Repeat("é", 128) },
		"128-byte exchange":           func(m *Message) { m.Exchange = long[:128] },
		"256-byte type":               func(m *Message) { m.Type = long },
		"256-byte content type":       func(m *Message) { m.ContentType = long },
		"256-byte correlation id":     func(m *Message) { m.CorrelationID = long },
		"256-byte reply to":           func(m *Message) { m.ReplyTo = long },
		"256-byte app id":             func(m *Message) { m.AppID = long },
		"direct reply to":             func(m *Message) { m.ReplyTo = "amq.rabbitmq.reply-to" },
		"expiration in words":         func(m *Message) { m.Expiration = "1h" },
		"negative expiration":         func(m *Message) { m.Expiration = "-1" },
		"signed expiration":           func(m *Message) { m.Expiration = "+1" },
		"huge expiration":             func(m *Message) { m.Expiration = "4294967296" },
		"timestamp before 1970":       func(m *Message) { m.Timestamp = time.Unix(-1, 0) },
		"256-byte header name":        func(m *Message) { m.Headers = []Header{{long, "v"}} },
		"header of 132 KB":            func(m *Message) { m.Headers = []Header{{"h", strings.Repeat("x", 132<<10)}} },
		"header of an unsigned":       func(m *Message) { m.Headers = []Header{{"h", uint64(1)}} },
		"header of nothing":           func(m *Message) { m.Headers = []Header{{"h", nil}} },
		"header twice":                func(m *Message) { m.Headers = []Header{{"h", "1"}, {"g", "1"}, {"h", "2"}} },
		"CC":                          func(m *Message) { m.Headers = []Header{{"CC", "other"}} },
		"BCC":                         func(m *Message) { m.Headers = []Header{{"BCC", "other"}} },
		"body above the maximum":      func(m *Message) { m.Body = make([]byte, testMaxBody+1) },
	}
}

// extreme lists messages that are as far out as a broker takes.
func extreme() map[string]func(*Message) {
	long := strings.Repeat("x", 255)
	odd := "\xff\xfe\x00\r\n é"
	return map[string]func(*Message){
		"longest strings": func(m *Message) {
			m.Type, m.ContentType, m.CorrelationID, m.ReplyTo, m.AppID = long, long, long, long, long
		},
		"longest expiration":  func(m *Message) { m.Expiration = "4294967295" },
		"latest timestamp":    func(m *Message) { m.Timestamp = time.Unix(253402300799, 0) },
		"timestamp zero":      func(m *Message) { m.Timestamp = time.Unix(0, 0) },
		"highest priority":    func(m *Message) { m.Priority = 255 },
		"transient":           func(m *Message) { m.Persistent = false },
		"empty body":          func(m *Message) { m.Body = nil },
		"largest body":        func(m *Message) { m.Body = make([]byte, testMaxBody) },
		"no UTF-8":            func(m *Message) { m.Type, m.AppID, m.CorrelationID, m.Headers = odd, odd, odd, []Header{{odd, odd}} },
		"longest header name": func(m *Message) { m.Headers = []Header{{long, int64(math.MinInt64)}} },
		"empty header":        func(m *Message) { m.Headers = []Header{{"", ""}} },
		"largest headers": func(m *Message) {
			m.Headers = []Header{{"h", ""}}
			m.Headers[0].Value = strings.Repeat("x", testFrameMax-frameOverhead-contentHeader-headerMargin-m.propertiesSize())
		},
	}
}

func TestValidationNamesWhatCannotBeSentAndPassesTheRest(t *testing.T) {
	for name, spoil := range poison() {
		m := message(1, "q")
		spoil(m)
		if m.validate(testFrameMax, testMaxBody) == "" {
			t.Errorf("%s: passed", name)
		}
	}
	for name, stretch := range extreme() {
		m := message(1, "q")
		stretch(m)
		if reason := m.validate(testFrameMax, testMaxBody); reason != "" {
			t.Errorf("%s: %s", name, reason)
		}
	}
	m := message(1, "q")
	m.Headers = []Header{{"h", strings.Repeat("x", 5000)}}
	if m.validate(minFrameMax, testMaxBody) == "" {
		t.Error("headers of 5000 bytes passed for a frame of 4096")
	}
}

func TestNoReasonQuotesAValue(t *testing.T) {
	const secret = "s3cret"
	for name, spoil := range map[string]func(*Message){
		"expiration": func(m *Message) { m.Expiration = secret },
		"header":     func(m *Message) { m.Headers = []Header{{"CC", secret}} },
		"body":       func(m *Message) { m.Body = bytes.Repeat([]byte(secret), testMaxBody) },
		"key":        func(m *Message) { m.RoutingKey = strings.Repeat(secret, 100) },
	} {
		m := message(1, "q")
		spoil(m)
		if reason := m.validate(testFrameMax, testMaxBody); reason == "" || strings.Contains(reason, secret) {
			t.Errorf("%s: %q", name, reason)
		}
	}
}

// FuzzAValidMessageIsOneTheEncoderTakes sends what validation passes through the
// library's encoder, and takes the frames apart: the property list must have
// exactly the size that was reckoned, and everything must be what it was.
func FuzzAValidMessageIsOneTheEncoderTakes(f *testing.F) {
	f.Add("id", "ex", "key", "type", "text/plain", "corr", "reply", "app", "60000", uint8(3), int64(1700000000), "name", "value", int64(7), []byte("body"))
	f.Add("", strings.Repeat("x", 128), strings.Repeat("é", 128), "", "", "", "", "", "-1", uint8(0), int64(-5), "CC", "\xff", int64(math.MinInt64), []byte{})
	f.Add("1", "", "q", strings.Repeat("t", 255), "", "", "amq.rabbitmq.reply-to", "", "4294967296", uint8(255), int64(0), strings.Repeat("h", 256), strings.Repeat("v", 4000), int64(1), make([]byte, 5000))
	client := newEncoder(f)
	f.Fuzz(func(t *testing.T, id, exchange, key, typ, contentType, corr, reply, app, expiration string, priority uint8, unix int64, name, text string, number int64, body []byte) {
		m := &Message{
			ID: id, Exchange: exchange, RoutingKey: key, Type: typ, ContentType: contentType, CorrelationID: corr, ReplyTo: reply,
			AppID: app, Expiration: expiration, Priority: priority, Body: body, Mandatory: true,
			Headers: []Header{{name, text}, {name + "2", number}},
		}
		if unix != 0 {
			m.Timestamp = time.Unix(unix, 0)
		}
		if m.validate(minFrameMax, 4096) != "" {
			return
		}
		client.check(t, m)
	})
}

// encoder is a library connection whose output is caught.
type encoder struct {
	fake *fake
	got  chan published
	ch   *amqp.Channel
}

func newEncoder(tb testing.TB) *encoder {
	e := &encoder{got: make(chan published)}
	e.fake = play(tb, func(_ int, c *peer) {
		if !c.login() || !c.confirms() {
			return
		}
		for p, ok := c.next(); ok; p, ok = c.next() {
			e.got <- p
		}
	})
	conn, err := amqp.Dial(e.fake.url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	if e.ch, err = conn.Channel(); err != nil {
		tb.Fatal(err)
	}
	if err = e.ch.Confirm(false); err != nil {
		tb.Fatal(err)
	}
	return e
}

func (e *encoder) check(t *testing.T, m *Message) {
	if _, err := e.ch.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, m.Mandatory, false, m.publishing()); err != nil {
		t.Fatalf("the encoder refuses %+v: %v", m, err)
	}
	p := <-e.got
	if p.id != m.ID || p.exchange != m.Exchange || p.key != m.RoutingKey || p.mandatory != m.Mandatory || !bytes.Equal(p.body, m.Body) {
		t.Fatalf("sent %+v, on the wire: %+v", m, p)
	}
	if size := len(p.header) - contentHeader; size != m.propertiesSize() {
		t.Fatalf("properties take %d bytes, reckoned %d", size, m.propertiesSize())
	}
	if size := binary.BigEndian.Uint64(p.header[4:]); size != uint64(len(m.Body)) {
		t.Fatalf("the body is announced with %d bytes, it has %d", size, len(m.Body))
	}
}
