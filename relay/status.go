package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
)

// Status is what one process knows of its stream now.
type Status struct {
	Stream  string `json:"stream"`
	Holder  string `json:"holder"`
	Version string `json:"version"`
	Config  string `json:"config_hash"`
	Role    string `json:"role"`              // starting, standby, leader
	Leader  string `json:"leader,omitempty"`  // holder of the lease, as far as this process knows
	Term    uint64 `json:"term"`              // of the leader
	Problem string `json:"problem,omitempty"` // why it is not ready; empty when it is

	Leading *Leading `json:"leading,omitempty"` // of a leader that is at work
}

// Leading is what a leader knows.
type Leading struct {
	Position checkpoint.Position `json:"position"` // up to here everything is settled
	// Behind is how far that is behind the binlog's end; nil when the server cannot be asked.
	Behind             *Behind             `json:"behind,omitempty"`
	Window             int                 `json:"window_rows"`  // read and not settled
	Writes             int                 `json:"write_backs"`  // confirmed, and row state not written yet
	Locked             int                 `json:"locked_rows"`  // of these: rows that the application holds locked
	Polling            bool                `json:"polling"`      // the binlog cannot be read
	Lanes              []LaneStatus        `json:"lanes"`        //
	Closed             int                 `json:"closed_count"` // of destinations
	ClosedDestinations []ClosedDestination `json:"closed_destinations,omitempty"`
}

// Behind is a distance to the binlog's end.
type Behind struct {
	Seconds float64 `json:"seconds"` // since the commit of the first group that is not settled; 0 at the end
	Bytes   uint64  `json:"bytes"`
}

// LaneStatus is one lane's.
type LaneStatus struct {
	Lane  int    `json:"lane"`
	Phase string `json:"phase"` // up, blocked, down, ...
}

// ClosedDestination is a destination that gets nothing but probes.
type ClosedDestination struct {
	Exchange   string  `json:"exchange"`
	RoutingKey string  `json:"routing_key"`
	Failures   int     `json:"failures"`   // probes that were refused
	NextProbe  float64 `json:"next_probe"` // seconds from now; 0 while one is on its way
	Waiting    int     `json:"waiting"`    // parked rows that are due and wait for it
}

// maxClosedListed bounds the list of closed destinations in a status (P7).
const maxClosedListed = 100

// loopReport is what the loop says of itself.
type loopReport struct {
	low            checkpoint.Position
	unsettled      time.Time // commit of the first group that is not settled; zero when all that was read is
	read           time.Time // commit of the last group that was read
	window, writes int
	locked         int
	closed         int
	closedList     []ClosedDestination
}

// report is asked for over inquiries.
func (l *loop) report() loopReport {
	r := loopReport{low: l.low.Clone(), unsettled: l.window.unsettledSince(), read: l.read, window: l.window.len(),
		writes: len(l.writes) + len(l.writing) + len(l.locked), locked: len(l.locked),
		closed: l.lot.dests.closed}
	if r.closed > 0 {
		r.closedList = l.lot.dests.listClosed(time.Now())
	}
	return r
}

// listClosed lists closed destinations, those that have failed most first.
func (ds *destinations) listClosed(now time.Time) []ClosedDestination {
	var all []ClosedDestination
	for name, d := range ds.byName {
		if !d.closed {
			continue
		}
		c := ClosedDestination{Exchange: name.exchange, RoutingKey: name.routingKey, Failures: d.failures, Waiting: len(d.waiting)}
		if d.alarm != nil {
			c.NextProbe = max(0, d.alarm.at.Sub(now).Seconds())
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b ClosedDestination) int {
		return cmp.Or(cmp.Compare(b.Failures, a.Failures), cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.RoutingKey, b.RoutingKey))
	})
	return all[:min(len(all), maxClosedListed)]
}

// Status may be called at any time, from any goroutine. It is bounded in time,
// also while database and broker are away.
func (r *Relay) Status(ctx context.Context) Status {
	s := Status{Stream: r.config.Name, Holder: r.holder, Version: r.about.Version, Config: r.config.Hash(), Role: "starting"}
	if err := r.Ready(); err != nil {
		s.Problem = err.Error()
	}
	lease, lanes := r.health.seen()
	s.Term, s.Leader = lease.Term, lease.Leader
	switch {
	case lease.Leading:
		s.Role = "leader"
	case lease.Leader != "":
		s.Role = "standby"
	}
	if l := r.leading.Load(); l != nil {
		s.Leading = l.status(ctx)
		if s.Leading != nil {
			s.Leading.Lanes = lanes
		}
	}
	return s
}

// statusPatience bounds the questions that one status asks.
const statusPatience = 2 * time.Second

func (l *leader) status(ctx context.Context) *Leading {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	end, endErr := canal.CurrentPosition(ctx, l.db)
	report, err := l.loop.ask(ctx)
	if err != nil {
		return nil
	}
	s := &Leading{}
	if endErr == nil {
		// What was committed just now is on its way: it gets the time to arrive.
		for began := time.Now(); report.low.Compare(end) < 0 && time.Since(began) < 300*time.Millisecond; {
			sleep(ctx, 20*time.Millisecond)
			if report, err = l.loop.ask(ctx); err != nil {
				return nil
			}
		}
		s.Behind = l.behind(ctx, report, end)
	}
	s.Position, s.Window, s.Writes, s.Locked = report.low, report.window, report.writes, report.locked
	s.Closed, s.ClosedDestinations = report.closed, report.closedList
	s.Polling = l.fallback.alone.Load()
	return s
}

func (l *leader) behind(ctx context.Context, report loopReport, end checkpoint.Position) *Behind {
	if report.low.Compare(end) >= 0 {
		return &Behind{}
	}
	logs, err := canal.BinaryLogs(ctx, l.db)
	if err != nil {
		return nil
	}
	b := &Behind{Bytes: distance(logs, report.low, end)}
	since := report.unsettled
	if since.IsZero() {
		since = report.read // nothing is in hand: the reader is behind
	}
	if !since.IsZero() {
		b.Seconds = max(0, time.Since(since).Seconds())
	}
	return b
}

// ask asks the loop for its report.
func (l *loop) ask(ctx context.Context) (loopReport, error) {
	answer := make(chan loopReport, 1)
	select {
	case l.inquiries <- answer:
		return <-answer, nil
	case <-ctx.Done():
		return loopReport{}, context.Cause(ctx)
	}
}

// distance is the bytes of binlog between two places; a file that is gone counts as none.
func distance(logs []canal.BinaryLog, from, to checkpoint.Position) uint64 {
	var bytes uint64
	for _, f := range logs {
		if checkpoint.CompareFiles(f.Name, from.File) < 0 || checkpoint.CompareFiles(f.Name, to.File) > 0 {
			continue
		}
		size := f.Size
		if f.Name == to.File {
			size = to.Offset
		}
		if f.Name == from.File {
			size -= min(size, from.Offset)
		}
		bytes += size
	}
	return bytes
}
