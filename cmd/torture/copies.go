package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

// copies tells the duplicates apart: each leader may send again what the one
// before it had not saved, and each lane that is opened again what was under way
// on it. What the broker itself delivers again is not among them.
type copies struct {
	inherited map[string]int // by process: what another had published before
	kept      map[string]int // of these, rows of tables without row state
	repeated  map[string]int // by process: what it had published itself
	firsts    []time.Time    // of all first arrivals
}

func newCopies() copies {
	return copies{inherited: map[string]int{}, kept: map[string]int{}, repeated: map[string]int{}}
}

// published notes who published a message that has arrived.
func (l *ledger) published(id, by string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.arrivals[id]
	switch {
	case len(a.by) == 0:
		l.copies.firsts = append(l.copies.firsts, at)
	case slices.Contains(a.by, by):
		l.copies.repeated[by]++
		return
	default:
		l.copies.inherited[by]++
		if r := l.rows[id]; r != nil && r.table.unsent == "" {
			l.copies.kept[by]++
		}
	}
	a.by = append(a.by, by)
}

// between counts the first arrivals of a time.
func (c *copies) between(from, to time.Time) int {
	at := func(t time.Time) int {
		return sort.Search(len(c.firsts), func(i int) bool { return c.firsts[i].After(t) })
	}
	return max(at(to)-at(from), 0)
}

// What may be under way at once in the relays' configuration.
const (
	inFlight = 64 // of one lane
	lanes    = 2
	window   = lanes * inFlight
	// Row state that the application's locks keep from being written waits in
	// memory, while the position goes on: the fallback sends those rows again.
	unwritten = 16384
)

// excess lists the processes that sent more again than the window, the
// transaction in hand and what was not saved when each of their leaderships
// began (of tables with row state: and what was not written to it), and says so
// of the lanes.
func (c *copies) excess(r *referee, name func(pid int) string, lanesUp int) (wrong []string) {
	allowed, terms := map[string]int{}, map[string]int{}
	for term, began := range r.begins {
		if pid, known := r.leaders[term]; known {
			terms[name(pid)]++
			allowed[name(pid)] += window + largest + c.between(began.savedBefore, began.saved(time.Now()))
		}
	}
	for _, by := range slices.Sorted(maps.Keys(c.inherited)) {
		if n, most := c.kept[by], allowed[by]; n > most {
			wrong = append(wrong, fmt.Sprintf("%s sent %d messages of others again, of tables without row state: %d at most were in their windows or not saved", by, n, most))
		}
		if n, most := c.inherited[by], allowed[by]+terms[by]*unwritten; n > most {
			wrong = append(wrong, fmt.Sprintf("%s sent %d messages of others again, %d at most were in their windows, not saved or not marked", by, n, most))
		}
	}
	if n, most := total(c.repeated), lanesUp*inFlight; n > most {
		wrong = append(wrong, fmt.Sprintf("%d messages were sent twice by one process, which opened its lanes %d times: %d at most", n, lanesUp, most))
	}
	return wrong
}

func total(of map[string]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

// lanesUp counts in a relay's log how often lanes were opened.
func lanesUp(log string) (n int) {
	text, _ := os.ReadFile(log)
	return strings.Count(string(text), "\tlane up\t")
}
