package relay

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/towpath/towpath/checkpoint"
)

// page is what one look at a table found, on its way through the loop. The
// fallback makes it, the loop owns it until it gives it back over loop.settled.
type page struct {
	table   *table
	entries []*entry
	refs    []string // the entries'
	cursor  string   // ref of the last row that the look has passed: all up to it is settled once the pages are, in order
	found   int      // rows
	open    int      // rows not settled
	sent    int      // rows confirmed

	// Of rows that an operator sends again:
	back    *queue[*page] // where it is given back to; nil: the fallback
	parked  int           // rows that wait among the parked
	refused int           // rows that the broker refused
	why     string        // the first refusal
}

// question asks the loop which rows still wait for their write-back: such a row
// looks unsent in its table and is not (P2, and no row twice).
type question struct {
	refs   []string
	answer chan answer // capacity 1
}

type answer struct {
	waiting map[string]bool // of the refs that were asked for
	writes  int             // rows of any table that wait, but for those that an application keeps locked
}

// found is what the loop and the fallback share.
type found struct {
	pages     *queue[*page]  // fallback to loop
	settled   *queue[*page]  // loop to fallback
	questions chan question  // fallback to loop
	progress  *savedProgress // loop to fallback
	settledAt atomic.Int64   // Unix seconds of the low-water's commit; 0: none yet
}

func newFound(memory int64, start checkpoint.Position) *found {
	return &found{pages: newQueue[*page](memory), settled: newQueue[*page](1 << 40),
		questions: make(chan question), progress: newSavedProgress(start)}
}

// admitFound takes rows that a look found, after the stream's own.
func (l *loop) admitFound() {
	for len(l.foundHeld) > 0 {
		p := l.foundHeld[0]
		for len(p.entries) > 0 {
			if !l.hasRoom() {
				return
			}
			e := p.entries[0]
			p.entries[0] = nil
			p.entries = p.entries[1:]
			l.admit(e)
		}
		l.foundHeld[0] = nil
		l.foundHeld = l.foundHeld[1:]
	}
}

// settlePage gives a page back when all its rows are settled.
func (l *loop) settlePage(p *page) {
	if p.open--; p.open == 0 {
		back := l.found.settled
		if p.back != nil {
			back = p.back
		}
		back.add([]*page{p})
	}
}

// answerQuestion says which of the rows are confirmed and not written back.
func (l *loop) answerQuestion(q question) {
	asked := make(map[string]bool, len(q.refs))
	for _, ref := range q.refs {
		asked[ref] = true
	}
	waiting := map[string]bool{}
	for _, list := range [][]write{l.writes, l.locked, l.writing} {
		for _, w := range list {
			if asked[w.ref] {
				waiting[w.ref] = true
			}
		}
	}
	q.answer <- answer{waiting, len(l.writes) + len(l.writing)}
}

// savedProgress tells the fallback how far the saved position has come.
type savedProgress struct {
	mu      sync.Mutex
	saved   checkpoint.Position // by file and offset alone
	changed chan struct{}       // closed at the next change
	wanted  *checkpoint.Position
}

func newSavedProgress(start checkpoint.Position) *savedProgress {
	return &savedProgress{saved: place(start), changed: make(chan struct{})}
}

func place(p checkpoint.Position) checkpoint.Position {
	return checkpoint.Position{File: p.File, Offset: p.Offset}
}

// set is called by the loop when a position was saved.
func (s *savedProgress) set(p checkpoint.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = place(p)
	if s.wanted != nil && s.saved.Compare(*s.wanted) >= 0 {
		s.wanted = nil
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// get is the saved position, by file and offset.
func (s *savedProgress) get() checkpoint.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved
}

// due says whether somebody waits for a place that low has reached: foreign
// transactions alone would be saved only every checkpoint.idle.
func (s *savedProgress) due(low checkpoint.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted != nil && low.Compare(*s.wanted) >= 0
}

// reach waits until the saved position is at or past a place of the same server.
func (s *savedProgress) reach(ctx context.Context, p checkpoint.Position) error {
	want := place(p)
	for {
		s.mu.Lock()
		if s.saved.Compare(want) >= 0 {
			s.mu.Unlock()
			return nil
		}
		s.wanted = &want
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
