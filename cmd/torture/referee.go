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
	leaders map[uint64]int // term: number of the holder's process
	late    []string       // saves by a relay that did not lead any more
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
	return &referee{db: db, state: state, leaders: map[uint64]int{}}
}

// watch looks again and again until ctx ends.
func (r *referee) watch(ctx context.Context) {
	for ctx.Err() == nil {
		var now sighting
		err := r.db.QueryRowContext(ctx, fmt.Sprintf(`SELECT l.term, l.holder, c.term, c.saved_at, c.position
			FROM %s.lease l JOIN %[1]s.checkpoint c ON c.stream = l.stream`, r.state)).Scan(&now.term, &now.holder, &now.savedBy, &now.savedAt, &now.position)
		if err == nil {
			r.see(now)
		}
		pause(ctx, 15*time.Millisecond)
	}
}

func (r *referee) see(now sighting) {
	if parts := strings.Split(now.holder, "/"); len(parts) == 3 {
		r.leaders[now.term], _ = strconv.Atoi(parts[1])
	}
	saved := now.savedBy != r.before.savedBy || now.savedAt != r.before.savedAt || now.position != r.before.position
	if saved && now.savedBy < r.before.term {
		r.late = append(r.late, fmt.Sprintf("term %d saved when term %d had begun", now.savedBy, r.before.term))
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
