package relay

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// write is one row whose row state is due.
type write struct {
	table   *table
	mapping *mapping
	ref     string
	seen    string // the status that the relay saw

	state   *rowState // of a row that is not sent; nil: it is confirmed
	berth   *berth    // of a parked row, which a confirm ends; nil for none
	version int       // of the berth's state

	now   string // the status that the writer found
	there bool   // the writer found the row
}

// writeGroup is the writes that one set of statements covers.
type writeGroup struct {
	table   *table
	mapping *mapping
	seen    string
	confirm bool // confirmed rows; else rows that are not sent
	writes  []write
}

// groupReport says what became of a group's rows.
type groupReport struct {
	writeGroup
	written   int
	conflicts int     // the application changed or removed the row first: its value wins (P10)
	locked    []write // the application holds the row locked
}

func (r *groupReport) count() {
	r.table.metrics.written.Add(float64(r.written))
	r.table.metrics.conflicts.Add(float64(r.conflicts))
	r.table.metrics.busy.Add(float64(len(r.locked)))
}

// tableError is a table's refusal of its row-state writes.
type tableError struct {
	table *table
	err   error
}

func (e *tableError) Error() string {
	return fmt.Sprintf("write row state of %s: %v", e.table.name, e.err)
}
func (e *tableError) Unwrap() error { return e.err }

// groupWrites sorts writes into groups, in the order of the tables, so that
// all transactions of the relay lock tables in one order.
func groupWrites(writes []write) []writeGroup {
	var groups []writeGroup
	for _, w := range writes {
		i := slices.IndexFunc(groups, func(g writeGroup) bool {
			return g.table == w.table && g.mapping == w.mapping && g.seen == w.seen && g.confirm == (w.state == nil)
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, writeGroup{table: w.table, mapping: w.mapping, seen: w.seen, confirm: w.state == nil})
		}
		groups[i].writes = append(groups[i].writes, w)
	}
	slices.SortStableFunc(groups, func(a, b writeGroup) int { return cmp.Compare(a.table.number, b.table.number) })
	return groups
}

// apply writes the row state of a group.
func (g writeGroup) apply(ctx context.Context, tx *checkpoint.Tx) (groupReport, error) {
	if g.confirm {
		return g.applyConfirms(ctx, tx)
	}
	return g.applyStates(ctx, tx)
}

// lock locks the group's rows. Those that another transaction holds are
// skipped, not waited for (P9), and noted as locked in the report. The rows of
// the caller to write are in mine; in missing are those whose status is no
// longer the one that was seen, with what it is now: what the application set
// meanwhile wins (P10).
func (g writeGroup) lock(ctx context.Context, tx *checkpoint.Tx) (r groupReport, mine, missing []write, err error) {
	r = groupReport{writeGroup: g}
	free, err := g.query(ctx, tx.Query, g.lockStatement(), g.writes, g.seenArgs())
	if err != nil {
		return r, nil, nil, g.judge(err)
	}
	var others []write
	for _, w := range g.writes {
		if _, ok := free[w.ref]; ok {
			mine = append(mine, w)
		} else {
			others = append(others, w)
		}
	}
	if len(others) == 0 {
		return r, mine, nil, nil
	}
	now, err := g.query(ctx, tx.Query, g.statusStatement(len(others)), others, nil)
	if err != nil {
		return r, nil, nil, g.judge(err)
	}
	for _, w := range others {
		status, there := now[w.ref]
		if there && status == g.seen {
			r.locked = append(r.locked, w)
			continue
		}
		w.now, w.there = status, there
		missing = append(missing, w)
	}
	return r, mine, missing, nil
}

// applyConfirms marks or deletes confirmed rows. Each statement names exact
// columns and is conditional on the status that was seen (P10).
func (g writeGroup) applyConfirms(ctx context.Context, tx *checkpoint.Tx) (groupReport, error) {
	r, mine, missing, err := g.lock(ctx, tx)
	if err != nil {
		return r, err
	}
	for _, w := range missing {
		if w.there && w.now == string(g.table.config.Status.Sent) || !w.there && g.table.config.AfterPublish == configs.Delete {
			r.written++ // by an attempt whose commit was not known, or by an earlier leader
		} else {
			r.conflicts++
		}
	}
	if len(mine) == 0 {
		return r, nil
	}
	args := append(g.setArgs(), append(g.keyArgs(mine), g.seenArgs()...)...)
	if _, err := tx.Exec(ctx, g.confirmStatement(len(mine)), args...); err != nil {
		return r, g.judge(err)
	}
	r.written += len(mine)
	return r, nil
}

// judge tells a table's refusal from a server that is away or a deadlock: the
// first names the table, the others are tried again as they are. A lock wait is
// the table's too: an application may hold a gap of one of its indexes for as
// long as it likes, as with a prepared XA transaction (P9).
func (g writeGroup) judge(err error) error {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return err
	}
	switch server.Number {
	case 1213, // deadlock
		1290, 1836, 1792, // read-only server or transaction
		1053, 1040, 1317, 3024, 4031: // shutting down, too many connections, killed, timed out, idle
		return err
	}
	return &tableError{table: g.table, err: err}
}

func (g writeGroup) seenArgs() []any {
	if g.table.config.Status.Column == "" {
		return nil
	}
	return []any{g.seen}
}

func (g writeGroup) setArgs() []any {
	if g.table.config.AfterPublish == configs.Delete {
		return nil
	}
	return []any{string(g.table.config.Status.Sent)}
}

func (g writeGroup) keyArgs(writes []write) []any {
	args := make([]any, 0, len(writes)*len(g.mapping.rowKey))
	for _, w := range writes {
		args = append(args, g.mapping.keyValues(w.ref)...)
	}
	return args
}

// keyList is the row key's columns as SELECT and tuples name them.
func (g writeGroup) keyList() string {
	var columns []string
	for _, k := range g.mapping.rowKey {
		columns = append(columns, canal.Quote(k.name))
	}
	return strings.Join(columns, ", ")
}

// where finds n rows by key.
func (g writeGroup) where(n int) string {
	var operands []string
	for _, k := range g.mapping.rowKey {
		operands = append(operands, k.operand())
	}
	key, tuple := g.keyList(), strings.Join(operands, ", ")
	if len(operands) > 1 {
		key, tuple = "("+key+")", "("+tuple+")"
	}
	return fmt.Sprintf("%s IN (%s%s)", key, strings.Repeat(tuple+", ", n-1), tuple)
}

// andSeen is the condition on the status.
func (g writeGroup) andSeen() string {
	if c := g.table.config.Status.Column; c != "" {
		return " AND " + canal.Quote(c) + " = ?"
	}
	return ""
}

func (g writeGroup) lockStatement() string {
	return fmt.Sprintf("SELECT %s, '' FROM %s WHERE %s%s FOR UPDATE SKIP LOCKED",
		g.keyList(), g.table.name.Quote(), g.where(len(g.writes)), g.andSeen())
}

func (g writeGroup) statusStatement(n int) string {
	status := "''"
	if c := g.table.config.Status.Column; c != "" {
		status = canal.Quote(c)
	}
	return fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s", g.keyList(), status, g.table.name.Quote(), g.where(n))
}

func (g writeGroup) confirmStatement(n int) string {
	if g.table.config.AfterPublish == configs.Delete {
		return fmt.Sprintf("%s WHERE %s%s", g.deleteFrom(), g.where(n), g.andSeen())
	}
	set := canal.Quote(g.table.config.Status.Column) + " = ?"
	if c := g.table.config.Status.SentAt; c != "" {
		set += ", " + canal.Quote(c) + " = " + g.mapping.now(c)
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s%s", g.table.name.Quote(), set, g.where(n), g.andSeen())
}

// runQuery is how a session or a transaction runs a reading statement.
type runQuery func(ctx context.Context, query string, args ...any) (*sql.Rows, error)

// deleteFrom begins a DELETE of rows by key. Of a small table the server would
// rather read all rows, and wait for those that the application holds (P9).
func (g writeGroup) deleteFrom() string {
	name := g.table.name.Quote()
	if len(g.mapping.shape.Primary) == 0 {
		return "DELETE FROM " + name
	}
	return "DELETE " + name + " FROM " + name + " FORCE INDEX (PRIMARY)"
}

// query returns the status column of the rows that a statement finds, by ref.
func (g writeGroup) query(ctx context.Context, run runQuery, statement string, writes []write, more []any) (map[string]string, error) {
	rows, err := run(ctx, statement, append(g.keyArgs(writes), more...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make([]sql.RawBytes, len(g.mapping.rowKey)+1)
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	found := make(map[string]string, len(writes))
	var ref []byte
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		ref = binary.BigEndian.AppendUint32(ref[:0], g.mapping.number)
		for _, v := range values[:len(values)-1] {
			ref = append(binary.AppendUvarint(ref, uint64(len(v))), v...)
		}
		found[string(ref)] = string(values[len(values)-1])
	}
	return found, rows.Err()
}
