package relay

import (
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// window holds what was taken from the stream and is not settled, in commit
// order, and knows the low-water: the position up to which everything is
// settled. It is passive: the loop owns it.
//
// Rows get consecutive numbers from add. A mark, the end of an event group, is
// due once every row that was added before it is settled; marks are due in
// order, so the low-water never passes an unsettled row (P3). Marks with no row
// between them melt into one that carries the GTIDs of all, so foreign traffic
// behind a stuck row takes no room (P7).
type window struct {
	settled []bool // ring of rows, [head, head+count)
	head    int
	count   int
	first   uint64 // number of the row at head
	passed  uint64 // rows below this number lie before the low-water: first may be ahead of it, inside a group

	settledAt time.Time // commit time of the low-water
	marks     []mark    // in order; marks[i].after <= marks[i+1].after
}

// mark is the end of one or more event groups.
type mark struct {
	after uint64              // due once all rows below this number are settled
	end   checkpoint.Mark     // the last group's end
	more  *checkpoint.GTIDSet // GTIDs of the groups melted into this one, nil for a single group
	since time.Time           // commit time of the first group
	rows  bool                // a group with rows of ours is among them: saving it is due
}

func newWindow() *window { return &window{settled: make([]bool, 64)} }

// add takes a row and returns its number.
func (w *window) add() uint64 {
	if w.count == len(w.settled) {
		grown := make([]bool, 2*len(w.settled))
		n := copy(grown, w.settled[w.head:])
		copy(grown[n:], w.settled[:w.head])
		w.settled, w.head = grown, 0
	}
	w.settled[(w.head+w.count)%len(w.settled)] = false
	w.count++
	return w.next() - 1
}

// end takes the end of a group; rows says whether the group had rows of ours.
func (w *window) end(m checkpoint.Mark, rows bool) {
	after := w.next()
	if n := len(w.marks); n > 0 && w.marks[n-1].after == after {
		w.marks[n-1].melt(&mark{end: m, rows: rows}) // since stays that of the first
		return
	}
	if len(w.marks) >= maxMarks {
		w.thin()
	}
	w.marks = append(w.marks, mark{after: after, end: m, since: m.Time, rows: rows})
}

// maxMarks bounds the marks behind a row that is stuck: about 128 bytes each.
const maxMarks = 16384

// thin melts every second mark into its next: the low-water will move in
// coarser steps, which is still right, only later.
func (w *window) thin() {
	kept := w.marks[:0]
	for i := 0; i+1 < len(w.marks); i += 2 {
		a, b := &w.marks[i], &w.marks[i+1]
		a.melt(b)
		a.after = b.after
		kept = append(kept, *a)
	}
	if len(w.marks)%2 == 1 {
		kept = append(kept, w.marks[len(w.marks)-1])
	}
	clear(w.marks[len(kept):])
	w.marks = kept
}

// melt takes the groups of next in.
func (m *mark) melt(next *mark) {
	if m.more == nil {
		m.more = new(checkpoint.GTIDSet)
		m.more.Add(m.end.GTID)
	}
	if next.more != nil {
		m.more.Union(*next.more)
	} else {
		m.more.Add(next.end.GTID)
	}
	m.end, m.rows = next.end, m.rows || next.rows
}

// settle records that the row has one of P2's ends. Settling a row twice, or
// one that was never added, is a fault of the caller and reported as false.
func (w *window) settle(number uint64) bool {
	i := number - w.first
	if i >= uint64(w.count) {
		return false
	}
	slot := &w.settled[(w.head+int(i))%len(w.settled)]
	if *slot {
		return false
	}
	*slot = true
	for w.count > 0 && w.settled[w.head] {
		w.head = (w.head + 1) % len(w.settled)
		w.count--
		w.first++
	}
	return true
}

// advance moves low up to the low-water and says whether it moved, and whether
// a group with rows of ours was passed.
func (w *window) advance(low *checkpoint.Position) (moved, rows bool) {
	n := 0
	for n < len(w.marks) && w.marks[n].after <= w.first {
		m := &w.marks[n]
		if m.more != nil {
			low.GTIDs.Union(*m.more)
		}
		low.Advance(m.end)
		w.settledAt, w.passed = m.end.Time, m.after
		moved, rows = true, rows || m.rows
		n++
	}
	w.marks = append(w.marks[:0], w.marks[n:]...)
	return moved, rows
}

// unsettledSince is the commit time of the first group that is not settled, zero
// when all that was read to a group's end is.
func (w *window) unsettledSince() time.Time {
	if len(w.marks) == 0 {
		return time.Time{}
	}
	return w.marks[0].since
}

// next is the number that the next row will get.
func (w *window) next() uint64 { return w.first + uint64(w.count) }

// len is the number of rows that hold the low-water back or lie behind one that does.
func (w *window) len() int { return w.count }
