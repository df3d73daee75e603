package relay

import (
	"time"
)

// advance moves the low-water.
func (l *loop) advance() {
	moved, rows := l.window.advance(&l.low)
	for len(l.covers) > 0 && l.covers[0].after <= l.window.first {
		l.due, l.covers = append(l.due, l.covers[0]), l.covers[1:]
	}
	l.moved = l.moved || moved
	l.dueSave = l.dueSave || rows
	if moved && !l.window.settledAt.IsZero() {
		l.metrics.SettledTime.Set(float64(l.window.settledAt.UnixMilli()) / 1000)
		l.found.settledAt.Store(l.window.settledAt.Unix())
	}
	l.metrics.Window.Set(float64(l.window.len()))
	l.metrics.PendingWrites.Set(float64(len(l.writes)))
	l.metrics.ClosedDestinations.Set(float64(l.lot.dests.closed))
}

// save gives the writer what is due. Rows of ours make a save due every
// checkpoint.every, full batches and parked rows at once; foreign transactions
// alone, the relay's own writes among them, only every checkpoint.idle: a save
// that caused the next would never end.
func (l *loop) save() {
	if l.busy {
		return
	}
	age := time.Since(l.lastSave)
	if len(l.locked) > 0 && time.Since(l.lastTry) >= lockedRetry {
		l.writes, l.locked, l.lastTry = append(l.writes, l.locked...), nil, time.Now()
	}
	due := !l.next.empty() || len(l.writes) >= batchWrites ||
		(l.dueSave || len(l.writes) > 0) && age >= l.config.every ||
		(l.moved || len(l.next.forget) > 0) && age >= l.config.idle || l.moved && l.found.progress.due(l.low) ||
		l.stopping && (l.moved || len(l.writes) > 0)
	if !due {
		return
	}
	n := min(len(l.writes), batchWrites)
	j := job{writes: l.writes[:n:n], changes: l.next}
	if l.moved {
		position := l.low.Clone()
		j.position, j.covers, l.due = &position, l.due, nil
		j.passing = l.passing()
	}
	l.writes, l.writing = append([]write(nil), l.writes[n:]...), j.writes
	l.next, l.dueSave, l.moved, l.busy, l.lastSave = changes{}, false, false, true, time.Now()
	l.writer.jobs <- j
}

// written takes the writer's report: parked rows are settled now that they are
// durable (P2), rows that the application held locked come again.
func (l *loop) written(done written) {
	l.busy, l.writing = false, nil
	if done.position != nil {
		l.found.progress.set(*done.position)
	}
	l.changed(done)
	for _, w := range done.locked {
		if len(l.locked) < maxWrites && !w.outdated() {
			l.locked = append(l.locked, w)
		}
	}
}
