package main

import (
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// The figures of such short runs say nothing; what is checked is that every
// message was accounted for, which a benchmark does itself.
func TestADrainMeasuresEachModeAgainstEachOther(t *testing.T) {
	for _, d := range []drain{
		{after: "keep", against: "plain", tables: 3},
		{after: "mark", against: "keep", tables: 1},
		{after: "mark", against: "polling", tables: 1},
		{after: "delete", against: "plain", tables: 1},
	} {
		t.Run(d.after+" against "+d.against, func(t *testing.T) {
			t.Parallel()
			d.rows, d.rounds, d.size, d.ordering, d.queue, d.keys = 600, 2, 300, "strict", "classic", 50
			found, err := d.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range found.Rows {
				if l.Ours <= 0 || l.Other <= 0 || l.Ratio <= 0 {
					t.Errorf("%s: %v against %v", l.What, l.Ours, l.Other)
				}
			}
		})
	}
}

func TestLatencyIsMeasuredOfEveryRow(t *testing.T) {
	for against := range latencyOthers {
		t.Run(against, func(t *testing.T) {
			t.Parallel()
			l := latency{rates: []int{200}, rounds: 1, window: 300 * time.Millisecond, after: "mark", against: against}
			found, err := l.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p50 := found.Rows[0]; p50.Ours <= 0 || against == "polling5s" && p50.Ratio >= 1 {
				t.Errorf("%s: %v ms against %v ms", p50.What, p50.Ours, p50.Other)
			}
		})
	}
}

func TestATakeoverAndAStartAreTimed(t *testing.T) {
	t.Parallel()
	found, err := (&takeover{rounds: 1, rate: 200}).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found.Spreads {
		if s.Rounds != 1 || s.Max <= 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestAnUnknownOtherIsRefusedBeforeAnythingStarts(t *testing.T) {
	for _, b := range []benchmark{&drain{against: "nothing"}, &latency{against: "nothing"}} {
		if _, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "it is") {
			t.Errorf("%v", err)
		}
	}
}

func TestQuantilesOfFewTimesAreOfTheTimesThatThereAre(t *testing.T) {
	times := []time.Duration{4 * time.Millisecond, time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond}
	if s := newSpread("", "", times); s.P50 != 3 || s.P99 != 4 || s.Max != 4 {
		t.Errorf("%+v", s)
	}
}
