package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// table is what a benchmark found: one line for each thing measured.
type table struct {
	Title string `json:"title"`
	Note  string `json:"note"` // what "other" is
	Rows  []line `json:"rows"`
}

// line is one figure with the figure that it is held against. Both are medians
// of the rounds, and the ratio is the median of the ratios of each round's pair.
type line struct {
	What  string  `json:"what"`
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Other float64 `json:"other"`
	Ratio float64 `json:"ratio"`
	Goal  string  `json:"goal,omitempty"`
}

func (t table) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n", t.Title)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\ttowpath\tother\tratio\tgoal")
	for _, l := range t.Rows {
		fmt.Fprintf(w, "%s\t%.4g %s\t%.4g %s\t%.2f\t%s\n", l.What, l.Ours, l.Unit, l.Other, l.Unit, l.Ratio, l.Goal)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, t.Note)
	return err
}

// save puts the tables into a file, as one JSON array; path "" is none.
func save(path string, tables []table) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(tables, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// pair is a line of samples that belong together two by two.
func pair[S any](what, unit string, ours, other []S, of func(S) float64, goal string) line {
	var a, b, ratios []float64
	for i := range ours {
		a, b = append(a, of(ours[i])), append(b, of(other[i]))
		ratios = append(ratios, a[i]/b[i])
	}
	return line{What: what, Unit: unit, Ours: median(a), Other: median(b), Ratio: finite(median(ratios)), Goal: goal}
}

// finite keeps a ratio to nothing out of the JSON, which has no word for it.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// inTurns measures ours and other, and changes who goes first with each round.
func inTurns(round int, ours, other func() error) error {
	if round%2 == 1 {
		ours, other = other, ours
	}
	if err := ours(); err != nil {
		return err
	}
	return other()
}

// spread is a distribution of times.
type spread []time.Duration

// at is the smallest time that a share of all do not exceed, in milliseconds.
func (s spread) at(share float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := int(math.Ceil(share*float64(len(sorted)))) - 1
	return float64(sorted[min(max(n, 0), len(sorted)-1)]) / float64(time.Millisecond)
}
