package relay

import (
	"sync"
	"time"
)

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
