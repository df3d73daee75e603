package relay

import (
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// berth is one parked row.
type berth struct {
	table    *table
	ref      string
	mapping  *mapping // nil in a keep table
	sequence uint64
	size     int64

	line       *line // of its key in a strict table, nil without
	next, prev *berth

	to       *destination // as far as known; released when the row ends
	taken    uint64       // what it had taken at the last refusal
	state    checkpoint.ParkedState
	class    class
	refusals int
	attempts int
	due      time.Time // not before; zero: as soon as it is the first in line

	stage   stage
	alarm   *alarm
	number  uint64 // in the window, while it is in ahead
	probe   bool   // on its way to a closed destination, alone
	inFlow  bool   // on its way, and read
	discard bool   // to be given up when it comes back
	version int    // of its row state: an older write is not done late
	wrote   int    // the version that is written

	past      bool // the stream will not read it again
	inherited bool // an earlier term parked it, and the saved position had not passed it
	reread    bool // the stream has read it again in this term
	stored    bool // its end is durable
}

// stage is what is being done with a berth.
type stage uint8

const (
	stageUnsaved stage = iota // not durable yet
	stageIdle                 // waits for its time, its turn in line, or a person
	stageWaiting              // due, and waits for its destination
	stageOut                  // being read, or in the flow
	stageEnding               // its end is being made durable; until then it keeps its place in line
)

// line is the parked rows of one key, in order.
type line struct {
	gate        string
	first, last *berth
	here        int // berths that are not in the flow
}

// alarm is a time at which a parked row or the probe of a closed destination is due.
type alarm struct {
	at          time.Time
	order       uint64 // among those of one time
	berth       *berth
	destination *destination // when there is no berth
	index       int
}

// alarms is a heap.
type alarms []*alarm

func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].order < a[j].order
}
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}
func (a *alarms) Push(x any) {
	added := x.(*alarm)
	added.index = len(*a)
	*a = append(*a, added)
}
func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	(*a)[len(*a)-1] = nil
	*a = (*a)[:len(*a)-1]
	return last
}
