package relay

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// mapping turns rows of one shape of one table into messages. It is compiled
// once per shape and passive; its buffers belong to the goroutine that maps.
//
// Everything textual of a message is rendered into one buffer that becomes one
// string, which the message's fields share: a row costs few allocations. The
// result depends on the row and the configuration alone, never on the way that
// the row came (P5).
type mapping struct {
	shape  *canal.Table
	number uint32 // the table's, first bytes of every gate and ref

	id, key, exchange, routingKey template
	hasKey                        bool
	properties                    []property
	headers                       []header
	headersFrom                   int // column, -1 for none
	body                          int
	timestamp                     int // column, -1 for none
	persistent, mandatory         bool
	keep                          bool // rows of a keep table have the message id as ref

	filters   []filter
	rowKey    []keyColumn
	status    int // column, -1 for none
	deliverAt int // column, -1 for none
	nextAt    int // column, -1 for none

	buf  []byte
	ends []int
}

// property is a message property that is a template.
type property struct {
	template
	name string
	set  func(*rabbit.Message, string) error
}

type header struct {
	name    string
	value   template
	integer int // column of a lone integer, -1 otherwise
}

// filter is one entry of where.
type filter struct {
	column  int
	in, not []configs.Value
}

// passes says whether where lets the row through.
func (m *mapping) passes(row *canal.Row) bool {
	for i := range m.filters {
		f := &m.filters[i]
		if f.in != nil && !matches(f.in, row.Values[f.column]) {
			return false
		}
		if matches(f.not, row.Values[f.column]) {
			return false
		}
	}
	return true
}

func matches(values []configs.Value, have []byte) bool {
	for _, v := range values {
		if v.Null == (have == nil) && v.Text == string(have) {
			return true
		}
	}
	return false
}

// entry maps a row. A row that cannot become a message has fault set (poison);
// its key and ref are set all the same, so that it can be parked in its place.
func (m *mapping) entry(row *canal.Row, e *entry) {
	e.row = *row
	m.buf, m.ends = m.buf[:0], m.ends[:0]
	err := m.render(row)
	text := string(m.buf)
	field := func() string {
		end := m.ends[0]
		s := text[:end-(len(m.buf)-len(text))]
		text, m.ends = text[len(s):], m.ends[1:]
		return s
	}
	ends := m.ends
	e.ref = field()
	e.gate = field()
	if err == nil {
		err = m.fill(row, &e.message, field)
	}
	m.ends = ends
	if m.keep {
		e.ref = m.keepRef(row, e.message.ID)
	}
	if err != nil {
		e.fault = &fault{class: classPoison, reason: err.Error()}
	}
	e.weight = int64(len(m.buf)+len(e.message.Body)) + entryOverhead
}

// keepRef is the ref of a row of a keep table: it is found by its message id,
// and never by SQL. The application may delete it and use its primary key again
// while it is parked: then both are sent. A row without an id is told from
// others by all it has.
func (m *mapping) keepRef(row *canal.Row, id string) string {
	ref := binary.BigEndian.AppendUint32(nil, m.number)
	if id != "" {
		return string(append(ref, id...))
	}
	sum := sha256.Sum256(row.AppendImage(nil))
	return string(append(append(ref, 0), sum[:]...))
}

// entryOverhead is what an entry costs beside its texts: a bound on memory needs it.
const entryOverhead = 512

// render writes ref, gate, id, exchange, routing key, properties and headers
// into buf, each one's end into ends. It stops at the first error.
func (m *mapping) render(row *canal.Row) error {
	cut := func() { m.ends = append(m.ends, len(m.buf)) }
	m.buf = m.appendRef(m.buf, row)
	cut()
	if err := m.renderGate(row); err != nil {
		cut()
		return fmt.Errorf("key: %w", err)
	}
	cut()
	for _, required := range []struct {
		name string
		t    *template
	}{{"id", &m.id}, {"exchange", &m.exchange}, {"routing key", &m.routingKey}} {
		var null bool
		var err error
		if m.buf, null, err = required.t.append(m.buf, row); err != nil {
			return fmt.Errorf("%s: %w", required.name, err)
		}
		if null {
			return fmt.Errorf("%s: a column of it is NULL", required.name)
		}
		cut()
	}
	for i := range m.properties {
		var err error
		if m.buf, _, err = m.properties[i].append(m.buf, row); err != nil {
			return fmt.Errorf("%s: %w", m.properties[i].name, err)
		}
		cut()
	}
	for i := range m.headers {
		var null bool
		var err error
		if m.buf, null, err = m.headers[i].value.append(m.buf, row); err != nil {
			return fmt.Errorf("header %s: %w", m.headers[i].name, err)
		}
		if null {
			m.ends = append(m.ends, -1)
			continue
		}
		cut()
	}
	return nil
}

// appendRef writes what finds the row again: the table's number, then each value
// of the row key behind its length.
func (m *mapping) appendRef(dst []byte, row *canal.Row) []byte {
	dst = binary.BigEndian.AppendUint32(dst, m.number)
	for _, k := range m.rowKey {
		dst = binary.AppendUvarint(dst, uint64(len(row.Values[k.index])))
		dst = append(dst, row.Values[k.index]...)
	}
	return dst
}

// ref is the row's ref alone.
func (m *mapping) ref(row *canal.Row) string { return string(m.appendRef(nil, row)) }

func (m *mapping) renderGate(row *canal.Row) error {
	if !m.hasKey {
		return nil
	}
	start := len(m.buf)
	m.buf = binary.BigEndian.AppendUint32(m.buf, m.number)
	var null bool
	var err error
	m.buf, null, err = m.key.append(m.buf, row)
	if null || err != nil {
		m.buf = m.buf[:start] // NULL means unordered
	}
	return err
}

// fill takes what render wrote into the message.
func (m *mapping) fill(row *canal.Row, msg *rabbit.Message, field func() string) error {
	msg.ID, msg.Exchange, msg.RoutingKey = field(), field(), field()
	if msg.ID == "" {
		return fmt.Errorf("id: it is empty")
	}
	msg.Persistent, msg.Mandatory = m.persistent, m.mandatory
	for i := range m.properties {
		if s := field(); s != "" {
			if err := m.properties[i].set(msg, s); err != nil {
				return fmt.Errorf("%s: %w", m.properties[i].name, err)
			}
		}
	}
	if n := len(m.headers); n > 0 {
		msg.Headers = make([]rabbit.Header, 0, n)
	}
	for i := range m.headers {
		h := &m.headers[i]
		if m.ends[0] < 0 {
			m.ends = m.ends[1:]
			continue
		}
		text := field()
		if h.integer >= 0 {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				msg.Headers = append(msg.Headers, rabbit.Header{Name: h.name, Value: n})
				continue
			}
		}
		msg.Headers = append(msg.Headers, rabbit.Header{Name: h.name, Value: text})
	}
	if m.headersFrom >= 0 {
		var err error
		if msg.Headers, err = appendJSONHeaders(msg.Headers, row.Values[m.headersFrom]); err != nil {
			return fmt.Errorf("headers_from: %w", err)
		}
	}
	if m.timestamp >= 0 && row.Values[m.timestamp] != nil {
		at, err := parseTime(row.Values[m.timestamp])
		if err != nil {
			return fmt.Errorf("timestamp: %w", err)
		}
		msg.Timestamp = at.Truncate(time.Second)
	}
	msg.Body = row.Values[m.body]
	return nil
}

// due returns when the row may be sent at the earliest, zero for at once.
func (m *mapping) due(row *canal.Row) (time.Time, error) {
	var latest time.Time
	for _, i := range [...]int{m.deliverAt, m.nextAt} {
		if i < 0 || row.Values[i] == nil {
			continue
		}
		at, err := parseTime(row.Values[i])
		if err != nil {
			return time.Time{}, fmt.Errorf("column %s: %w", m.shape.Columns[i].Name, err)
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, nil
}

// parseTime reads a DATETIME, TIMESTAMP or DATE as SELECT shows it in UTC, or
// a whole number of Unix seconds. The zero date is the zero time.
func parseTime(value []byte) (time.Time, error) {
	text := string(value)
	for _, layout := range [...]string{time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return at, nil
		}
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(seconds, 0).UTC(), nil
	}
	if len(text) >= 10 && text[:10] == "0000-00-00" {
		return time.Time{}, nil
	}
	return time.Time{}, fmt.Errorf("it is not a date and time")
}

// keyValues takes a ref apart again: the values of the row key's columns.
func (m *mapping) keyValues(ref string) []any {
	rest := ref[4:]
	values := make([]any, 0, len(m.rowKey))
	for _, k := range m.rowKey {
		n, size := uvarint(rest)
		value := rest[size : size+int(n)]
		rest = rest[size+int(n):]
		values = append(values, k.argument(value))
	}
	return values
}

// uvarint is binary.Uvarint for a string that AppendUvarint wrote.
func uvarint(s string) (value uint64, size int) {
	for shift := 0; ; shift += 7 {
		b := s[size]
		size++
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, size
		}
	}
}
