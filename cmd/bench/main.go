// Command bench measures Towpath on the lab's real servers. Every figure is
// one of a pair: what is measured and what it is held against take turns in one
// run, on the same servers, with the same bodies, and what counts is the ratio.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "bench", Short: "Measure Towpath on the lab's servers", SilenceUsage: true}
	out := root.PersistentFlags().String("json", "", "also write the figures to this file")
	show := func(t table) error { return t.print(*out) }
	root.AddCommand(newDrain(show), newMatrix(show), newLatency(show), newTakeover(show), newConsume(show))
	return root
}

// benchmark is one that a command runs.
type benchmark interface {
	run(ctx context.Context) (table, error)
}

// measure makes a command's body.
func measure(b benchmark, show func(table) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		t, err := b.run(c.Context())
		if err != nil {
			return err
		}
		return show(t)
	}
}

// progress tells how far it is.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// command runs a program to its end.
func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out)
	}
	return nil
}
