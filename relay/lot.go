package relay

import (
	"container/heap"
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// lot is what the loop knows of all parked rows: when each is due, in which
// line it stands, what it waits for. The rows themselves are in the state
// tables; of their order and their ends the lot is a copy (one berth each, so
// max_parked bounds it, P7). It is passive.
//
// A parked row of a strict key stands in its key's line, in commit order, and
// only the first of a line is due (P6). A later row of the key lines up behind,
// parked too, unless all of the line is in the flow already: then it may follow
// there, so that a line which empties lets the stream take over without a stop.
type lot struct {
	dests  *destinations
	byRef  map[string]*berth
	lines  map[string]*line
	alarms alarms
	out    int            // berths on their way
	open   map[*table]int // rows that are not ended

	// Ended rows are kept until the stream cannot read them again: those of
	// this term are in ahead until the saved position has passed them, those
	// of earlier terms in inherited until it has passed all that was in the
	// binlog when the leadership began.
	ahead, inherited []*berth
}

func newLot(dests *destinations) *lot {
	return &lot{dests: dests, byRef: map[string]*berth{}, lines: map[string]*line{}, open: map[*table]int{}}
}

// full says whether a table has as many parked rows as it may.
func (l *lot) full(t *table) bool { return l.open[t] >= t.config.MaxParked }

// blocks says whether a row of a gate has to line up behind parked ones.
func (l *lot) blocks(gate string) bool {
	if gate == "" || len(l.lines) == 0 {
		return false
	}
	ln := l.lines[gate]
	return ln != nil && ln.here > 0
}

// add takes a row in. It is not tried before it is durable, see saved.
func (l *lot) add(b *berth, gate, exchange, routingKey string) {
	b.to = l.dests.acquire(exchange, routingKey)
	l.byRef[b.ref] = b
	l.open[b.table]++
	countParked(b, 1)
	if gate == "" || !b.table.strict() {
		return
	}
	ln := l.lines[gate]
	if ln == nil {
		ln = &line{gate: gate, first: b}
		l.lines[gate] = ln
	} else {
		ln.last.next, b.prev = b, ln.last
	}
	ln.last, b.line = b, ln
	ln.here++
}

// saved says that a row is durable.
func (l *lot) saved(b *berth) {
	if b.stage == stageUnsaved {
		b.stage = stageIdle
		l.schedule(b)
	}
}

// schedule makes a berth due at its time if it is its turn.
func (l *lot) schedule(b *berth) {
	if b.state != checkpoint.ParkedWaiting || b.stage != stageIdle || b.alarm != nil || b.line != nil && b.line.first != b {
		return
	}
	if d := b.to; d.closed && d.alarm != nil && !b.due.After(d.alarm.at) {
		b.stage = stageWaiting
		d.waiting = append(d.waiting, b)
		return
	}
	b.alarm = &alarm{at: b.due, order: b.sequence, berth: b}
	heap.Push(&l.alarms, b.alarm)
}

// unschedule takes a berth out of whatever it waits in.
func (l *lot) unschedule(b *berth) {
	if b.alarm != nil {
		heap.Remove(&l.alarms, b.alarm.index)
		b.alarm = nil
	}
	if b.stage == stageWaiting {
		b.stage = stageIdle // its destination passes over it
	}
}

// next returns the berths to try now, at most room of them, and marks them as
// on their way. Those of one line are in its order.
func (l *lot) next(now time.Time, room int, into []*berth) []*berth {
	for len(into) < room && len(l.alarms) > 0 && !l.alarms[0].at.After(now) {
		a := heap.Pop(&l.alarms).(*alarm)
		if a.berth == nil {
			into = l.probe(a.destination, now, into)
			continue
		}
		b := a.berth
		b.alarm = nil
		if b.to.closed || b.to.out >= l.share(b.to) {
			b.stage = stageWaiting
			b.to.waiting = append(b.to.waiting, b)
			continue
		}
		into = l.take(b, now, room, into)
	}
	return into
}

// probe sends one row to a closed destination. A row that was never tried goes
// first: among rows that are refused for their own sake it finds out soonest
// that the destination is well.
func (l *lot) probe(d *destination, now time.Time, into []*berth) []*berth {
	d.alarm = nil
	if !d.closed {
		return into
	}
	at := -1
	waiting := d.waiting[:0]
	for _, b := range d.waiting {
		if b.stage != stageWaiting || b.to != d {
			continue
		}
		if at < 0 || b.refusals == 0 && waiting[at].refusals > 0 {
			at = len(waiting)
		}
		waiting = append(waiting, b)
	}
	clear(d.waiting[len(waiting):])
	d.waiting = waiting
	if at < 0 {
		l.opened(d) // nothing is left to probe with: the next message is the probe
		return into
	}
	b := waiting[at]
	d.waiting = append(waiting[:at], waiting[at+1:]...)
	b.stage, b.probe = stageIdle, true
	return l.take(b, now, len(into)+1, into)
}

// take marks a berth, and what may follow it in its line, as on the way.
func (l *lot) take(b *berth, now time.Time, room int, into []*berth) []*berth {
	for n := 0; b != nil && n < maxFollowers && len(into) < room; n++ {
		if n > 0 && (b.state != checkpoint.ParkedWaiting || b.stage != stageIdle || b.due.After(now) || b.to.closed) {
			break
		}
		b.stage = stageOut
		l.out++
		b.to.out++
		into = append(into, b)
		b = b.next
	}
	return into
}

// maxFollowers bounds how many rows of one line are on their way together.
const maxFollowers = 32

// share is how many retries may be on their way to a destination: the rest of
// maxOut is for others (P9).
func (l *lot) share(d *destination) int {
	if d.limit > 0 {
		return min(d.limit, maxOut/2)
	}
	return maxOut / 2
}

// back returns a berth that is on its way to its place.
func (l *lot) back(b *berth) {
	d := b.to
	l.arrived(b)
	l.schedule(b)
	l.goOn(d)
}

// entered says that a berth is in the flow.
func (l *lot) entered(b *berth) {
	b.inFlow = true
	if b.line != nil {
		b.line.here--
	}
}

// arrived ends a berth's being on its way.
func (l *lot) arrived(b *berth) {
	l.out--
	b.to.out--
	if b.inFlow && b.line != nil {
		b.line.here++
	}
	b.stage, b.probe, b.inFlow = stageIdle, false, false
}

// goOn lets others follow to a destination when one has come back: the next
// probe at once if the one that came back was a probe and never got there.
func (l *lot) goOn(d *destination) {
	if !d.closed {
		l.refill(d)
	} else if d.alarm == nil && d.out == 0 {
		d.alarm = &alarm{destination: d}
		heap.Push(&l.alarms, d.alarm)
	}
}

// mayFollow says whether a berth that was read may go into the flow: all before
// it in its line must be there.
func (l *lot) mayFollow(b *berth) bool { return b.line == nil || b.prev == nil || b.prev.inFlow }

// refill lets rows follow that wait for a destination that is open.
func (l *lot) refill(d *destination) {
	for room := l.share(d) - d.out; room > 0 && !d.closed && len(d.waiting) > 0; {
		b := d.waiting[0]
		d.waiting[0] = nil
		d.waiting = d.waiting[1:]
		if b.stage == stageWaiting && b.to == d {
			b.stage = stageIdle
			l.schedule(b)
			room--
		}
	}
}

// took records that a destination took a message: it is open.
func (l *lot) took(d *destination, full int) {
	d.took(full)
	if d.closed {
		l.opened(d)
	}
}

func (l *lot) opened(d *destination) {
	d.closed, d.failures, d.limit, d.streak = false, 0, 1, 0
	l.dests.closed--
	if d.alarm != nil {
		heap.Remove(&l.alarms, d.alarm.index)
		d.alarm = nil
	}
	l.refill(d)
}

// refusal records that a destination refused a message, and closes it when
// that is not the message's own fault.
func (l *lot) refusal(d *destination, t *table, now time.Time) {
	closes := d.refused()
	switch {
	case d.closed && d.alarm == nil: // the probe
		d.failures++
	case !d.closed && closes:
		d.closed, d.failures = true, 0
		l.dests.closed++
	default:
		return
	}
	d.alarm = &alarm{at: now.Add(delay(t.config.Retry, d.failures)), destination: d}
	heap.Push(&l.alarms, d.alarm)
}

// refused records the refusal of a row. An attempt counts only if its
// destination took another message since the row's last one, and this is its
// only refusal since: then the row is to blame. All else is an outage of the
// destination, which burns nothing (P8).
func (l *lot) refused(b *berth, c class, now time.Time) {
	countParked(b, -1)
	defer countParked(b, 1)
	b.class = c
	b.refusals++
	if c == classPoison {
		b.state = checkpoint.ParkedFailed
		return
	}
	if b.refusals > 1 && b.to.taken > b.taken && b.to.streak == 1 {
		b.attempts++
	}
	b.taken = b.to.taken
	b.due = now.Add(delay(b.table.config.Retry, b.attempts))
	if b.to.closed && b.to.alarm != nil {
		b.due = b.to.alarm.at
	}
	if b.attempts >= b.table.config.Retry.Attempts {
		b.state, b.due = checkpoint.ParkedFailed, time.Time{}
	}
}

// redirect notes that a row maps to another destination by now.
func (l *lot) redirect(b *berth, exchange, routingKey string) {
	if b.to.destinationName == (destinationName{exchange, routingKey}) {
		return
	}
	old, on := b.to, l.dests.acquire(exchange, routingKey)
	b.to, b.taken = on, on.taken
	if b.stage == stageOut {
		old.out--
		on.out++
		l.goOn(old)
	}
	l.dests.release(old)
}

// revive makes a row due at once, as if it was never tried: a person, or the
// application, says that it can be sent now.
func (l *lot) revive(b *berth) {
	countParked(b, -1)
	b.state, b.attempts, b.refusals, b.due = checkpoint.ParkedWaiting, 0, 0, time.Time{}
	countParked(b, 1)
	if b.stage == stageOut || b.stage == stageUnsaved {
		return
	}
	l.unschedule(b)
	l.schedule(b)
	if d := b.to; d.closed && d.alarm != nil { // it is the next probe, and that is now
		d.alarm.at = time.Time{}
		heap.Fix(&l.alarms, d.alarm.index)
	}
}

// ending keeps a row from being tried while its end is made durable. The next
// of its line gets its turn only then: otherwise a crash could bring back a row
// that another has overtaken (P6).
func (l *lot) ending(b *berth) {
	l.unschedule(b)
	d, out := b.to, b.stage == stageOut
	if out {
		l.arrived(b)
	}
	b.stage = stageEnding
	if out {
		l.goOn(d)
	}
}

// end records a row's end. The next of its line gets its turn.
func (l *lot) end(b *berth, state checkpoint.ParkedState) {
	countParked(b, -1)
	l.open[b.table]--
	l.unschedule(b)
	if b.stage == stageOut {
		l.arrived(b)
	}
	b.state, b.stage = state, stageIdle
	if ln := b.line; ln != nil {
		ln.here--
		if b.prev != nil {
			b.prev.next = b.next
		} else {
			ln.first = b.next
		}
		if b.next != nil {
			b.next.prev = b.prev
		} else {
			ln.last = b.prev
		}
		b.line, b.next, b.prev = nil, nil, nil
		if ln.first == nil {
			delete(l.lines, ln.gate)
		} else {
			l.schedule(ln.first)
		}
	}
	l.goOn(b.to)
	l.dests.release(b.to)
}

// passed records that the saved position has passed rows, and returns those
// that can be forgotten.
func (l *lot) passed(p *passing) (forget []*berth) {
	pass := func(b *berth) {
		if b.past = true; b.stored {
			forget = append(forget, b)
		}
	}
	kept := l.ahead[:0]
	for _, b := range l.ahead {
		if b.number < p.below {
			pass(b)
		} else {
			kept = append(kept, b)
		}
	}
	clear(l.ahead[len(kept):])
	l.ahead = kept
	if p.inherited {
		for _, b := range l.inherited {
			pass(b)
		}
		l.inherited = nil
	}
	return forget
}

// forget drops an ended row.
func (l *lot) forget(b *berth) {
	if l.byRef[b.ref] == b {
		delete(l.byRef, b.ref)
	}
}
