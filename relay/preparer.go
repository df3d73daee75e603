package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/checkpoint/broken"
)

// step is what the preparer hands to the loop: entries in commit order, and the
// end of their group unless more of it follows.
type step struct {
	entries []*entry
	end     *checkpoint.Mark
	rows    bool    // the group had rows of ours
	covers  []cover // what holds from this group on
}

// preparer turns batches into steps: it maps rows, ends those that are not to
// be sent, and asks the server what the binlog could not say. It runs on a
// goroutine of its own so that neither the reading nor the confirming waits for
// SQL.
type preparer struct {
	tables   *tables
	in       *queue[canal.Batch]
	out      *queue[step]
	mappings map[*table]*mapping
	metrics  *Metrics
	log      *zap.Logger

	store   *checkpoint.Store
	fence   checkpoint.Fence
	current *current
	dues    *dues
	xa      *xaLedger
	states  map[canal.TableName]tableState // as the tables began

	server string                              // the server's identity
	last   checkpoint.Position                 // end of the last group
	before atomic.Pointer[checkpoint.Position] // up to here rows may have been sent before
	skew   atomic.Int64                        // nanoseconds that the server's clock is ahead of ours
	pass   *checkpoint.Mark                    // a place that an operator lets pass, nil for none
}

// passes says whether an operator lets the group in hand pass: the one that
// contains the place, and the one that follows it, which reports for it.
func (p *preparer) passes() bool {
	return p.pass != nil && p.last.Compare(checkpoint.Position{File: p.pass.File, Offset: p.pass.Offset}) <= 0
}

// run works until ctx ends or something stops the stream.
func (p *preparer) run(ctx context.Context) error {
	var batches []canal.Batch
	for {
		select {
		case <-p.in.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		batches = p.in.take(batches)
		for i := range batches {
			if err := p.batch(ctx, &batches[i]); err != nil {
				return err
			}
		}
	}
}

func (p *preparer) batch(ctx context.Context, b *canal.Batch) error {
	s := step{end: b.End}
	weight := int64(64)
	var err error
	switch b.Kind {
	case canal.Committed:
		s.rows = len(b.Rows) > 0
		if s.covers, err = covers(b); err == nil {
			p.changed(b)
			weight, err = p.mapRows(ctx, b.Rows, b.Time, &s)
		}
	case canal.Prepared:
		if s.covers, err = covers(b); err == nil {
			err = p.hold(ctx, b)
		}
		if broken.PublishAtPrepare && err == nil {
			weight, err = p.mapRows(ctx, b.Rows, b.Time, &s)
		}
	case canal.XACommit:
		err = p.release(ctx, b, &s)
	case canal.XARollback:
		p.drop(b, &s)
	}
	if err == nil {
		err = p.unseen(b)
	}
	if err != nil {
		return err
	}
	if b.End != nil {
		p.last.Server, p.last.File, p.last.Offset = p.server, b.End.File, b.End.Offset
		s.covers = append(s.covers, p.begun()...)
	}
	return p.out.put(ctx, s, weight)
}

// begun drops what was remembered of the stream's beginning, once it is over.
func (p *preparer) begun() []cover {
	if p.xa.until.IsZero() || p.beginning() {
		return nil
	}
	p.xa.until, p.xa.seen = checkpoint.Position{}, nil
	return []cover{{xid: beginName}}
}

// changed tells those who read tables by SQL of a new definition.
func (p *preparer) changed(b *canal.Batch) {
	for _, name := range b.Shape {
		if t := p.tables.find(name); t != nil {
			p.current.forget(t)
		}
	}
}

// unseen takes the tables that a statement wrote to without showing its rows:
// mark and delete tables are looked at at once, and in any case by the
// fallback; of a keep table nothing can tell the rows (P2).
func (p *preparer) unseen(b *canal.Batch) error {
	for _, name := range b.Sweep {
		t := p.tables.find(name)
		if t == nil {
			continue
		}
		if t.halts() && !p.passes() {
			return &haltError{reason: "statement", mark: b.End, err: fmt.Errorf(
				"a statement wrote to %s at or before %s:%d and the binlog does not show which rows (binlog_format STATEMENT or MIXED, or a row that cannot be read): "+
					"rows of it may not have been sent; set binlog_format=ROW in every session, then: towpath resume --resend-since TIME, or --accept-loss", name, b.End.File, b.End.Offset)}
		}
		p.log.Warn("a statement wrote to a table and the binlog does not show which rows: looking for them in the table", zap.Stringer("table", name))
		p.metrics.Unseen.WithLabelValues(t.label).Inc()
		p.dues.note(t, time.Now())
	}
	return nil
}

// covers says what the checkpoint has to record of tables' shapes with this batch.
func covers(b *canal.Batch) ([]cover, error) {
	var all []cover
	for _, name := range b.Shape {
		all = append(all, cover{table: checkpoint.CoveredTable{Schema: name.Schema, Name: name.Name}})
	}
	for _, shape := range b.Shapes {
		text, err := json.Marshal(shape)
		if err != nil {
			return nil, fmt.Errorf("record the shape of %s: %w", shape.Table, err)
		}
		all = append(all, cover{table: checkpoint.CoveredTable{Schema: shape.Table.Schema, Name: shape.Table.Name, Shape: text}})
	}
	return all, nil
}

// mapRows maps committed rows into a step, and returns the step's weight.
func (p *preparer) mapRows(ctx context.Context, rows []canal.Row, commit time.Time, s *step) (int64, error) {
	weight := int64(64)
	repaired, err := p.repair(ctx, rows)
	if err != nil {
		return weight, err
	}
	for i := range rows {
		row := &rows[i]
		if row.Incomplete {
			if row = repaired[i]; row == nil {
				continue // it has come to its end
			}
		}
		e, err := p.row(row, commit)
		if err != nil {
			return weight, err
		}
		if e != nil {
			s.entries = append(s.entries, e)
			weight += e.weight
		}
	}
	return weight, nil
}

// row returns the row's entry, or nil for a row that has come to its end here.
func (p *preparer) row(row *canal.Row, commit time.Time) (*entry, error) {
	t := p.tables.find(row.Table.TableName)
	if p.beforeStart(t) {
		return nil, nil
	}
	m, err := p.mapping(t, row.Table)
	if err != nil {
		return nil, err
	}
	e := &entry{table: t, mapping: m, origin: fromStream, commit: commit, fresh: commit.Add(-time.Duration(p.skew.Load()))}
	// Up to where the binlog ended when this leader began to read it, rows may
	// have been sent by another leader or by a sweep.
	e.again = t.writesBack() && p.last.Compare(*p.before.Load()) < 0
	if !m.passes(row) {
		t.metrics.filtered.Inc()
		return nil, nil
	}
	if m.status >= 0 {
		e.seen = string(row.Values[m.status])
		if e.seen != string(t.config.Status.Pending) {
			p.passed(t, e.seen)
			return nil, nil
		}
	}
	due, err := m.due(row)
	if err == nil && due.After(time.Now()) && t.writesBack() {
		t.metrics.deferred.Inc() // unsent in its table: the fallback sends it in time
		p.dues.note(t, due)
		return nil, nil
	}
	e.due = due // of a keep table: it waits among the parked
	m.entry(row, e)
	if err != nil {
		e.fault = &fault{class: classPoison, reason: err.Error()}
	}
	return e, nil
}

// passed counts a row that is not to be sent by its own row state.
func (p *preparer) passed(t *table, status string) {
	if t.isWithdrawn(status) {
		t.metrics.withdrawn.Inc()
	} else {
		t.metrics.passed.Inc() // deferred: the fallback sends it once it is pending
	}
}

// beforeStart says whether the group in hand lies before the table's own start.
func (p *preparer) beforeStart(t *table) bool {
	st, known := p.states[t.name]
	return known && st.From != nil && st.From.Server == p.server && p.last.Compare(*st.From) < 0
}

// mapping compiles the table's mapping when its shape is new.
func (p *preparer) mapping(t *table, shape *canal.Table) (*mapping, error) {
	if m := p.mappings[t]; m != nil && m.shape == shape {
		return m, nil
	}
	m, err := compileMapping(t.config, shape, t.number)
	if err != nil {
		return nil, &haltError{reason: "mapping", err: err}
	}
	p.mappings[t] = m
	return m, nil
}
