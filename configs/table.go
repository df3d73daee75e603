package configs

import (
	"strings"
	"time"
)

// Table is one entry of tables: every table that it matches, each with a state
// of its own, under one mapping.
type Table struct {
	Tables       []Pattern // the key "table": one or more
	Name         string    // label in metrics and logs; empty: see Label
	Columns      Columns
	Publish      Publish
	Where        []Filter // all must let the row pass; in the order of the file
	Start        Start
	Ordering     Ordering
	AfterPublish AfterPublish
	Status       Status // filled for Mark, else zero
	DeliverAt    string // column, empty: none; not before the time it holds
	Retry        Retry
	MaxParked    int
	Fallback     Fallback
	OnGap        OnGap
	Retention    Retention // zero: rows stay
}

// Columns maps the row itself.
type Columns struct {
	ID   Template // the message id; names at least one column
	Key  Template // the ordering key; empty: unordered
	Body string   // column
}

// Publish maps the row to a message. Exchange and RoutingKey may render "";
// any other template that is empty leaves its property out.
type Publish struct {
	Exchange      Template
	RoutingKey    Template
	Type          Template
	ContentType   Template
	CorrelationID Template
	ReplyTo       Template
	AppID         Template
	Priority      Template // renders 0 to 255
	Expiration    Template // renders milliseconds
	Headers       []Header // sorted by name
	HeadersFrom   string   // column with a JSON object, empty: none; Headers win
	Timestamp     string   // column, empty: none
	Persistent    bool
	Mandatory     bool
}

// Header is one named header of a message.
type Header struct {
	Name  string // 1 to 255 bytes
	Value Template
}

// Filter lets a row pass by one column. A row passes when its value is in In
// (if that is given) and not in Not. NULL equals only a null Value, so a Not
// without null lets NULL pass and an In without null does not.
type Filter struct {
	Column string
	In     []Value
	Not    []Value
}

// Value is a value as SELECT shows it, or NULL.
type Value struct {
	Text string
	Null bool
}

// Start says where a table without a position begins.
type Start string

const (
	StartTable Start = "table" // sweep the unsent rows, then stream; not for Keep
	StartNow   Start = "now"   // only what commits from now on
	StartAll   Start = "all"   // every row that is there, then stream; only for Keep
)

// Ordering says what holds among rows of one key when the broker refuses one.
type Ordering string

const (
	OrderStrict Ordering = "strict" // one message of a key at a time
	OrderFast   Ordering = "fast"   // pipelined; a refusal may reorder, counted
	OrderNone   Ordering = "none"   // the key is not used
)

// AfterPublish says what becomes of a row whose message was confirmed.
type AfterPublish string

const (
	Mark   AfterPublish = "mark"   // its status is set
	Delete AfterPublish = "delete" // it is deleted
	Keep   AfterPublish = "keep"   // it stays as it is
)

// OnGap says what follows when the binlog cannot show what was missed.
type OnGap string

const (
	GapSweep OnGap = "sweep" // read the unsent rows from the table; not for Keep
	GapHalt  OnGap = "halt"  // wait for a person
)

// StatusValue is a value of the status column as SELECT shows it ("PENDING",
// "0"); empty: not given.
type StatusValue string

// Status is the life cycle of a row in the application's own names and values,
// all distinct. Columns that are empty are not written.
type Status struct {
	Column        string
	Pending, Sent StatusValue
	Failed        StatusValue   // optional
	Withdrawn     []StatusValue // optional
	Processing    StatusValue   // optional, a former poller's claim; with LockedUntil
	LockedUntil   string        // column
	SentAt        string        // column
	Attempts      string        // column
	NextAttemptAt string        // column
	LastError     string        // column
}

// Retry spaces the attempts at a refused row: Base, times Factor each time, at
// most Max, each spread by the part Jitter of itself (0 to 1).
type Retry struct {
	Base     time.Duration
	Factor   float64
	Max      time.Duration
	Attempts int
	Jitter   float64
}

// Fallback is the polling of row state beside the stream.
type Fallback struct {
	Every time.Duration
	Batch int // rows in one read
}

// Retention removes rows that were proven sent; only with Mark and SentAt.
type Retention struct {
	SentFor   time.Duration // 0: off
	ArchiveTo Pattern       // literal; zero: rows are deleted without a copy
}

// Matches tells whether the entry covers the table. Letter case counts.
func (t *Table) Matches(schema, table string) bool {
	for _, p := range t.Tables {
		if p.Matches(schema, table) {
			return true
		}
	}
	return false
}

// Label names a matched table in metrics and logs.
func (t *Table) Label(schema, table string) string {
	if t.Name != "" {
		return t.Name
	}
	return schema + "." + table
}

// Reads lists every column that the relay must see in a row, each once: what
// the mapping, the filters, deliver_at, the life cycle and retention use. The
// primary key comes on top.
func (t *Table) Reads() []string {
	var c columnSet
	for _, u := range t.uses() {
		c.add(u.column)
	}
	s := t.Status
	c.add(s.Column, s.LockedUntil, s.Attempts, s.NextAttemptAt)
	if t.Retention.SentFor > 0 {
		c.add(s.SentAt)
	}
	return c.names
}

// Writes lists every column that the relay may set in a row, each once; none
// for a table that is not Mark.
func (t *Table) Writes() []string {
	var c columnSet
	s := t.Status
	c.add(s.Column, s.LockedUntil, s.SentAt, s.Attempts, s.NextAttemptAt, s.LastError)
	return c.names
}

// use is a column that decides what is published or when, and the key that
// names it, relative to the table's.
type use struct{ key, column string }

// uses lists what P5 is about: everything that goes into a message or decides
// whether and when it is sent, apart from the life cycle itself.
func (t *Table) uses() []use {
	var all []use
	template := func(key string, v Template) {
		for _, column := range v.Columns() {
			all = append(all, use{key, column})
		}
	}
	column := func(key, name string) {
		if name != "" {
			all = append(all, use{key, name})
		}
	}
	template("columns.id", t.Columns.ID)
	template("columns.key", t.Columns.Key)
	column("columns.body", t.Columns.Body)
	for _, named := range t.Publish.templates() {
		template("publish."+named.key, named.Template)
	}
	for _, h := range t.Publish.Headers {
		template("publish.headers."+h.Name, h.Value)
	}
	column("publish.headers_from", t.Publish.HeadersFrom)
	column("publish.timestamp", t.Publish.Timestamp)
	for _, f := range t.Where {
		column("where."+f.Column, f.Column)
	}
	column("deliver_at", t.DeliverAt)
	return all
}

// namedTemplate is a template under its key in publish.
type namedTemplate struct {
	key string
	Template
}

func (p *Publish) templates() []namedTemplate {
	return []namedTemplate{
		{"exchange", p.Exchange}, {"routing_key", p.RoutingKey}, {"type", p.Type},
		{"content_type", p.ContentType}, {"correlation_id", p.CorrelationID}, {"reply_to", p.ReplyTo},
		{"app_id", p.AppID}, {"priority", p.Priority}, {"expiration", p.Expiration},
	}
}

// columnSet is a list of column names without repetition; as on the servers,
// letter case does not count.
type columnSet struct{ names []string }

func (c *columnSet) add(names ...string) {
	for _, name := range names {
		if name != "" && !c.has(name) {
			c.names = append(c.names, name)
		}
	}
}

func (c *columnSet) has(name string) bool {
	for _, known := range c.names {
		if strings.EqualFold(known, name) {
			return true
		}
	}
	return false
}
