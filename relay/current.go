package relay

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/towpath/towpath/canal"
)

// current reads rows as they are now, by their row key, under a lock: a plain
// SELECT right after a row's event may not see the row yet, a locking one waits
// for the commit that the binlog has shown already. It belongs to one goroutine.
type current struct {
	db       *sql.DB
	server   canal.Server
	tables   *tables
	mappings map[*table]*mapping // of the present shapes
	shapes   map[*table]*canal.Shape
}

func newCurrent(db *sql.DB, server canal.Server, ts *tables) *current {
	return &current{db: db, server: server, tables: ts, mappings: map[*table]*mapping{}, shapes: map[*table]*canal.Shape{}}
}

// forget drops what is known of a table's shape: it was altered, or a read failed.
func (c *current) forget(t *table) {
	delete(c.mappings, t)
	delete(c.shapes, t)
}

// mapping is the table's mapping as the table is now.
func (c *current) mapping(ctx context.Context, t *table) (*mapping, *canal.Shape, error) {
	if m := c.mappings[t]; m != nil {
		return m, c.shapes[t], nil
	}
	shape, err := canal.LoadShape(ctx, c.db, t.name)
	if err != nil {
		return nil, nil, err
	}
	m, err := compileMapping(t.config, shape.Describe(), t.number)
	if err != nil {
		return nil, nil, err
	}
	c.mappings[t], c.shapes[t] = m, shape
	return m, shape, nil
}

// rows returns the rows of one table that are there, by ref. lock is "" for
// what is committed and visible, or [canal.ShareLock]'s clause.
func (c *current) rows(ctx context.Context, t *table, refs []string, lock string) (map[string]*canal.Row, *mapping, error) {
	m, shape, err := c.mapping(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	g := writeGroup{table: t, mapping: m}
	args := make([]any, 0, len(refs)*len(m.rowKey))
	for _, ref := range refs {
		args = append(args, m.keyValues(ref)...)
	}
	interest, _ := c.tables.interest(t.name)
	rows, err := canal.SelectRows(ctx, c.db, shape, interest, strings.TrimSpace("WHERE "+g.where(len(refs))+" "+lock), args...)
	if err != nil {
		c.forget(t)
		return nil, nil, fmt.Errorf("read rows of %s by key: %w", t.name, err)
	}
	found := make(map[string]*canal.Row, len(rows))
	for i := range rows {
		found[m.ref(&rows[i])] = &rows[i]
	}
	return found, m, nil
}
