package relay

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/towpath/towpath/configs"
)

// destination is an exchange and routing key, with what the relay has seen of
// it. It is passive: the loop owns it, through flow and lot.
//
// One that refuses messages and takes none in between closes: nothing is sent
// to it but one probe per backoff, and no attempt counts, however long its
// outage lasts (P8). Whatever it takes opens it again, from one message in
// flight upwards: each one that it takes lets one more follow, so a queue that
// has just room again is not flooded.
type destination struct {
	destinationName
	users int // entries in the flow and parked rows that may still go there

	taken    uint64 // messages that it took since it is known
	streak   int    // refusals since it last took one
	limit    int    // bound of inFlight while it recovers, 0 for none
	inFlight int
	load     []load // by lane

	held []fifo // entries that it has no room for, by the lane that they are bound to; the last for any; nil before the first

	closed   bool
	failures int      // refusals while it is closed
	alarm    *alarm   // next probe while it is closed
	waiting  []*berth // parked rows that are due and wait for it, in the order of their turns
	out      int      // parked rows on their way to it
}

// destinationName tells destinations apart.
type destinationName struct{ exchange, routingKey string }

// load is what one lane has in flight for a destination.
type load struct{ messages, bytes int }

// maxIdle is how many destinations without users are remembered: that one took
// messages lately tells a bad row from a bad destination.
const maxIdle = 4096

// destinations finds a destination by its name.
type destinations struct {
	lanes  int
	byName map[destinationName]*destination
	used   int // with users
	closed int
}

func newDestinations(lanes int) *destinations {
	return &destinations{lanes: lanes, byName: map[destinationName]*destination{}}
}

// acquire returns the destination with one user more.
func (ds *destinations) acquire(exchange, routingKey string) *destination {
	name := destinationName{exchange, routingKey}
	d := ds.byName[name]
	if d == nil {
		if len(ds.byName) >= ds.used+maxIdle {
			ds.forgetIdle()
		}
		d = &destination{destinationName: name, load: make([]load, ds.lanes)}
		ds.byName[name] = d
	}
	if d.users++; d.users == 1 {
		ds.used++
	}
	return d
}

func (ds *destinations) release(d *destination) {
	if d.users--; d.users == 0 {
		ds.used--
	}
}

// forgetIdle keeps the memory bounded by what is in use (P7).
func (ds *destinations) forgetIdle() {
	for name, d := range ds.byName {
		if d.users == 0 && !d.closed {
			delete(ds.byName, name)
		}
	}
}

// mayTake says whether lane i may send it a message of a size. It holds at most
// half a lane's window: a destination that stops answering leaves the other half
// to the rest (P9).
func (d *destination) mayTake(i, size int, r *room) bool {
	if d.limit > 0 && d.inFlight >= d.limit {
		return false
	}
	l := &d.load[i]
	return l.messages == 0 || l.messages < max(1, r.maxMessages/2) && int64(l.bytes+size) <= r.maxBytes/2
}

func (d *destination) sent(i, size int) {
	d.inFlight++
	d.load[i].messages++
	d.load[i].bytes += size
}

func (d *destination) answered(i, size int) {
	d.inFlight--
	d.load[i].messages--
	d.load[i].bytes -= size
}

// took records that it took a message. full is the bound at which it counts as recovered.
func (d *destination) took(full int) {
	d.taken++
	d.streak = 0
	if d.limit > 0 {
		if d.limit++; d.limit >= full {
			d.limit = 0
		}
	}
}

// refused records that it refused a message, and says whether that is a reason to
// close it: it took nothing between two refusals, or nothing ever. A single
// refusal among messages that are taken is the row's own fault, and stops no
// other (P9).
func (d *destination) refused() (closes bool) {
	d.streak++
	d.limit = 1
	return d.streak > 1 || d.taken == 0
}

// delay is the pause before the next attempt after n that counted, spread by
// jitter, so that rows that were refused together do not come back together.
func delay(r configs.Retry, n int) time.Duration {
	d := math.Min(float64(r.Base)*math.Pow(r.Factor, float64(n)), float64(r.Max))
	return time.Duration(d * (1 + r.Jitter*(2*rand.Float64()-1)))
}
