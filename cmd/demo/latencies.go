package main

import (
	"math"
	"time"
)

// latencies are times from commit to delivery: of the whole run, and of each of
// the last seconds. Bounded, and exact to 5 %.
type latencies struct {
	all    histogram
	recent [recentSeconds]struct {
		second int64
		histogram
	}
}

// recentSeconds is what the display's figures look back on.
const recentSeconds = 10

func (l *latencies) add(at time.Time, d time.Duration) {
	l.all.add(d)
	s := &l.recent[at.Unix()%recentSeconds]
	if s.second != at.Unix() {
		s.second, s.histogram = at.Unix(), histogram{}
	}
	s.add(d)
}

// last sums up the seconds before now.
func (l *latencies) last(now time.Time) histogram {
	var sum histogram
	for i := range l.recent {
		if s := &l.recent[i]; now.Unix()-s.second < recentSeconds {
			sum.merge(&s.histogram)
		}
	}
	return sum
}

// rate is how many arrived in the whole second before now's.
func (l *latencies) rate(now time.Time) uint64 {
	before := now.Unix() - 1
	if s := &l.recent[before%recentSeconds]; s.second == before {
		return s.count
	}
	return 0
}

// histogram counts durations in buckets that grow by a sixteenth of an octave,
// from a microsecond to more than an hour.
type histogram struct {
	buckets [33 * perOctave]uint32
	count   uint64
	max     time.Duration
}

const perOctave = 16

func (h *histogram) add(d time.Duration) {
	i := 0
	if us := d.Microseconds(); us > 1 {
		i = min(int(math.Log2(float64(us))*perOctave), len(h.buckets)-1)
	}
	h.buckets[i]++
	h.count++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// quantile returns what a part q of the durations does not exceed, 0 of none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.count)))
	seen := uint64(0)
	for i, n := range h.buckets {
		if seen += uint64(n); n > 0 && seen >= rank {
			us := math.Exp2(float64(i+1) / perOctave)
			return min(time.Duration(us*float64(time.Microsecond)), h.max)
		}
	}
	return 0
}
