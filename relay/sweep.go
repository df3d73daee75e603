package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

const (
	sweepBatch    = 1000            // keys of one read of a sweep
	sweepSave     = time.Second     // how often a sweep's cursor is saved
	sweepProgress = 5 * time.Second // how often its progress is logged
)

// sweeps carries out the sweeps that the checkpoint has: of tables that begin,
// and of tables that a gap has hidden rows of. Each is resumed where a
// predecessor has left it.
func (f *fallback) sweeps(ctx context.Context) error {
	for _, t := range f.tables.list() {
		for failures := 0; ; {
			st := f.states[t]
			if st == nil || st.Sweep == nil {
				break
			}
			err := f.sweep(ctx, t, st)
			var halt *haltError
			switch {
			case err == nil:
				continue
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, checkpoint.ErrFenced) || errors.As(err, &halt):
				return err
			}
			if failures++; failures == 1 {
				f.log.Warn("the sweep cannot go on, trying on", zap.String("table", t.label), zap.Error(err))
			}
			if !sleep(ctx, backoff(failures, 100*time.Millisecond, 5*time.Second)) {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// sweep reads the unsent rows of a table (all rows of a keep table) in key
// order and sends them. Its cursor is saved behind what is settled; it is done
// when all is.
func (f *fallback) sweep(ctx context.Context, t *table, st *tableState) error {
	for len(f.out) > 0 { // of a try that failed: the cursor must not pass them
		select {
		case <-f.found.settled.ready:
			f.collect()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f.current.forget(t)
	if err := f.sweepable(ctx, t); err != nil {
		return err
	}
	s := st.Sweep
	if s.Until == nil {
		last, err := f.current.last(ctx, t)
		if err != nil {
			return err
		}
		if last == "" {
			return f.endSweep(ctx, t, st)
		}
		s.Until = keyOf(last)
		if err := f.saveState(ctx, t, st); err != nil {
			return err
		}
	}
	f.log.Info("sweeping the rows that are there", zap.String("table", t.label), zap.String("cause", s.Cause), zap.Int("found_before", s.Found))
	w := &sweeper{fallback: f, table: t, state: st, saved: time.Now(), logged: time.Now()}
	f.metrics.Sweeping.WithLabelValues(t.label).Set(1)
	defer f.metrics.Sweeping.WithLabelValues(t.label).Set(0)
	if err := w.read(ctx); err != nil {
		return err
	}
	for len(w.open) > 0 {
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
	return f.endSweep(ctx, t, st)
}

// sweepable finds what no retry mends.
func (f *fallback) sweepable(ctx context.Context, t *table) error {
	m, _, err := f.current.mapping(ctx, t)
	if err != nil {
		return err
	}
	if err := m.pageable(); err != nil {
		return &haltError{reason: "sweep", err: fmt.Errorf("sweep %s: %w: give it a primary key of another type, or configure start: now", t.name, err)}
	}
	return nil
}

// sweeper is the state of one sweep.
type sweeper struct {
	*fallback
	table  *table
	state  *tableState
	open   []*page // in key order, those that are settled behind one that is not included
	closed map[*page]bool
	saved  time.Time
	logged time.Time
}

// read goes through the table.
func (w *sweeper) read(ctx context.Context) error {
	w.closed = map[*page]bool{}
	t, s := w.table, w.state.Sweep
	l := look{what: forPending, after: t.ref(s.Cursor), upTo: t.ref(s.Until), limit: sweepBatch}
	if t.config.AfterPublish == configs.Keep {
		l.what = forAll
	}
	if s.Since != "" {
		l.more, l.args = canal.Quote(t.config.Publish.Timestamp)+" >= ?", []any{s.Since}
	}
	for {
		refs, err := w.current.page(ctx, t, l, time.Now())
		if err != nil {
			return err
		}
		more := len(refs) == l.limit
		for len(refs) > 0 {
			n := batchOf(refs, l.limit, w.memory)
			batch := refs[:n]
			refs = refs[n:]
			l.after = batch[n-1].ref
			free, err := w.free(ctx, batch)
			if err != nil {
				return err
			}
			p, err := w.fallback.read(ctx, t, free, l.what)
			if err != nil {
				return err
			}
			p.cursor = l.after
			w.open = append(w.open, p)
			if p.found == 0 {
				w.closed[p] = true
			}
			if err := w.send(ctx, p); err != nil {
				return err
			}
			if err := w.advance(ctx); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// free leaves out rows that a resumed sweep finds although they are dealt with.
func (w *sweeper) free(ctx context.Context, batch []unsentRow) ([]unsentRow, error) {
	waiting, err := w.ask(ctx, batch)
	if err != nil {
		return nil, err
	}
	var free []unsentRow
	for _, c := range batch {
		if !waiting[c.ref] && !w.out[c.ref] {
			free = append(free, c)
		}
	}
	return w.withoutParked(ctx, w.table, free)
}

// wait waits until something was settled.
func (w *sweeper) wait(ctx context.Context) error {
	tick := time.NewTimer(sweepSave)
	defer tick.Stop()
	select {
	case <-w.found.settled.ready:
	case <-tick.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return w.advance(ctx)
}

// advance moves the cursor behind the pages that are settled in order, and
// saves it now and then.
func (w *sweeper) advance(ctx context.Context) error {
	for _, p := range w.collect() {
		if p.table == w.table {
			w.closed[p] = true
		}
	}
	s := w.state.Sweep
	for len(w.open) > 0 && w.closed[w.open[0]] {
		p := w.open[0]
		w.open = w.open[1:]
		delete(w.closed, p)
		s.Cursor, s.Found, s.Sent = keyOf(p.cursor), s.Found+p.found, s.Sent+p.sent
		w.table.metrics.swept.Add(float64(p.found))
	}
	if time.Since(w.logged) >= sweepProgress {
		w.logged = time.Now()
		w.log.Info("sweeping", zap.String("table", w.table.label), zap.Int("found", s.Found), zap.Int("sent", s.Sent), zap.Int("batches_in_hand", len(w.open)))
	}
	if time.Since(w.saved) < sweepSave {
		return nil
	}
	w.saved = time.Now()
	return w.saveState(ctx, w.table, w.state)
}

// saveState saves what the checkpoint keeps of the table.
func (f *fallback) saveState(ctx context.Context, t *table, st *tableState) error {
	return f.store.Fenced(ctx, f.fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		return saveTableState(ctx, tx, t.name, *st)
	})
}

func saveTableState(ctx context.Context, tx *checkpoint.Tx, name canal.TableName, st tableState) error {
	text, err := st.json()
	if err != nil {
		return err
	}
	return tx.SaveSweep(ctx, name.Schema, name.Name, text)
}

// endSweep takes the sweep out of the checkpoint, and reports it.
func (f *fallback) endSweep(ctx context.Context, t *table, st *tableState) error {
	ended := *st
	ended.Sweep = nil
	s := st.Sweep
	detail, err := auditDetail(map[string]any{"table": t.name.String(), "cause": s.Cause, "found": s.Found, "sent": s.Sent})
	if err != nil {
		return err
	}
	err = f.store.Fenced(ctx, f.fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		if err := tx.Audit(ctx, checkpoint.Audit{Action: "swept", Detail: detail}); err != nil {
			return err
		}
		return saveTableState(ctx, tx, t.name, ended)
	})
	if err != nil {
		return err
	}
	st.Sweep = nil
	f.log.Info("swept", zap.String("table", t.label), zap.String("cause", s.Cause), zap.Int("found", s.Found), zap.Int("sent", s.Sent))
	return nil
}
