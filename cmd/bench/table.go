package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// table is what a benchmark found.
type table struct {
	Title   string   `json:"title"`
	Note    string   `json:"note"`
	Rows    []line   `json:"rows,omitempty"`
	Spreads []spread `json:"spreads,omitempty"`
}

// line is one figure with the figure that it is held against. The ratio is the
// median of the ratios of each round's pair.
type line struct {
	What  string  `json:"what"`
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Other float64 `json:"other"`
	Ratio float64 `json:"ratio"`
	Goal  string  `json:"goal,omitempty"`
}

// spread is how a time that was taken in each round is distributed, in ms.
type spread struct {
	What   string  `json:"what"`
	Rounds int     `json:"rounds"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
	Goal   string  `json:"goal,omitempty"`
}

func newSpread(what, goal string, times []time.Duration) spread {
	slices.Sort(times)
	return spread{What: what, Goal: goal, Rounds: len(times), P50: millis(quantile(times, 0.5)), P90: millis(quantile(times, 0.9)),
		P99: millis(quantile(times, 0.99)), Max: millis(times[len(times)-1])}
}

// quantile of sorted times: the smallest that q of them do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sample is one measurement.
type sample struct {
	rate   float64 // messages a second
	cpu    float64 // microseconds a message
	memory float64 // MiB
}

func pair[S any](what, unit string, ours, other []S, of func(S) float64, goal string) line {
	var a, b, ratios []float64
	for i := range ours {
		a, b = append(a, of(ours[i])), append(b, of(other[i]))
		ratios = append(ratios, of(ours[i])/of(other[i]))
	}
	return line{What: what, Unit: unit, Ours: median(a), Other: median(b), Ratio: median(ratios), Goal: goal}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func (t table) print(path string) error {
	fmt.Printf("\n%s\n", t.Title)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	if len(t.Rows) > 0 {
		fmt.Fprintln(w, "\ttowpath\tother\tratio\tgoal")
	}
	for _, l := range t.Rows {
		fmt.Fprintf(w, "%s\t%.4g %s\t%.4g %s\t%.2f\t%s\n", l.What, l.Ours, l.Unit, l.Other, l.Unit, l.Ratio, l.Goal)
	}
	if len(t.Spreads) > 0 {
		fmt.Fprintln(w, "\trounds\tp50\tp90\tp99\tmax\tgoal")
	}
	for _, s := range t.Spreads {
		fmt.Fprintf(w, "%s\t%d\t%.0f ms\t%.0f ms\t%.0f ms\t%.0f ms\t%s\n", s.What, s.Rounds, s.P50, s.P90, s.P99, s.Max, s.Goal)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println(t.Note)
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
