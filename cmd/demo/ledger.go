package main

import (
	"slices"
	"strconv"
	"time"
)

// ledger holds what the shop did against what the consumer got. It is passive,
// and owned by the demo's loop. It is exact: every row that was ever inserted
// is in it, whatever became of its transaction.
type ledger struct {
	rows  map[uint64]*entry   // in an open transaction, or committed and not delivered yet
	fates []fate              // by id, of all other rows
	lines map[string][]*entry // by ordering key: rows not delivered yet, in the order of their commits

	transactions, rolledBackTransactions int
	committed, rolledBack                int // rows
	delivered                            int // distinct committed rows
	ghosts                               int // deliveries of what was never committed
	disordered                           int // delivered after a later row of their key

	lags latencies
}

// row is one outbox row.
type row struct {
	id  uint64 // also the message id, in decimal; counted from 1 over all tables
	key string // ordering key, unique over all tables; "" is unordered
}

// entry is a row whose end is not known.
type entry struct {
	row
	committed time.Time // when COMMIT was sent; zero while the transaction is open
	delivered time.Time // first; zero before
	overtaken bool
}

// fate is the end that a row came to.
type fate byte

const (
	unknown fate = iota // never inserted, or no end yet
	arrived
	undone
)

func newLedger() *ledger {
	return &ledger{rows: map[uint64]*entry{}, lines: map[string][]*entry{}}
}

// open notes rows that were inserted, before their transaction can commit.
func (l *ledger) open(rows []row) {
	for _, r := range rows {
		e := &entry{row: r}
		l.rows[r.id] = e
		if r.key != "" {
			l.lines[r.key] = append(l.lines[r.key], e)
		}
	}
}

// undo notes that rows were taken back, by ROLLBACK or to a savepoint.
func (l *ledger) undo(rows []row) {
	for _, r := range rows {
		e := l.rows[r.id]
		if !e.delivered.IsZero() {
			l.ghosts++ // sent before its transaction had an end
		}
		l.leaveLine(e)
		l.end(e, undone)
		l.rolledBack++
	}
}

// commit notes that COMMIT of rows, sent at a time, succeeded.
func (l *ledger) commit(rows []row, sent time.Time) {
	l.committed += len(rows)
	for _, r := range rows {
		e := l.rows[r.id]
		e.committed = sent
		if !e.delivered.IsZero() {
			l.arrive(e)
		}
	}
}

// deliver notes a message that the consumer processes. It may come again: a
// transaction that fails is tried again.
func (l *ledger) deliver(messageID string, at time.Time) {
	id, err := strconv.ParseUint(messageID, 10, 64)
	e := l.rows[id]
	switch {
	case err != nil, e == nil && l.fate(id) != arrived:
		l.ghosts++
	case e == nil, !e.delivered.IsZero(): // known
	default:
		e.delivered = at
		l.leaveLine(e)
		if !e.committed.IsZero() {
			l.arrive(e)
		}
	}
}

// leaveLine takes a row out of its key's line. When it was delivered, those
// before it have been overtaken.
func (l *ledger) leaveLine(e *entry) {
	line := l.lines[e.key]
	i := slices.Index(line, e)
	if i < 0 {
		return
	}
	if !e.delivered.IsZero() {
		for _, before := range line[:i] {
			before.overtaken = true
		}
	}
	l.lines[e.key] = slices.Delete(line, i, i+1)
}

// arrive ends a row that is committed and delivered.
func (l *ledger) arrive(e *entry) {
	l.delivered++
	if e.overtaken {
		l.disordered++
	}
	l.lags.add(e.delivered, e.delivered.Sub(e.committed))
	l.end(e, arrived)
}

func (l *ledger) end(e *entry, f fate) {
	delete(l.rows, e.id)
	for uint64(len(l.fates)) <= e.id {
		l.fates = append(l.fates, unknown)
	}
	l.fates[e.id] = f
}

func (l *ledger) fate(id uint64) fate {
	if id < uint64(len(l.fates)) {
		return l.fates[id]
	}
	return unknown
}

// waiting is what is committed and was not delivered.
type waiting struct {
	rows      int
	oldest    time.Time // commit of the oldest; zero when none waits
	overtaken int       // a later row of their key was delivered: they are missing
}

func (l *ledger) waiting() waiting {
	var w waiting
	for _, e := range l.rows {
		if e.committed.IsZero() {
			continue
		}
		w.rows++
		if e.overtaken {
			w.overtaken++
		}
		if w.oldest.IsZero() || e.committed.Before(w.oldest) {
			w.oldest = e.committed
		}
	}
	return w
}

// audit is what the consumer's effects show against the ledger.
type audit struct {
	applied     int      // committed rows that have an effect
	ghosts      int      // effects of what was never committed
	lost, twice []uint64 // committed rows without an effect, and with several
}

// audit compares effects, by how often each id has one, with every row. It is
// the truth once relays and consumer have stopped and the queue is empty.
func (l *ledger) audit(effects map[uint64]int) (a audit) {
	committed := func(id uint64) bool {
		e := l.rows[id]
		return l.fate(id) == arrived || e != nil && !e.committed.IsZero()
	}
	for id, n := range effects {
		switch {
		case !committed(id):
			a.ghosts++
			continue
		case n > 1:
			a.twice = append(a.twice, id)
		}
		a.applied++
	}
	for id, f := range l.fates {
		if f == arrived && effects[uint64(id)] == 0 {
			a.lost = append(a.lost, uint64(id))
		}
	}
	for id := range l.rows {
		if committed(id) && effects[id] == 0 {
			a.lost = append(a.lost, id)
		}
	}
	slices.Sort(a.lost)
	slices.Sort(a.twice)
	return a
}
