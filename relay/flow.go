package relay

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/towpath/towpath/relay/rabbit"
)

// flow decides which entries may be with the broker now. It is passive: the
// loop owns it.
//
// Every admitted entry is in exactly one of three places: waiting behind an
// earlier entry of its gate, ready in a queue, or with a lane. A gate is one
// ordering key of one strict table and lets one entry at a time out of its line
// (P6: a later row of a key can never overtake one that the broker may still
// refuse). Entries of fast tables have no gate but are bound to one lane by
// their key, whose channel keeps them in order. All others go wherever there is
// room.
//
// A lane has room for a number of messages and bytes; a body above the bytes
// goes alone. Both bounds are the lane's own (P7), so what is taken from the
// queues never waits in the lane. Of that room one destination gets at most
// half; an entry that has to wait for its destination is held aside and stops
// no other (P9), save for the later ones of its own key (P6). An entry whose
// destination is closed is not sent but given back, see unsendable.
type flow struct {
	gates  map[string]*entry // last in line of each gate that has entries
	lanes  []room
	any    room // ready, bound to no lane; its bounds are not used
	slots  []*entry
	free   []uint64
	ended  []*entry // taken from their queues and not to be sent, see recheck.go
	reused []*fifo

	dests      *destinations
	heldKeys   map[string]*heldKey // of fast tables: keys with entries held aside
	unsendable []*entry            // their destination is closed: for the loop to refuse

	admitted uint64
	count    int   // entries admitted and not yet let go
	weight   int64 // their bytes
	seed     maphash.Seed
}

// room is what one lane may still take, and what waits for it.
type room struct {
	messages, maxMessages int
	bytes, maxBytes       int64
	ready                 fifo           // ready, bound to this lane
	held                  []*destination // those that hold entries bound to this lane aside
}

// heldKey is the destination that an ordering key's entries wait for, and how many do.
type heldKey struct {
	behind  *destination
	entries int
}

func newFlow(dests *destinations, messages int, bytes int64) *flow {
	f := &flow{gates: map[string]*entry{}, lanes: make([]room, dests.lanes), seed: maphash.MakeSeed(),
		dests: dests, heldKeys: map[string]*heldKey{}}
	for i := range f.lanes {
		f.lanes[i].maxMessages, f.lanes[i].maxBytes = messages, bytes
	}
	return f
}

// admit takes an entry into the flow.
func (f *flow) admit(e *entry) {
	f.admitted++
	e.order = f.admitted
	f.count++
	f.weight += e.weight
	e.lane = -1
	e.to = f.dests.acquire(e.message.Exchange, e.message.RoutingKey)
	if e.gate != "" && e.table.strict() {
		last := f.gates[e.gate]
		f.gates[e.gate] = e
		if last != nil {
			last.behind = e
			return
		}
	} else if e.gate != "" && e.table.fast() {
		e.lane = int32(maphash.String(f.seed, e.gate) % uint64(len(f.lanes)))
	}
	f.makeReady(e)
}

func (f *flow) makeReady(e *entry) {
	if e.lane >= 0 {
		f.lanes[e.lane].ready.push(e)
	} else {
		f.any.ready.push(e)
	}
}

// fill moves ready entries to lane i while it has room, oldest first, and
// appends their tickets to out. Those that were held aside come first.
//
// An entry that has to be looked at first holds its queue back: what stands
// behind it may not overtake it (P6).
func (f *flow) fill(i int, out []rabbit.Ticket) []rabbit.Ticket {
	lane := &f.lanes[i]
	now := time.Now()
	for _, r := range [...]*room{lane, &f.any} {
		out = f.fillHeld(i, r, now, out)
	}
	for {
		from := &lane.ready
		if from.empty() || (!f.any.ready.empty() && f.any.ready.peek().order < from.peek().order) {
			from = &f.any.ready
		}
		if from.empty() {
			return out
		}
		e := from.peek()
		key := f.heldKeys[e.gate] // "" is never held
		switch {
		case key != nil && e.lane == int32(i):
			f.hold(from.pop(), key.behind) // P6: not past an earlier one of its key
		case e.closed():
			f.unsendable = append(f.unsendable, from.pop())
		case !lane.takes(e) || e.stale(now):
			return out
		case e.verdict != stillUnsent:
			f.ended = append(f.ended, from.pop())
		case !e.to.mayTake(i, e.message.Size(), lane):
			f.hold(from.pop(), e.to)
		default:
			out = append(out, f.send(i, from.pop()))
		}
	}
}

// fillHeld sends what is held aside in r and has room by now.
func (f *flow) fillHeld(i int, r *room, now time.Time, out []rabbit.Ticket) []rabbit.Ticket {
	lane := &f.lanes[i]
	for n := 0; n < len(r.held); n++ {
		d := r.held[n]
		queue := f.heldQueue(d, r)
		for !queue.empty() {
			e := queue.peek()
			closed, ended := e.closed(), e.verdict != stillUnsent
			if !closed && !ended && (!lane.takes(e) || e.stale(now) || !e.to.mayTake(i, e.message.Size(), lane)) {
				break
			}
			f.unhold(queue.pop())
			switch {
			case closed:
				f.unsendable = append(f.unsendable, e)
			case ended:
				f.ended = append(f.ended, e)
			default:
				out = append(out, f.send(i, e))
			}
		}
		if queue.empty() {
			r.held = slices.Delete(r.held, n, n+1)
			n--
		}
	}
	return out
}

func (f *flow) heldQueue(d *destination, r *room) *fifo {
	for i := range f.lanes {
		if r == &f.lanes[i] {
			return &d.held[i]
		}
	}
	return &d.held[len(f.lanes)]
}

// hold sets an entry aside until a destination, its own or that of an earlier
// entry of its key, has room.
func (f *flow) hold(e *entry, d *destination) {
	if d.held == nil {
		d.held = make([]fifo, len(f.lanes)+1)
	}
	r := &f.any
	if e.lane >= 0 {
		r = &f.lanes[e.lane]
		key := f.heldKeys[e.gate]
		if key == nil {
			key = &heldKey{behind: d}
			f.heldKeys[e.gate] = key
		}
		key.entries++
	}
	queue := f.heldQueue(d, r)
	if queue.empty() {
		r.held = append(r.held, d)
	}
	queue.push(e)
}

func (f *flow) unhold(e *entry) {
	if e.lane < 0 {
		return
	}
	if key := f.heldKeys[e.gate]; key.entries == 1 {
		delete(f.heldKeys, e.gate)
	} else {
		key.entries--
	}
}

// send gives an entry to lane i.
func (f *flow) send(i int, e *entry) rabbit.Ticket {
	size := e.message.Size()
	lane := &f.lanes[i]
	e.lane = int32(i)
	lane.messages++
	lane.bytes += int64(size)
	e.to.sent(i, size)
	e.token = f.slot(e)
	return rabbit.Ticket{Token: e.token, Message: &e.message}
}

func (r *room) takes(e *entry) bool {
	return r.messages == 0 || (r.messages < r.maxMessages && r.bytes+int64(e.message.Size()) <= r.maxBytes)
}

func (f *flow) slot(e *entry) uint64 {
	if n := len(f.free); n > 0 {
		token := f.free[n-1]
		f.free = f.free[:n-1]
		f.slots[token] = e
		return token
	}
	f.slots = append(f.slots, e)
	return uint64(len(f.slots) - 1)
}

// answered takes the entry back from its lane; nil for a token that is not out.
func (f *flow) answered(token uint64) *entry {
	if token >= uint64(len(f.slots)) || f.slots[token] == nil {
		return nil
	}
	e := f.slots[token]
	f.slots[token] = nil
	f.free = append(f.free, token)
	lane, size := &f.lanes[e.lane], e.message.Size()
	lane.messages--
	lane.bytes -= int64(size)
	e.to.answered(int(e.lane), size)
	return e
}

// letGo ends the entry's stay and makes the next of its gate ready. A next one
// that cannot be sent is not made ready but returned: it is refused in its turn.
func (f *flow) letGo(e *entry) (unsendable *entry) {
	f.left(e)
	if e.gate == "" || !e.table.strict() {
		return nil
	}
	next := e.behind
	e.behind = nil
	switch {
	case next == nil:
		delete(f.gates, e.gate)
	case next.fault != nil:
		return next
	default:
		f.makeReady(next)
	}
	return nil
}

// left ends an entry's stay.
func (f *flow) left(e *entry) {
	f.count--
	f.weight -= e.weight
	f.dests.release(e.to)
}

// waits says whether an entry would have to wait behind another of its gate.
func (f *flow) waits(e *entry) bool {
	return e.gate != "" && e.table.strict() && f.gates[e.gate] != nil
}

// letGoLine ends the stay of an entry and of all that wait behind it, and
// returns them in order: what a refusal does in a strict table.
func (f *flow) letGoLine(e *entry) []*entry {
	line := []*entry{e}
	for next := e.behind; next != nil; next = next.behind {
		line = append(line, next)
	}
	for _, e := range line {
		e.behind = nil
		f.left(e)
	}
	delete(f.gates, e.gate)
	return line
}

// fifo is a queue of entries.
type fifo struct {
	items []*entry
	head  int
}

func (q *fifo) empty() bool   { return q.head == len(q.items) }
func (q *fifo) peek() *entry  { return q.items[q.head] }
func (q *fifo) push(e *entry) { q.items = append(q.items, e) }

func (q *fifo) pop() *entry {
	e := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.items) {
		q.items = slices.Delete(q.items, 0, q.head)
		q.head = 0
	}
	return e
}
