package relay

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// looking says which rows of a table a look is for.
type looking uint8

const (
	forPending looking = iota // unsent by row state and due
	forClaims                 // a former poller's claims that have run out
	forAll                    // every row, whatever its state
)

// condition is the SQL that finds such rows. What it leaves out mapping.passes,
// the status or the due time would leave out as well; what it lets through the
// caller compares once more, byte by byte: the server compares by collation, so
// a condition alone would find too much, and with NOT IN too little.
func (m *mapping) condition(c *configs.Table, what looking, now time.Time) (string, []any) {
	var w where
	if c.AfterPublish == configs.Mark && what != forAll {
		status := m.shape.Columns[m.status]
		value := c.Status.Pending
		if what == forClaims {
			value = c.Status.Processing
			i, _ := columnIndex(m.shape, c.Status.LockedUntil)
			w.before(m.shape.Columns[i], now, false)
		}
		w.in(status, []configs.Value{{Text: string(value)}})
	}
	if what != forAll {
		for _, i := range [...]int{m.deliverAt, m.nextAt} {
			if i >= 0 {
				w.before(m.shape.Columns[i], now, true)
			}
		}
	}
	for _, f := range m.filters {
		if f.in != nil {
			w.in(m.shape.Columns[f.column], f.in)
		}
		if len(f.not) > 0 {
			w.notIn(m.shape.Columns[f.column], f.not)
		}
	}
	if len(w.terms) == 0 {
		return "TRUE", nil
	}
	return strings.Join(w.terms, " AND "), w.args
}

// look is one page of a table, in key order.
type look struct {
	what  looking
	after string // ref, "" from the start
	upTo  string // ref, "" to the end
	more  string // a further condition
	args  []any
	limit int
	index string
}

// unsentRow is a row that a look found: what it is read by, and about its size.
type unsentRow struct {
	ref  string
	size int64
}

// page reads the keys of one page; the rows themselves are read by their keys,
// as many at once as memory allows (P7). They have to be compared once more,
// see condition.
func (c *current) page(ctx context.Context, t *table, l look, now time.Time) ([]unsentRow, error) {
	m, _, err := c.mapping(ctx, t)
	if err != nil {
		return nil, err
	}
	condition, args := m.where(t.config, l, now)
	hint := ""
	if l.index != "" {
		hint = " FORCE INDEX (" + canal.Quote(l.index) + ")"
	}
	found, err := c.keys(ctx, t, m, fmt.Sprintf("%s WHERE %s ORDER BY %s LIMIT %d", hint, condition, m.keyOrder(""), l.limit), args...)
	if err != nil {
		c.forget(t)
		return nil, fmt.Errorf("look for rows of %s: %w", t.name, err)
	}
	return found, nil
}

// where is the condition of a look.
func (m *mapping) where(c *configs.Table, l look, now time.Time) (string, []any) {
	condition, args := m.condition(c, l.what, now)
	add := func(term string, more []any) {
		condition, args = condition+" AND ("+term+")", append(args, more...)
	}
	if l.after != "" {
		add(m.after(l.after))
	}
	if l.upTo != "" {
		add(m.upTo(l.upTo))
	}
	if l.more != "" {
		add(l.more, l.args)
	}
	return condition, args
}

// count counts the rows that a look is for, those behind its first page too.
func (c *current) count(ctx context.Context, t *table, l look) (n uint64, err error) {
	m, _, err := c.mapping(ctx, t)
	if err != nil {
		return 0, err
	}
	condition, args := m.where(t.config, l, time.Now())
	if err := c.db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE %s", t.name.Quote(), condition), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count rows of %s: %w", t.name, err)
	}
	return n, nil
}

// last is the greatest row key of a table, "" when it is empty.
func (c *current) last(ctx context.Context, t *table) (string, error) {
	m, _, err := c.mapping(ctx, t)
	if err != nil {
		return "", err
	}
	found, err := c.keys(ctx, t, m, " ORDER BY "+m.keyOrder(" DESC")+" LIMIT 1")
	if err != nil {
		return "", fmt.Errorf("look for the last row of %s: %w", t.name, err)
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0].ref, nil
}

func (m *mapping) keyOrder(direction string) string {
	var order []string
	for _, k := range m.rowKey {
		order = append(order, canal.Quote(k.name)+direction)
	}
	return strings.Join(order, ", ")
}

func (c *current) keys(ctx context.Context, t *table, m *mapping, tail string, args ...any) ([]unsentRow, error) {
	if err := m.pageable(); err != nil {
		return nil, err
	}
	list := writeGroup{table: t, mapping: m}.keyList()
	body := canal.Quote(m.shape.Columns[m.body].Name)
	rows, err := c.db.QueryContext(ctx, fmt.Sprintf("SELECT %s, COALESCE(OCTET_LENGTH(%s), 0) FROM %s%s", list, body, t.name.Quote(), tail), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make([]sql.RawBytes, len(m.rowKey))
	into := make([]any, len(values)+1)
	for i := range values {
		into[i] = &values[i]
	}
	var all []unsentRow
	var size int64
	into[len(values)] = &size
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		ref := binary.BigEndian.AppendUint32(nil, m.number)
		for _, v := range values {
			ref = append(binary.AppendUvarint(ref, uint64(len(v))), v...)
		}
		all = append(all, unsentRow{string(ref), size})
	}
	return all, rows.Err()
}

// statusIndex is the index by which unsent rows are found without reading the
// others, "" when there is none (or none is needed).
func (c *current) statusIndex(ctx context.Context, t *table) (string, error) {
	if t.config.AfterPublish != configs.Mark {
		return "", nil
	}
	return statusIndex(ctx, c.db, t.name, t.config.Status.Column)
}

func statusIndex(ctx context.Context, db canal.Querier, name canal.TableName, column string) (string, error) {
	rows, err := db.QueryContext(ctx, `SELECT a.INDEX_NAME FROM information_schema.STATISTICS a
		WHERE a.TABLE_SCHEMA=? AND a.TABLE_NAME=? AND a.SEQ_IN_INDEX=1 AND a.COLUMN_NAME=? AND a.SUB_PART IS NULL
		ORDER BY (SELECT COUNT(*) FROM information_schema.STATISTICS b WHERE b.TABLE_SCHEMA=a.TABLE_SCHEMA AND b.TABLE_NAME=a.TABLE_NAME AND b.INDEX_NAME=a.INDEX_NAME)
		LIMIT 1`, name.Schema, name.Name, column)
	if err != nil {
		return "", fmt.Errorf("look for an index of %s: %w", name, err)
	}
	defer rows.Close()
	index := ""
	for rows.Next() {
		if err := rows.Scan(&index); err != nil {
			return "", fmt.Errorf("look for an index of %s: %w", name, err)
		}
	}
	return index, rows.Err()
}

// nextDue is when the next row that waits for its time may be due, zero when
// none waits. A row with two such times may be looked at once too often.
func (c *current) nextDue(ctx context.Context, t *table, index string, now time.Time) (time.Time, error) {
	m, _, err := c.mapping(ctx, t)
	if err != nil {
		return time.Time{}, err
	}
	hint := ""
	if index != "" {
		hint = " FORCE INDEX (" + canal.Quote(index) + ")"
	}
	var next time.Time
	for _, i := range [...]int{m.deliverAt, m.nextAt} {
		if i < 0 {
			continue
		}
		column := m.shape.Columns[i]
		arg := timeArgument(column, now)
		if arg == nil {
			continue
		}
		var w where
		if t.config.AfterPublish == configs.Mark {
			w.in(m.shape.Columns[m.status], []configs.Value{{Text: string(t.config.Status.Pending)}})
		}
		w.add(canal.Quote(column.Name)+" > ?", arg)
		var least sql.NullString
		query := fmt.Sprintf("SELECT MIN(%s) FROM %s%s WHERE %s", canal.Quote(column.Name), t.name.Quote(), hint, strings.Join(w.terms, " AND "))
		if err := c.db.QueryRowContext(ctx, query, w.args...).Scan(&least); err != nil {
			return next, fmt.Errorf("look for rows of %s that become due: %w", t.name, err)
		}
		if !least.Valid {
			continue
		}
		at, err := parseTime([]byte(least.String))
		if err == nil && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, nil
}
