// Command torture runs relays on real servers of its own, does harm to all of
// them, and accounts exactly for every row: one that was committed and never
// arrived, one that arrived and was never committed, one of a strict key that
// was overtaken, one whose bytes are not those that SELECT shows. The schedule
// of faults comes from a seed, which a run that fails prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/deploy/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := options{}
	c := &cobra.Command{
		Use:   "torture",
		Short: "Do harm to relays on real servers and account for every row",
		Example: "  go run ./cmd/torture --duration 10m --source mariadb1011 --broker rabbit310\n" +
			"  go run ./cmd/torture --seed 42        (the faults of the run that printed this seed)",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	source := c.Flags().String("source", string(lab.MySQL97), "which database")
	broker := c.Flags().String("broker", string(lab.Rabbit43), "which broker")
	c.Flags().Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "of the schedule of faults [by chance]")
	c.Flags().DurationVar(&o.duration, "duration", time.Minute, "of the faults")
	c.Flags().DurationVar(&o.quiet, "quiet", 2*time.Minute, "after which all must have arrived")
	c.Flags().StringVar(&o.only, "only", "", "only faults with one of these in their names, as \"kill,wire\"")
	c.Flags().StringVar(&o.broken, "broken", "", "build a relay that breaks a promise, to see the torture fail: "+strings.Join(promises, ", "))
	keep := c.Flags().Bool("keep", false, "keep logs and configurations also when all is well")
	file := c.Flags().String("json", "", "write the report to this file, too")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.source, err = lab.ParseKind(*source); err != nil || o.source.IsRabbit() {
			return fmt.Errorf("--source %s is no database: it is one of %v", *source, lab.Kinds()[:2])
		}
		if o.broker, err = lab.ParseKind(*broker); err != nil || !o.broker.IsRabbit() {
			return fmt.Errorf("--broker %s is no broker: it is one of %v", *broker, lab.Kinds()[2:])
		}
		if len(chosen(o.only)) == 0 {
			return fmt.Errorf("--only %s names no fault", o.only)
		}
		r, err := run(c.Context(), o, os.Stdout)
		if err != nil {
			return fmt.Errorf("with seed %d: %w", o.seed, err)
		}
		r.print(os.Stdout)
		if *file != "" {
			if err := r.write(*file); err != nil {
				return err
			}
		}
		if len(r.verdict()) > 0 {
			return errors.New("a promise was broken")
		}
		if *keep {
			fmt.Println("logs and configurations:", r.Logs)
			return nil
		}
		return os.RemoveAll(r.Logs)
	}
	return c
}

// promises are what a relay that is built with the tag broken can break.
var promises = []string{"save-before-confirm", "ignore-returns", "publish-at-prepare", "skip-fence", "skip-term"}

// chosen are the faults whose names have one of the parts, which commas separate.
func chosen(parts string) (some []*fault) {
	for _, f := range faults {
		for part := range strings.SplitSeq(parts, ",") {
			if strings.Contains(f.name, strings.TrimSpace(part)) {
				some = append(some, f)
				break
			}
		}
	}
	return some
}
