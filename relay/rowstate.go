package relay

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// rowState is what the application's row is told of a row that is not sent:
// exactly the columns that the configuration names.
type rowState struct {
	status   string // "": stays as it is
	keepRest bool   // only the status is written
	attempts int
	next     bool // it is tried again by itself, after wait
	wait     time.Duration
	problem  string
}

// rowStateOf is the row state after a refusal, nil for a row that was not tried.
func rowStateOf(b *berth, f *fault) *rowState {
	switch f.class {
	case classBehind, classClosed, classScheduled:
		return nil
	}
	s := &rowState{attempts: b.attempts, problem: f.reason}
	if f.code != 0 {
		s.problem = strconv.Itoa(f.code) + " " + f.reason
	}
	if b.state == checkpoint.ParkedFailed {
		s.status = string(b.table.config.Status.Failed)
	} else {
		s.next, s.wait = true, time.Until(b.due)
	}
	return s
}

// writesState says whether the table has a column for any of it.
func (t *table) writesState(s *rowState) bool {
	c := &t.config.Status
	return s != nil && t.config.AfterPublish == configs.Mark &&
		(s.status != "" || c.Attempts != "" || c.NextAttemptAt != "" || c.LastError != "")
}

// marksFailed says whether a row that is given up shows that in its status.
func (t *table) marksFailed() bool {
	return t.config.AfterPublish == configs.Mark && t.config.Status.Failed != ""
}

// applyStates writes the state of rows that were not sent, each with its own
// values. As in apply, what the application set meanwhile wins (P10).
func (g writeGroup) applyStates(ctx context.Context, tx *checkpoint.Tx) (groupReport, error) {
	r, mine, missing, err := g.lock(ctx, tx)
	if err != nil {
		return r, err
	}
	for _, w := range missing {
		if w.there && w.state.status != "" && w.now == w.state.status {
			r.written++ // by an attempt whose commit was not known
		} else {
			r.conflicts++
		}
	}
	for _, w := range mine {
		set, args := g.stateSet(w.state)
		args = append(append(args, g.keyArgs([]write{w})...), g.seenArgs()...)
		if _, err := tx.Exec(ctx, "UPDATE "+g.table.name.Quote()+" SET "+set+" WHERE "+g.where(1)+g.andSeen(), args...); err != nil {
			return r, g.judge(err)
		}
		r.written++
	}
	return r, nil
}

// stateSet is what an UPDATE sets.
func (g writeGroup) stateSet(s *rowState) (string, []any) {
	c := &g.table.config.Status
	var set []string
	var args []any
	add := func(column, expression string, values ...any) {
		if column != "" {
			set, args = append(set, canal.Quote(column)+" = "+expression), append(args, values...)
		}
	}
	if s.status != "" {
		add(c.Column, "?", s.status)
	}
	if s.keepRest {
		return strings.Join(set, ", "), args
	}
	add(c.Attempts, "?", s.attempts)
	if s.next {
		expression, value := g.mapping.timeAfter(c.NextAttemptAt, s.wait)
		add(c.NextAttemptAt, expression, value)
	} else {
		add(c.NextAttemptAt, "NULL")
	}
	add(c.LastError, "?", s.problem)
	return strings.Join(set, ", "), args
}

// now is the present time, as a column takes it.
func (m *mapping) now(column string) string {
	if i, err := columnIndex(m.shape, column); err == nil && m.shape.Columns[i].Integer {
		return "UNIX_TIMESTAMP()"
	}
	return "UTC_TIMESTAMP(6)"
}

// timeAfter is the time after a wait, as a column takes it: a date and time in
// UTC, or Unix seconds in an integer column.
func (m *mapping) timeAfter(column string, wait time.Duration) (string, any) {
	now := m.now(column)
	if now == "UNIX_TIMESTAMP()" {
		return now + " + ?", int64((wait + time.Second - 1) / time.Second)
	}
	return now + " + INTERVAL ? MICROSECOND", wait.Microseconds()
}
