package relay

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// hunt is one look through one table.
type hunt struct {
	table *table
	what  looking
	after string // ref: up to here it has looked
	began time.Time
	refs  []unsentRow
	more  bool // there are rows behind
}

// huntRows bounds the keys of one table that one wait for the position is for.
const huntRows = 10000

// hunt finds the rows that the stream has passed, without clocks or grace: it
// selects the unsent rows, then reads where the binlog ends (P), waits until the
// saved position is at or past P on that same server, and looks again. The
// order is what makes it right: a row that was visible before P was read lies
// before P in the binlog, so by then the stream has dealt with it. Each read is
// its own READ COMMITTED transaction.
func (f *fallback) hunt(ctx context.Context, hunts []*hunt) error {
	var failed error
	for len(hunts) > 0 {
		any := false
		for _, h := range hunts {
			if err := f.select1(ctx, h); err != nil {
				h.refs, h.more, failed = nil, false, err // the other tables' turn all the same (P9)
			}
			any = any || len(h.refs) > 0
		}
		// While the stream lags, this wait keeps the fallback quiet.
		if any && !f.alone.Load() {
			p, err := f.server.CurrentPlace(ctx, f.db)
			if err != nil {
				return err
			}
			if err := f.reach(ctx, p); err != nil {
				return err
			}
		}
		var rest []*hunt
		for _, h := range hunts {
			if err := f.sendUnsent(ctx, h); err != nil {
				if ctx.Err() != nil {
					return err
				}
				failed = err
				continue
			}
			if h.more {
				rest = append(rest, h)
			} else if err := f.noteDue(ctx, h); err != nil {
				failed = err
			}
		}
		hunts = rest
	}
	return failed
}

// reach waits for the saved position, or until the binlog cannot be read.
func (f *fallback) reach(ctx context.Context, p checkpoint.Position) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if f.alone.Load() {
					cancel(errAlone)
					return
				}
			case <-done:
				return
			}
		}
	}()
	return f.found.progress.reach(ctx, p)
}

var errAlone = errors.New("the binlog stopped being read while its position was waited for")

// select1 is the first look: keys of unsent rows, up to huntRows.
func (f *fallback) select1(ctx context.Context, h *hunt) error {
	t := h.table
	index, known := f.indexes[t]
	if !known {
		var err error
		if index, err = f.current.statusIndex(ctx, t); err != nil {
			return err
		}
		f.indexes[t] = index
	}
	h.refs, h.more = h.refs[:0], true
	if h.after == "" {
		if st := f.states[t]; st != nil {
			h.after = t.ref(st.Floor)
		}
	}
	now := time.Now()
	if h.began.IsZero() {
		h.began = now
	}
	for h.more && len(h.refs) < huntRows {
		page, err := f.current.page(ctx, t, look{what: h.what, after: h.after, limit: t.config.Fallback.Batch, index: index}, now)
		if err != nil {
			delete(f.indexes, t) // it may be gone
			return err
		}
		h.more = len(page) == t.config.Fallback.Batch
		if len(page) == 0 {
			break
		}
		h.after = page[len(page)-1].ref
		fresh := page[:0]
		for _, c := range page {
			if !f.out[c.ref] {
				fresh = append(fresh, c)
			}
		}
		fresh, err = f.withoutParked(ctx, t, fresh)
		if err != nil {
			return err
		}
		h.refs = append(h.refs, fresh...)
	}
	return nil
}

// withoutParked leaves out what waits in parked for its next attempt. A row
// that was given up and is pending again was brought back by SQL: it is sent.
func (f *fallback) withoutParked(ctx context.Context, t *table, all []unsentRow) ([]unsentRow, error) {
	keys := make([][]byte, len(all))
	for i, c := range all {
		keys[i] = keyOf(c.ref)
	}
	parked, err := f.store.ParkedStates(ctx, f.stream, t.name.Schema, t.name.Name, keys)
	if err != nil {
		return nil, err
	}
	rest := all[:0]
	for _, c := range all {
		state, is := parked[c.ref[4:]]
		if is && (state == "waiting" || state == "failed" && t.config.Status.Failed == "") {
			continue
		}
		rest = append(rest, c)
	}
	return rest, nil
}

// sendUnsent is the second look, in batches: what waits for its write-back or
// is parked is left out first, then what is still unsent is sent.
func (f *fallback) sendUnsent(ctx context.Context, h *hunt) error {
	for len(h.refs) > 0 {
		n := batchOf(h.refs, h.table.config.Fallback.Batch, f.memory)
		batch := append([]unsentRow(nil), h.refs[:n]...)
		h.refs = h.refs[n:]
		// The order counts: a row that does not wait for its write-back now was
		// either never confirmed, or shows its new status in the look below.
		waiting, err := f.ask(ctx, batch)
		if err != nil {
			return err
		}
		rest := batch[:0]
		for _, c := range batch {
			if !waiting[c.ref] {
				rest = append(rest, c)
			}
		}
		if rest, err = f.withoutParked(ctx, h.table, rest); err != nil {
			return err
		}
		p, err := f.read(ctx, h.table, rest, h.what)
		if err != nil {
			return err
		}
		f.log.Debug("unsent rows found", zap.String("table", h.table.label), zap.Int("rows", p.found))
		h.table.metrics.found.Add(float64(p.found))
		if err := f.send(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// batchOf is how many rows are read at once: no more than the limit, and no
// more than memory holds, but one.
func batchOf(refs []unsentRow, limit int, memory int64) int {
	n := 0
	for n < len(refs) && n < limit {
		if memory -= refs[n].size + entryOverhead; memory < 0 && n > 0 {
			break
		}
		n++
	}
	return n
}

func (f *fallback) ask(ctx context.Context, batch []unsentRow) (map[string]bool, error) {
	q := question{answer: make(chan answer, 1)}
	for _, c := range batch {
		q.refs = append(q.refs, c.ref)
	}
	select {
	case f.found.questions <- q:
		return (<-q.answer).waiting, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// read reads rows by their keys and maps those that are what was looked for.
func (f *fallback) read(ctx context.Context, t *table, batch []unsentRow, what looking) (*page, error) {
	p := &page{table: t}
	if len(batch) == 0 {
		return p, nil
	}
	refs := make([]string, len(batch))
	for i, c := range batch {
		refs[i] = c.ref
	}
	now := time.Now()
	rows, m, err := f.current.rows(ctx, t, refs, "")
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		row := rows[ref]
		if row == nil || !m.passes(row) {
			continue
		}
		e := &entry{table: t, mapping: m, origin: fromSweep, page: p, fresh: now}
		if m.status >= 0 {
			e.seen = string(row.Values[m.status])
			if !m.unsent(t.config, row, what, now) {
				continue
			}
		}
		due, err := m.due(row)
		if err == nil && due.After(now) && what != forAll {
			continue
		}
		m.entry(row, e)
		if err != nil {
			e.fault = &fault{class: classPoison, reason: err.Error()}
		}
		p.entries = append(p.entries, e)
		p.refs = append(p.refs, e.ref)
	}
	p.found, p.open = len(p.entries), len(p.entries)
	return p, nil
}

// unsent says by row state whether the row is to be sent.
func (m *mapping) unsent(c *configs.Table, row *canal.Row, what looking, now time.Time) bool {
	status := string(row.Values[m.status])
	if what != forClaims {
		return status == string(c.Status.Pending)
	}
	i, err := columnIndex(m.shape, c.Status.LockedUntil)
	if err != nil || status != string(c.Status.Processing) || row.Values[i] == nil {
		return false
	}
	until, err := parseTime(row.Values[i])
	return err == nil && until.Before(now)
}

// send hands a page to the loop, and waits for room there.
func (f *fallback) send(ctx context.Context, p *page) error {
	if p.found == 0 {
		return nil
	}
	weight := int64(0)
	for _, e := range p.entries {
		weight += e.weight
		f.out[e.ref] = true
	}
	return f.found.pages.put(ctx, p, weight)
}

// noteDue finds when the next row of the table that waits for its time is due.
func (f *fallback) noteDue(ctx context.Context, h *hunt) error {
	if h.what != forPending {
		return nil
	}
	// Behind what the look has covered, not behind the present.
	at, err := f.current.nextDue(ctx, h.table, f.indexes[h.table], h.began)
	if err == nil && !at.IsZero() {
		f.dues.note(h.table, at)
	}
	return err
}
