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
// queues never waits in the lane.
type flow struct {
	gates map[string]*entry // last in line of each gate that has entries
	lanes []room
	any   fifo // ready, bound to no lane
	slots []*entry
	free  []uint64
	ended []*entry // taken from their queues and not to be sent, see recheck.go

	admitted uint64
	count    int   // entries admitted and not yet let go
	weight   int64 // their bytes
	seed     maphash.Seed
}

// room is what one lane may still take, and what waits for it.
type room struct {
	messages, maxMessages int
	bytes, maxBytes       int64
	ready                 fifo // ready, bound to this lane
}

func newFlow(lanes, messages int, bytes int64) *flow {
	f := &flow{gates: map[string]*entry{}, lanes: make([]room, lanes), seed: maphash.MakeSeed()}
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
		f.any.push(e)
	}
}

// fill moves ready entries to lane i while it has room, oldest first, and
// appends their tickets to out.
//
// An entry that has to be looked at first holds its queue back: what stands
// behind it may not overtake it (P6).
func (f *flow) fill(i int, out []rabbit.Ticket) []rabbit.Ticket {
	lane := &f.lanes[i]
	now := time.Now()
	for {
		from := &lane.ready
		if from.empty() || (!f.any.empty() && f.any.peek().order < from.peek().order) {
			from = &f.any
		}
		if from.empty() || !lane.takes(from.peek()) || from.peek().stale(now) {
			return out
		}
		e := from.pop()
		if e.verdict != stillUnsent {
			f.ended = append(f.ended, e)
			continue
		}
		e.lane = int32(i)
		lane.messages++
		lane.bytes += int64(e.message.Size())
		e.token = f.slot(e)
		out = append(out, rabbit.Ticket{Token: e.token, Message: &e.message})
	}
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
	lane := &f.lanes[e.lane]
	lane.messages--
	lane.bytes -= int64(e.message.Size())
	return e
}

// letGo ends the entry's stay and makes the next of its gate ready. A next one
// that cannot be sent is not made ready but returned: it is refused in its turn.
func (f *flow) letGo(e *entry) (unsendable *entry) {
	f.count--
	f.weight -= e.weight
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
		f.count--
		f.weight -= e.weight
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
