package relay

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/towpath/towpath/relay/rabbit"
)

// health is what the program's probes ask. Loops report to it; it decides nothing.
type health struct {
	publishing atomic.Bool  // leading, and allowed to publish
	lastBeat   atomic.Int64 // Unix nanoseconds of a loop's last turn

	mu     sync.Mutex
	lease  LeaseState
	lanes  map[int]rabbit.State
	awayAt time.Time // since when no lane has a broker; zero when one has
	halted *haltError
}

func (h *health) beat() { h.lastBeat.Store(time.Now().UnixNano()) }

func (h *health) observe(s LeaseState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = s
	if s.Leading {
		h.lanes, h.awayAt = map[int]rabbit.State{}, time.Now()
	} else {
		h.lanes, h.awayAt = nil, time.Time{}
	}
}

func (h *health) lane(i int, s rabbit.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lanes == nil {
		return
	}
	h.lanes[i] = s
	connected := false
	for _, s := range h.lanes {
		connected = connected || s.Phase == rabbit.Fenced || s.Phase == rabbit.Up || s.Phase == rabbit.Blocked
	}
	switch {
	case connected:
		h.awayAt = time.Time{}
	case h.awayAt.IsZero():
		h.awayAt = time.Now()
	}
}

// brokerAway says for how long no lane has had a broker.
func (h *health) brokerAway() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awayAt.IsZero() {
		return 0
	}
	return time.Since(h.awayAt)
}

// seen is what the elector and the lanes reported last.
func (h *health) seen() (LeaseState, []LaneStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lanes []LaneStatus
	for i := range len(h.lanes) {
		lanes = append(lanes, LaneStatus{Lane: i, Phase: h.lanes[i].Phase.String()})
	}
	return h.lease, lanes
}

func (h *health) halt(e *haltError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.halted = e
}

// stuckAfter is how long a loop may make no turn before the process is called
// unhealthy. Loops turn during outages, halts and while standing by, too.
const stuckAfter = time.Minute

// Healthy returns an error when a loop hangs, and for nothing else: a restart
// mends no outage.
func (r *Relay) Healthy() error {
	last := r.health.lastBeat.Load()
	if idle := time.Since(time.Unix(0, last)); last != 0 && idle > stuckAfter {
		return fmt.Errorf("the main loop has not turned for %s", idle.Round(time.Second))
	}
	return nil
}

// Ready returns nil when this process leads and streams, or stands by able to
// take over, and else why not.
func (r *Relay) Ready() error {
	h := &r.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.halted != nil:
		return h.halted
	case h.lease.Err != nil:
		return fmt.Errorf("the lease cannot be reached: %w", h.lease.Err)
	case !h.lease.Leading && h.lease.Leader != "":
		return nil
	case !h.lease.Leading:
		return errors.New("starting")
	case !h.publishing.Load():
		return errors.New("leading, and waiting for the broker")
	}
	return nil
}
