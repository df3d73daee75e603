package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
)

// step is what the preparer hands to the loop: entries in commit order, and the
// end of their group unless more of it follows.
type step struct {
	entries []*entry
	end     *checkpoint.Mark
	rows    bool                      // the group had rows of ours
	covers  []checkpoint.CoveredTable // shapes that hold from this group on
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
}

func newPreparer(ts *tables, in *queue[canal.Batch], out *queue[step]) *preparer {
	return &preparer{tables: ts, in: in, out: out, mappings: map[*table]*mapping{}}
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
	s := step{end: b.End, rows: len(b.Rows) > 0}
	var err error
	if s.covers, err = covers(b); err != nil {
		return err
	}
	weight := int64(64)
	for i := range b.Rows {
		e, err := p.row(ctx, &b.Rows[i], b.Time)
		if err != nil {
			return err
		}
		if e != nil {
			s.entries = append(s.entries, e)
			weight += e.weight
		}
	}
	return p.out.put(ctx, s, weight)
}

// covers says what the checkpoint has to record of tables' shapes with this batch.
func covers(b *canal.Batch) ([]checkpoint.CoveredTable, error) {
	var all []checkpoint.CoveredTable
	for _, name := range b.Shape {
		all = append(all, checkpoint.CoveredTable{Schema: name.Schema, Name: name.Name})
	}
	for _, shape := range b.Shapes {
		text, err := json.Marshal(shape)
		if err != nil {
			return nil, fmt.Errorf("record the shape of %s: %w", shape.Table, err)
		}
		all = append(all, checkpoint.CoveredTable{Schema: shape.Table.Schema, Name: shape.Table.Name, Shape: text})
	}
	return all, nil
}

// row returns the row's entry, or nil for a row that has come to its end here.
func (p *preparer) row(ctx context.Context, row *canal.Row, commit time.Time) (*entry, error) {
	t := p.tables.find(row.Table.TableName)
	m, err := p.mapping(t, row.Table)
	if err != nil {
		return nil, err
	}
	e := &entry{table: t, mapping: m, origin: fromStream, commit: commit}
	if !m.passes(row) {
		t.metrics.filtered.Inc()
		return nil, nil
	}
	if m.status >= 0 {
		e.seen = string(row.Values[m.status])
		if e.seen != string(t.config.Status.Pending) {
			t.metrics.passed.Inc() // deferred by its own row state: the fallback sends it once it is pending
			return nil, nil
		}
	}
	due, err := m.due(row)
	if err == nil && due.After(time.Now()) && t.writesBack() {
		t.metrics.deferred.Inc() // unsent in its table: the fallback sends it in time
		return nil, nil
	}
	m.entry(row, e)
	if err != nil {
		e.fault = &fault{class: classPoison, reason: err.Error()}
	}
	return e, nil
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
