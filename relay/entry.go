package relay

import (
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/relay/rabbit"
)

// origin says what brought an entry, and so what its end is told to.
type origin uint8

const (
	fromStream origin = iota // a row of the binlog: it holds a place in the window
	fromSweep                // an unsent row that a sweep or the fallback found
	fromParked               // a parked row whose next attempt is due
	fromReplay               // a row that an operator sends again
)

// entry is one outbox row on its way from the source to its end. The preparer
// makes it, the loop owns it from then on.
type entry struct {
	table   *table
	origin  origin
	message rabbit.Message
	gate    string    // table and ordering key, what the key gate tells rows apart by; "" is unordered
	mapping *mapping  // what mapped it: reads its ref
	ref     string    // table and row key: finds the row again by SQL, and among entries
	seen    string    // the status that the relay saw, what a row-state write is conditional on
	row     canal.Row // the image, kept for rows that may have to be parked with it
	commit  time.Time // when its transaction committed; zero when unknown
	fresh   time.Time // as of when its row is known to be unsent
	again   bool      // it may have been sent before: its row is looked at first
	verdict verdict   // of the last look at its row
	page    *page     // the look that found it (fromSweep)
	fault   *fault    // why it cannot be sent at all; nil for a message that maps

	due   time.Time // not to be sent before; zero: at once
	berth *berth    // its place among the parked (fromParked)

	number uint64       // its place in the window (fromStream)
	order  uint64       // order of admission, over all origins
	to     *destination // while it is in the flow
	lane   int32        // the lane that it is bound to, -1 for any
	token  uint64       // its slot while it is with a lane
	weight int64        // bytes that it counts for
	behind *entry       // next row of the same gate, waiting for this one
}

// closed says whether the entry's destination takes nothing but a probe, and this is not it.
func (e *entry) closed() bool { return e.to.closed && (e.berth == nil || !e.berth.probe) }

// fault is why a row was refused.
type fault struct {
	class  class
	code   int    // AMQP reply code, 0 without one
	reason string // for people: no payload, no secret
}

// class is the failure table's class of a refusal: it decides whether attempts
// are burnt and who has to act.
type class string

const (
	classDestination class = "destination" // nack, unroutable, exchange missing, no permission
	classUnknown     class = "unknown"     // no answer within the confirm timeout
	classPoison      class = "poison"      // can never be sent as it is
	classBehind      class = "behind"      // waits, in order, for an earlier row of its key
	classClosed      class = "closed"      // was not sent: its destination is closed
	classScheduled   class = "scheduled"   // due later, by the application's own column
)
