package relay

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// fallback finds the unsent rows that the stream does not bring: those that a
// table had before it began or that a gap has hidden (a sweep, before the
// stream begins), those that the stream has passed (stragglers), those that
// have become due, and all of them while the binlog cannot be read. It runs on
// one goroutine with sessions of its own; what it finds goes through the loop
// like any row, behind what the stream has there.
type fallback struct {
	stream  string
	tables  *tables
	db      *sql.DB
	server  canal.Server
	store   *checkpoint.Store
	fence   checkpoint.Fence
	current *current
	found   *found
	metrics *Metrics
	log     *zap.Logger
	memory  int64 // bytes of rows read at once

	states map[*table]*tableState // from the checkpoint, where there is anything
	swept  chan struct{}          // closed when the stream may begin
	open   chan struct{}          // closed when it has begun, or cannot: before, nobody knows that the position is of this history
	dues   *dues
	alone  atomic.Bool // the binlog cannot be read: what is unsent is sent

	hush    chan chan struct{}   // asks for quiet, answered by closing
	out     map[string]bool      // refs with the loop
	next    map[*table]time.Time // when a table is looked at next
	indexes map[*table]string    // by which unsent rows are found
	failing bool                 // the last round failed: logged once
}

func newFallback(l *leader, found *found, dues *dues, memory int64) *fallback {
	f := &fallback{stream: l.relay.config.Name, tables: l.tables, db: l.db, server: l.server, store: l.store, fence: l.term.Fence,
		current: newCurrent(l.db, l.server, l.tables), found: found, metrics: l.relay.metrics, log: l.log, memory: memory,
		states: map[*table]*tableState{}, swept: make(chan struct{}), open: make(chan struct{}), dues: dues, hush: make(chan chan struct{}),
		out: map[string]bool{}, next: map[*table]time.Time{}, indexes: map[*table]string{}}
	for _, t := range l.tables.list() {
		if st, known := l.states[t.name]; known {
			f.states[t] = &st
		}
	}
	f.alone.Store(l.blind != nil)
	return f
}

// run sweeps what is to be swept, then looks at each table every fallback.every,
// and when a row of it is due.
func (f *fallback) run(ctx context.Context) error {
	if err := f.sweeps(ctx); err != nil {
		return err
	}
	close(f.swept)
	for begun := false; !begun; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case done := <-f.hush:
			f.alone.Store(false)
			close(done)
		case <-f.open:
			begun = true
		}
	}
	for {
		timer := time.NewTimer(f.untilNext())
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-f.dues.changed:
		case done := <-f.hush:
			if err := f.quiet(ctx); err != nil {
				return err
			}
			f.alone.Store(false) // from the next round on it waits for the stream again
			close(done)
		case <-f.found.settled.ready:
			f.collect()
		case <-timer.C:
			if err := f.round(ctx); err != nil {
				return err
			}
		}
		timer.Stop()
	}
}

// begin lets the fallback look for unsent rows. Only the reader calls it.
func (f *fallback) begin() {
	select {
	case <-f.open:
	default:
		close(f.open)
	}
}

// quiet returns when nothing that the fallback found is on its way, and what was
// confirmed is written back: from then on a look at a row tells the stream
// whether the fallback has sent it.
func (f *fallback) quiet(ctx context.Context) error {
	for len(f.out) > 0 {
		select {
		case <-f.found.settled.ready:
			f.collect()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		q := question{answer: make(chan answer, 1)}
		select {
		case f.found.questions <- q:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if (<-q.answer).writes == 0 {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// dues is when tables are to be looked at before their next turn. The preparer
// tells of rows that it deferred, and of tables that were written to unseen.
type dues struct {
	mu      sync.Mutex
	at      map[*table]time.Time
	changed chan struct{}
}

func newDues() *dues { return &dues{at: map[*table]time.Time{}, changed: make(chan struct{}, 1)} }

// note asks for a look at the table at a time, or earlier.
func (d *dues) note(t *table, at time.Time) {
	d.mu.Lock()
	before, known := d.at[t]
	sooner := !known || at.Before(before)
	if sooner {
		d.at[t] = at
	}
	d.mu.Unlock()
	if sooner {
		signal(d.changed)
	}
}

// take forgets what a look at the table is about to find.
func (d *dues) take(t *table) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.at, t)
}

func (d *dues) of(t *table) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, known := d.at[t]
	return at, known
}

// minPause keeps looks at rows that become due one by one apart.
const minPause = 500 * time.Millisecond

// turn is when the table is looked at next.
func (f *fallback) turn(t *table) time.Time {
	next, known := f.next[t]
	if !known {
		next = time.Now()
		f.next[t] = next
	}
	if due, any := f.dues.of(t); any && due.Before(next) {
		// next is one period behind the last look.
		if earliest := next.Add(minPause - t.config.Fallback.Every); due.Before(earliest) {
			due = earliest
		}
		return due
	}
	return next
}

func (f *fallback) untilNext() time.Duration {
	wait := time.Second // tables that a pattern matches may appear
	for _, t := range f.tables.polled() {
		wait = min(wait, time.Until(f.turn(t)))
	}
	return max(wait, 0)
}

// collect takes back what the loop has settled.
func (f *fallback) collect() []*page {
	pages := f.found.settled.take(nil)
	for _, p := range pages {
		for _, ref := range p.refs {
			delete(f.out, ref)
		}
	}
	return pages
}

// round looks at the tables whose turn it is. A failure of SQL is no failure of
// the relay: the next round looks again (P8).
func (f *fallback) round(ctx context.Context) error {
	f.collect()
	var due []*hunt
	now := time.Now()
	for _, t := range f.tables.polled() {
		if f.turn(t).After(now) {
			continue
		}
		f.next[t] = now.Add(t.config.Fallback.Every)
		f.dues.take(t)
		f.current.forget(t)
		due = append(due, &hunt{table: t, what: forPending})
		if t.config.Status.Processing != "" {
			due = append(due, &hunt{table: t, what: forClaims})
		}
	}
	err := f.hunt(ctx, due)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errAlone):
		err = nil
	case err != nil && !f.failing:
		f.log.Warn("unsent rows cannot be looked for, trying on", zap.Error(err))
	case err == nil && f.failing:
		f.log.Info("unsent rows can be looked for again")
	}
	f.failing = err != nil
	return nil
}

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
