package relay

import (
	"fmt"
	"strconv"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// keyColumn is a column of what finds a row again by SQL: the primary key, or
// the id's column in a table without one.
type keyColumn struct {
	name    string
	index   int
	kind    string // its type
	binary  bool
	integer bool
}

// operand is the column's side of a comparison in which the server compares
// exactly: a number that stands as text would be compared as a DOUBLE.
func (k keyColumn) operand() string {
	if k.kind == "decimal" {
		return "CAST(? AS DECIMAL(65,30))"
	}
	return "?"
}

// argument is a value of the column for operand.
func (k keyColumn) argument(value string) any {
	if k.integer {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			return n
		}
	}
	if k.binary {
		return []byte(value)
	}
	return value
}

// compileMapping resolves the configuration of a table against its shape.
func compileMapping(c *configs.Table, shape *canal.Table, number uint32) (*mapping, error) {
	m := &mapping{shape: shape, number: number, keep: c.AfterPublish == configs.Keep, persistent: c.Publish.Persistent, mandatory: c.Publish.Mandatory}
	var err error
	tmpl := func(t configs.Template) template {
		compiled, e := compileTemplate(t, shape)
		if e != nil && err == nil {
			err = e
		}
		return compiled
	}
	column := func(name string) int {
		if name == "" {
			return -1
		}
		i, e := columnIndex(shape, name)
		if e != nil && err == nil {
			err = e
		}
		return i
	}
	m.id, m.exchange, m.routingKey = tmpl(c.Columns.ID), tmpl(c.Publish.Exchange), tmpl(c.Publish.RoutingKey)
	m.key, m.hasKey = tmpl(c.Columns.Key), !c.Columns.Key.Empty() && c.Ordering != configs.OrderNone
	m.body, m.timestamp, m.headersFrom = column(c.Columns.Body), column(c.Publish.Timestamp), column(c.Publish.HeadersFrom)
	m.status, m.deliverAt, m.nextAt = column(c.Status.Column), column(c.DeliverAt), column(c.Status.NextAttemptAt)
	for _, p := range []struct {
		name string
		from configs.Template
		set  func(*rabbit.Message, string) error
	}{
		{"type", c.Publish.Type, func(m *rabbit.Message, s string) error { m.Type = s; return nil }},
		{"content_type", c.Publish.ContentType, func(m *rabbit.Message, s string) error { m.ContentType = s; return nil }},
		{"correlation_id", c.Publish.CorrelationID, func(m *rabbit.Message, s string) error { m.CorrelationID = s; return nil }},
		{"reply_to", c.Publish.ReplyTo, func(m *rabbit.Message, s string) error { m.ReplyTo = s; return nil }},
		{"app_id", c.Publish.AppID, func(m *rabbit.Message, s string) error { m.AppID = s; return nil }},
		{"expiration", c.Publish.Expiration, func(m *rabbit.Message, s string) error { m.Expiration = s; return nil }},
		{"priority", c.Publish.Priority, setPriority},
	} {
		if !p.from.Empty() {
			m.properties = append(m.properties, property{tmpl(p.from), p.name, p.set})
		}
	}
	for _, h := range c.Publish.Headers {
		compiled := header{name: h.Name, value: tmpl(h.Value), integer: -1}
		if i, ok := compiled.value.lone(); ok && err == nil && shape.Columns[i].Integer {
			compiled.integer = i
		}
		m.headers = append(m.headers, compiled)
	}
	for _, f := range c.Where {
		m.filters = append(m.filters, filter{column(f.Column), f.In, f.Not})
	}
	if err == nil {
		err = m.compileRowKey(c)
	}
	if err != nil {
		return nil, fmt.Errorf("map table %s: %w", shape, err)
	}
	return m, nil
}

func (m *mapping) compileRowKey(c *configs.Table) error {
	columns := m.shape.Primary
	if len(columns) == 0 {
		i, ok := m.id.lone()
		if !ok {
			// A formatted column is still a column that finds its row.
			if name, _, lone := c.Columns.ID.Lone(); lone {
				i, _ = columnIndex(m.shape, name)
			} else if c.AfterPublish != configs.Keep {
				return fmt.Errorf("it has neither a primary key nor an id that is one column: add a primary key, or use after_publish: keep")
			} else {
				return nil
			}
		}
		columns = []int{i}
	}
	for _, i := range columns {
		c := m.shape.Columns[i]
		m.rowKey = append(m.rowKey, keyColumn{name: c.Name, index: i, kind: c.Type, binary: c.Binary, integer: c.Integer})
	}
	return nil
}

func setPriority(m *rabbit.Message, s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return fmt.Errorf("is not a whole number from 0 to 255")
	}
	m.Priority = uint8(n)
	return nil
}
