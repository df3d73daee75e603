// Command towpath relays outbox tables of MySQL or MariaDB to RabbitMQ. See
// the README; `towpath help` lists the commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/configs"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:])) }

// run carries out one command line and returns its exit code.
func run(args []string) int {
	ctx, stop := signals()
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitFailed
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "towpath: %v\nRun 'towpath --help' for usage.\n", err)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "towpath: %v\n", err)
	return exitFailed
}

// signals ends the context at the first SIGTERM or SIGINT; the second one ends
// the process at once. Both are counted by one goroutine, so that the second is
// not lost however soon it comes.
func signals() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	came := make(chan os.Signal, 2)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-came:
			case <-done:
				return
			}
			if ctx.Err() != nil {
				fmt.Fprintln(os.Stderr, "towpath: ended at once by a second signal; what was not settled is sent again")
				os.Exit(exitFailed)
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(came)
		close(done)
		cancel()
	}
}

// errReported ends a command that has printed what is wrong itself.
var errReported = errors.New("reported")

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "towpath",
		Short:         "Relay outbox tables of MySQL or MariaDB to RabbitMQ, from the binlog, with publisher confirms",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newRun(), newCheck(), newSuggest(), newInit(), newGrants(), newStatus(), newTail(), newParked(), newReplay(), newResume(), newReconcile(),
		newPosition(), newAudit(), newVersion())
	return root
}

func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("%q is not a command or argument of %s", args[0], c.CommandPath())}
	}
	return nil
}

// configFlag adds -c, and returns how the file is loaded.
func configFlag(c *cobra.Command) func() (*configs.Config, error) {
	path := c.Flags().StringP("config", "c", "", "configuration file (required)")
	_ = c.MarkFlagFilename("config", "yaml", "yml") // for the shell's completion; the flag is there
	return func() (*configs.Config, error) {
		if *path == "" {
			return nil, &usageError{errors.New("-c FILE is missing")}
		}
		return configs.Load(*path)
	}
}
