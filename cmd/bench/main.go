// Command bench measures Towpath on the lab's real servers. Every figure is
// one of a pair: what is measured and what it is held against take turns in one
// run, on the same servers, with the same bodies, and what counts is the ratio.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := &cobra.Command{Use: "bench", Short: "Measure Towpath on the lab's servers", SilenceUsage: true}
	out := root.PersistentFlags().String("json", "", "also write the figures to this file")
	root.AddCommand(newDrain(func(t table) error { return t.print(*out) }), newConsume(func(t table) error { return t.print(*out) }))
	if err := root.ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

// table is what a benchmark found: one line for each thing measured.
type table struct {
	Title string `json:"title"`
	Note  string `json:"note"`
	Rows  []line `json:"rows"`
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

func (t table) print(path string) error {
	fmt.Printf("\n%s\n", t.Title)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\ttowpath\tother\tratio\tgoal")
	for _, l := range t.Rows {
		fmt.Fprintf(w, "%s\t%.4g %s\t%.4g %s\t%.2f\t%s\n", l.What, l.Ours, l.Unit, l.Other, l.Unit, l.Ratio, l.Goal)
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
