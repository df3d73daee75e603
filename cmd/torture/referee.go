package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// referee watches the lease and the saved position: who led in which order, and
// whether anybody saved after another had begun (P4).
type referee struct {
	db    *sql.DB
	state string

	before  sighting
	saves   [2]time.Time      // when the position was seen to move: before the last time, and last
	begins  map[uint64]*begin // by term
	leaders map[uint64]int    // term: number of the holder's process
	late    []string          // saves by a relay that did not lead any more
}

// begin is the begin of a leadership.
type begin struct {
	savedBefore time.Time // when the save before the last was over: the last one holds what was settled when it began
	firstSave   time.Time // when it moved in this term first; zero: never
}

// saved is when the leadership saved first, or else the end.
func (b *begin) saved(end time.Time) time.Time {
	if b.firstSave.IsZero() {
		return end
	}
	return b.firstSave
}

// sighting is the lease and the checkpoint as one statement saw them.
type sighting struct {
	term     uint64
	holder   string
	savedBy  uint64 // term
	savedAt  string
	position string
}

func newReferee(db *sql.DB, state string) *referee {
	return &referee{db: db, state: state, leaders: map[uint64]int{}, begins: map[uint64]*begin{}}
}

// watch looks again and again until ctx ends.
func (r *referee) watch(ctx context.Context) {
	for ctx.Err() == nil {
		var now sighting
		err := r.db.QueryRowContext(ctx, fmt.Sprintf(`SELECT l.term, l.holder, c.term, c.saved_at, c.position
			FROM %s.lease l JOIN %[1]s.checkpoint c ON c.stream = l.stream`, r.state)).Scan(&now.term, &now.holder, &now.savedBy, &now.savedAt, &now.position)
		if err == nil {
			r.see(now, time.Now())
		}
		pause(ctx, 15*time.Millisecond)
	}
}

func (r *referee) see(now sighting, at time.Time) {
	if parts := strings.Split(now.holder, "/"); len(parts) == 3 {
		r.leaders[now.term], _ = strconv.Atoi(parts[1])
	}
	saved := now.savedBy != r.before.savedBy || now.savedAt != r.before.savedAt || now.position != r.before.position
	if saved && now.savedBy < r.before.term {
		r.late = append(r.late, fmt.Sprintf("term %d saved when term %d had begun", now.savedBy, r.before.term))
	}
	if r.begins[now.term] == nil {
		r.begins[now.term] = &begin{savedBefore: r.saves[0]}
	}
	if now.position != r.before.position {
		r.saves = [2]time.Time{r.saves[1], at}
		if b := r.begins[now.savedBy]; b != nil && b.firstSave.IsZero() {
			b.firstSave = at
		}
	}
	r.before = now
}

// intruders lists, by queue, messages of a process that another had followed:
// the publishers of a queue must come in the order of the terms. A term that
// nobody saw may have been anybody's.
func (r *referee) intruders(queue string, runs []stretch, name func(pid int) string) (found []string) {
	term := uint64(1)
	for n, run := range runs {
		at := term
		for at <= r.before.term {
			if pid, known := r.leaders[at]; !known || name(pid) == run.publisher {
				break
			}
			at++
		}
		if at > r.before.term {
			found = append(found, fmt.Sprintf("%s: %s published after %s had begun", queue, run.publisher, runs[max(n-1, 0)].publisher))
			continue
		}
		term = at
	}
	return found
}
