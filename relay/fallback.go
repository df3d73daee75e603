package relay

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
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
