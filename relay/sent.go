package relay

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// Sent reads an outbox table as what was sent, for a comparison with what a
// consumer has processed. It takes no lease and locks nothing. It belongs to one
// goroutine.
type Sent struct {
	current *current
	table   *table
	archive *table // where retention moves rows, nil for none
	time    string // column that says when a row was written or sent
	memory  int64
}

// SentRow is one row. A row that was not sent (it waits, failed, is withdrawn,
// or a filter leaves it out) has Sent false.
type SentRow struct {
	ID   string // message id
	Type string
	Body []byte
	Sent bool
	Done bool   // its status is one that the configuration does not name: the application has moved it on
	Key  string // finds the row again; meaningful to the same Sent only
}

const (
	sentPage   = 2000
	sentMemory = 16 << 20 // bodies held at once, but for a larger one
)

// OpenSent finds a table, schema.table, that the configuration matches.
// timeColumn is "" for the one that the configuration gives messages as
// timestamp, or else for status.sent_at.
func OpenSent(ctx context.Context, c *configs.Config, db *sql.DB, name, timeColumn string) (*Sent, error) {
	schema, base, two := strings.Cut(name, ".")
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	t := ts.find(canal.TableName{Schema: schema, Name: base})
	switch {
	case !two || t == nil:
		return nil, fmt.Errorf("the configuration has no table %q: name it as schema.table", name)
	case t.config.AfterPublish == configs.Delete:
		return nil, fmt.Errorf("table %s deletes its rows once they are sent: nothing is left to compare", name)
	}
	server, err := canal.Inspect(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &Sent{current: newCurrent(db, server, ts), table: t, time: timeColumn, memory: sentMemory}
	if a := t.config.Retention.ArchiveTo; t.config.Retention.SentFor > 0 && a.Table != "" {
		s.archive = &table{name: canal.TableName{Schema: a.Schema, Name: a.Table}, label: a.String(), config: t.config, number: t.number + 1}
	}
	if s.time == "" {
		s.time = t.config.Publish.Timestamp
	}
	if s.time == "" {
		s.time = t.config.Status.SentAt
	}
	if s.time == "" {
		return nil, fmt.Errorf("table %s has neither publish.timestamp nor status.sent_at: name the column that says when a row was written", name)
	}
	return s, nil
}

// Now is the server's clock, UTC.
func (s *Sent) Now(ctx context.Context) (time.Time, error) {
	var text string
	if err := s.current.db.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&text); err != nil {
		return time.Time{}, fmt.Errorf("read the server's clock: %w", err)
	}
	return parseTime([]byte(text))
}

// KeptFor is how long a sent row stays to be found, 0 for ever.
func (s *Sent) KeptFor() time.Duration {
	if s.archive != nil {
		return 0
	}
	return s.table.config.Retention.SentFor
}

// during is the condition for the rows of [from, to).
func (s *Sent) during(m *mapping, from, to time.Time) (string, []any, error) {
	i, err := columnIndex(m.shape, s.time)
	if err != nil {
		return "", nil, err
	}
	c := m.shape.Columns[i]
	if timeArgument(c, from) == nil {
		return "", nil, fmt.Errorf("column %s of table %s is no time: it is a %s", s.time, s.table.name, c.Type)
	}
	name := canal.Quote(c.Name)
	return name + " >= ? AND " + name + " < ?", []any{timeArgument(c, from), timeArgument(c, to)}, nil
}

// tables are the table and its archive.
func (s *Sent) tables() []*table {
	if s.archive == nil {
		return []*table{s.table}
	}
	return []*table{s.table, s.archive}
}

// Count counts the rows of [from, to), sent or not.
func (s *Sent) Count(ctx context.Context, from, to time.Time) (total int64, err error) {
	for _, t := range s.tables() {
		m, _, err := s.current.mapping(ctx, t)
		if err != nil {
			return 0, err
		}
		where, args, err := s.during(m, from, to)
		if err != nil {
			return 0, err
		}
		var n int64
		if err := s.current.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+t.name.Quote()+" WHERE "+where, args...).Scan(&n); err != nil {
			return 0, fmt.Errorf("count rows of %s: %w", t.name, err)
		}
		total += n
	}
	return total, nil
}

// Rows calls do for each row of [from, to), in no order that matters. Memory
// holds a page of them at most.
func (s *Sent) Rows(ctx context.Context, from, to time.Time, do func(SentRow) error) error {
	for _, t := range s.tables() {
		if err := s.rows(ctx, t, from, to, do); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sent) rows(ctx context.Context, t *table, from, to time.Time, do func(SentRow) error) error {
	m, _, err := s.current.mapping(ctx, t)
	if err != nil {
		return err
	}
	during, times, err := s.during(m, from, to)
	if err != nil {
		return err
	}
	for after := ""; ; {
		where, args := during, slices.Clone(times)
		if after != "" {
			term, more := m.after(after)
			where, args = where+" AND ("+term+")", append(args, more...)
		}
		refs, err := s.current.keys(ctx, t, m, fmt.Sprintf(" WHERE %s ORDER BY %s LIMIT %d", where, m.keyOrder(""), sentPage), args...)
		if err != nil {
			return fmt.Errorf("read rows of %s: %w", t.name, err)
		}
		last := len(refs) < sentPage
		for len(refs) > 0 {
			n := batchOf(refs, len(refs), s.memory)
			keys := make([]string, n)
			for i := range keys {
				keys[i] = refs[i].ref
			}
			after, refs = keys[n-1], refs[n:]
			if err := s.batch(ctx, t, keys, do); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

func (s *Sent) batch(ctx context.Context, t *table, keys []string, do func(SentRow) error) error {
	rows, m, err := s.current.rows(ctx, t, keys, "")
	if err != nil {
		return err
	}
	for _, key := range keys {
		if row := rows[key]; row != nil { // otherwise retention took it meanwhile
			if err := do(m.sent(t, key, row)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sent judges one row. A row that cannot become a message was not sent.
func (m *mapping) sent(t *table, key string, row *canal.Row) SentRow {
	var e entry
	m.entry(row, &e)
	r := SentRow{ID: e.message.ID, Type: e.message.Type, Body: e.message.Body, Key: key}
	if e.fault != nil || !m.passes(row) {
		return r
	}
	if t.config.AfterPublish != configs.Mark {
		due, err := m.due(row)
		r.Sent = err == nil && due.Before(time.Now())
		return r
	}
	st := t.config.Status
	now := configs.StatusValue(row.Values[m.status])
	r.Sent = now != st.Pending && (now != st.Failed || st.Failed == "") && (now != st.Processing || st.Processing == "") && !slices.Contains(st.Withdrawn, now)
	r.Done = r.Sent && now != st.Sent
	return r
}

// errNoLookup says that rows cannot be found by their message id.
var errNoLookup = errors.New("the message id is made of several columns: rows cannot be found by it")

// Lookup says whether Known can find rows: the id must be made of one column.
func (s *Sent) Lookup() bool {
	_, _, _, err := idColumn(s.table.config.Columns.ID)
	return err == nil
}

// idColumn takes an id's template apart: one column between texts.
func idColumn(t configs.Template) (prefix string, column configs.Part, suffix string, err error) {
	for _, p := range t.Parts {
		switch {
		case p.Column != "" && column.Column != "", p.Builtin != "":
			return "", column, "", errNoLookup
		case p.Column != "":
			column = p
		case column.Column == "":
			prefix += p.Text
		default:
			suffix += p.Text
		}
	}
	return prefix, column, suffix, nil
}

// Known says which of the message ids belong to a row, sent or not, of any time.
func (s *Sent) Known(ctx context.Context, ids []string) (map[string]bool, error) {
	prefix, part, suffix, err := idColumn(s.table.config.Columns.ID)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, t := range s.tables() {
		m, shape, err := s.current.mapping(ctx, t)
		if err != nil {
			return nil, err
		}
		i, err := columnIndex(m.shape, part.Column)
		if err != nil {
			return nil, err
		}
		c := m.shape.Columns[i]
		column := keyColumn{name: c.Name, index: i, kind: c.Type, binary: c.Binary, integer: c.Integer}
		var args []any
		for _, id := range ids {
			middle, ok := strings.CutPrefix(id, prefix)
			if ok {
				middle, ok = strings.CutSuffix(middle, suffix)
			}
			if value, possible := unformat(middle, part.Format); ok && possible && (!c.Integer || isInteger(value)) {
				args = append(args, column.argument(value))
			}
		}
		if len(args) == 0 {
			continue
		}
		interest := canal.Interest{Columns: func(name string) bool { return strings.EqualFold(name, c.Name) }}
		marks := strings.TrimSuffix(strings.Repeat(column.operand()+",", len(args)), ",")
		rows, err := canal.SelectRows(ctx, s.current.db, shape, interest, "WHERE "+canal.Quote(c.Name)+" IN ("+marks+")", args...)
		if err != nil {
			return nil, fmt.Errorf("look for message ids in %s: %w", t.name, err)
		}
		for j := range rows {
			if id, null, err := m.id.append(nil, &rows[j]); err == nil && !null {
				known[string(id)] = true
			}
		}
	}
	return known, nil
}

func isInteger(text string) bool {
	_, signed := strconv.ParseInt(text, 10, 64)
	_, unsigned := strconv.ParseUint(text, 10, 64)
	return signed == nil || unsigned == nil
}

// unformat is the value that a format renders as text; an id that it cannot
// have rendered belongs to no row.
func unformat(text string, format configs.Format) (value string, possible bool) {
	switch format {
	case "":
		return text, true
	case configs.FormatHex:
		b, err := hex.DecodeString(text)
		return string(b), err == nil
	case configs.FormatUUID, configs.FormatUUIDSwapped:
		b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err != nil || len(b) != 16 {
			return "", false
		}
		if format == configs.FormatUUIDSwapped {
			b = slices.Concat(b[6:8], b[4:6], b[0:4], b[8:])
		}
		return string(b), true
	case configs.FormatBase64:
		b, err := base64.StdEncoding.DecodeString(text)
		return string(b), err == nil
	}
	return "", false
}

// Done chooses rows for a [RequestDone]; archived ones stay as they are.
func (s *Sent) Done(keys []string, status string) Done {
	d := Done{Table: s.table.name.String(), Status: status}
	for _, key := range keys {
		if strings.HasPrefix(key, s.table.ref([]byte{})) {
			d.Keys = append(d.Keys, keyOf(key))
		}
	}
	return d
}

// CheckDone refuses a value that the relay gives a meaning of its own.
func (s *Sent) CheckDone(done string) error { return s.table.checkDone(done) }
