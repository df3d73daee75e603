// Command bench measures Towpath on the lab's real servers. Every figure is
// one of a pair: what is measured and what it is held against take turns in one
// run, on the same servers, with the same bodies, and what counts is the ratio.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/deploy/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

// measure is one benchmark, with its options set.
type measure interface {
	run(context.Context, *bed) (table, error)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "bench", Short: "Measure Towpath on the lab's servers", SilenceUsage: true}
	path := root.PersistentFlags().String("json", "", "also write the figures to this file")
	database := root.PersistentFlags().String("database", string(lab.MySQL97), "mysql97 or mariadb1011")
	add := func(c *cobra.Command, all ...measure) {
		c.Args = cobra.NoArgs
		c.RunE = func(c *cobra.Command, _ []string) error {
			b, err := makeBed(c.Context(), lab.Kind(*database), os.Stderr)
			defer b.close()
			if err != nil {
				return err
			}
			var tables []table
			for _, m := range all {
				t, err := m.run(c.Context(), b)
				if err != nil {
					return err
				}
				if err := t.print(os.Stdout); err != nil {
					return err
				}
				tables = append(tables, t)
			}
			return save(*path, tables)
		}
		root.AddCommand(c)
	}
	add(newDrain())
	add(newLatency())
	add(newPolling())
	add(newTakeover())
	add(newMatrix())
	add(newGrowth())
	add(newForeign())
	add(newConsume())
	add(&cobra.Command{Use: "all", Short: "A short version of every benchmark"}, short()...)
	return root
}

// short is every benchmark, with so little to do that all end in a few minutes.
func short() []measure {
	return []measure{
		&drain{shape: usual, rows: 50_000, rounds: 3, against: "plain"},
		&latency{shape: usual, rates: []int{100, 1000, 5000}, seconds: 2, rounds: 2},
		&polling{rows: 5000, rounds: 1, seconds: 5, every: 5 * time.Second},
		&takeover{rounds: 5},
		&matrix{after: []string{"keep", "mark", "delete"}, ordering: []string{"strict"}, queues: []string{"quorum"}, sizes: []int{200, 2048}, keys: []int{16, 10_000}, rows: 5000, rounds: 1},
		&growth{shape: usual, base: 10_000, backlogs: []int{100_000}, tables: 20, rounds: 1},
		&foreign{megabytes: 100, rounds: 2},
		&consume{messages: 2000, rounds: 1},
	}
}

func progress(b *bed, format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }
