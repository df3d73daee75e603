package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/checkpoint/killpoint"
)

// job is one transaction of the leader.
type job struct {
	writes []write
	changes
	passing  *passing             // what the position passes; nil: nothing to record
	covers   []cover              // what holds at position
	position *checkpoint.Position // nil: only rows
}

// written is the report of a job that is committed, or of why no job ever will be.
type written struct {
	job
	locked   []write // rows that the application holds locked, or whose table refuses the write
	finished []write // of parked rows: those that are written, or never will be
	err      error
}

// writer owns the leader's SQL session. A job is one fenced transaction (P4):
// row state, parked rows and position become durable together. It is tried
// until it succeeds (P8); a table that refuses its writes is left out, so that
// it holds back neither the others nor the position (P9).
type writer struct {
	store   *checkpoint.Store
	fence   checkpoint.Fence
	metrics *Metrics
	log     *zap.Logger

	jobs chan job // capacity 1: the loop never waits for it
	done chan written

	refusing map[*table]bool      // tables whose last write failed: logged once
	aside    map[*table]time.Time // tables that a lock made wait: left out until then
}

// asideFor keeps a table that a lock made wait out of the jobs that follow: each
// would wait the lock wait again, and the position with it (P9).
const asideFor = 5 * time.Second

func newWriter(store *checkpoint.Store, fence checkpoint.Fence, m *Metrics, log *zap.Logger) *writer {
	return &writer{store: store, fence: fence, metrics: m, log: log,
		jobs: make(chan job, 1), done: make(chan written, 1), refusing: map[*table]bool{}, aside: map[*table]time.Time{}}
}

// run carries out jobs until ctx ends or the fence refuses one.
func (w *writer) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case j := <-w.jobs:
			done, err := w.persist(ctx, j)
			if err != nil {
				return err
			}
			w.done <- done
		}
	}
}

// persist tries a job until it is committed. What it does is the same each
// time, so an unknown commit is simply done again.
func (w *writer) persist(ctx context.Context, j job) (written, error) {
	skip := w.waiting(time.Now())
	for failures := 0; ; {
		start := time.Now()
		done, err := w.try(ctx, j, skip)
		var refused *tableError
		switch {
		case err == nil:
			w.metrics.SaveTime.Observe(time.Since(start).Seconds())
			w.metrics.Saves.Inc()
			if failures > 0 {
				w.log.Info("the database takes writes again", zap.Int("attempts", failures+1))
			}
			return done, nil
		case ctx.Err() != nil:
			return done, context.Cause(ctx)
		case errors.Is(err, checkpoint.ErrFenced), errors.Is(err, errOtherServer):
			return done, err
		case errors.As(err, &refused):
			w.refuse(refused)
			skip[refused.table] = true
			continue
		}
		if failures++; failures == 1 {
			w.log.Warn("the database does not take writes, trying on", zap.Error(err))
		}
		w.metrics.Reconnects.WithLabelValues("state").Inc()
		if !sleep(ctx, backoff(failures, 50*time.Millisecond, 3*time.Second)) {
			return done, context.Cause(ctx)
		}
	}
}

// waiting is the tables that are still left out.
func (w *writer) waiting(now time.Time) map[*table]bool {
	out := map[*table]bool{}
	for t, until := range w.aside {
		if now.Before(until) {
			out[t] = true
		} else {
			delete(w.aside, t)
		}
	}
	return out
}

// try runs the job's transaction once.
func (w *writer) try(ctx context.Context, j job, skip map[*table]bool) (written, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	var done written
	var report []groupReport
	err := w.store.Fenced(ctx, w.fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		done, report = written{job: j}, report[:0]
		for _, g := range groupWrites(j.allWrites()) {
			if skip[g.table] {
				done.locked = append(done.locked, g.writes...)
				continue
			}
			r, err := g.apply(ctx, tx)
			if err != nil {
				return err
			}
			done.locked = append(done.locked, r.locked...)
			done.finished = append(done.finished, r.finished()...)
			report = append(report, r)
		}
		if err := j.persist(ctx, tx, done.finished); err != nil {
			return err
		}
		for _, c := range j.covers {
			if err := c.save(ctx, tx); err != nil {
				return err
			}
		}
		if j.position == nil {
			return nil
		}
		if p := j.passing; p != nil {
			if err := tx.PassParked(ctx, p.since, p.below, p.inherited); err != nil {
				return err
			}
		}
		if err := tx.SavePosition(ctx, *j.position); err != nil {
			return err
		}
		killpoint.Pass(killpoint.BeforeSave)
		return nil
	})
	if err == nil {
		if j.position != nil {
			killpoint.Pass(killpoint.AfterSave)
		}
		for _, r := range report {
			r.count()
			delete(w.refusing, r.table)
		}
	}
	return done, err
}

func (c cover) save(ctx context.Context, tx *checkpoint.Tx) error {
	if c.xid != nil {
		return tx.DropPrepared(ctx, c.xid)
	}
	return tx.CoverTable(ctx, c.table.Schema, c.table.Name, c.table.Shape)
}

// jobTimeout bounds one attempt: a server that does not answer must not keep
// the loop from noticing anything else.
const jobTimeout = 30 * time.Second

func (w *writer) refuse(e *tableError) {
	if isLockWait(e.err) {
		w.aside[e.table] = time.Now().Add(asideFor)
		w.log.Debug("row state waits for a lock that the application holds", zap.String("table", e.table.label))
		return
	}
	e.table.metrics.failedWrites.Inc()
	if !w.refusing[e.table] {
		w.refusing[e.table] = true
		w.log.Error("row state cannot be written: rows are sent but stay unsent in their table; correct what the error says",
			zap.String("table", e.table.label), zap.Error(e.err))
	}
}

// backoff is the pause before another attempt: doubling from base up to
// ceiling, the upper half of it random so that many do not come at once.
func backoff(failures int, base, ceiling time.Duration) time.Duration {
	d := min(base<<min(failures, 16), ceiling)
	return d/2 + rand.N(d/2+1)
}
