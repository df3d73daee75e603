package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/towpath/towpath/deploy/lab"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := options{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show Towpath at work on real servers of its own",
		Long: fmt.Sprintf(`Sets up what it needs, then runs a shop, two relays, a broker and a consumer, and keeps an exact account.

On a terminal it runs until q or Ctrl-C: k kills the leading relay with -9, b stops and restarts the broker, p purges
the binlog while both relays are down. Without a terminal, or with --duration, it does each of these once by itself,
and ends. It exits with 1 when a row was lost, invented, applied twice or out of order.

Servers: %v.`, lab.Kinds()),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	database := c.Flags().String("database", string(lab.MySQL97), "which database")
	broker := c.Flags().String("broker", string(lab.Rabbit43), "which broker")
	c.Flags().DurationVar(&o.duration, "duration", 0, "end after this time, when each was done [20s without a terminal, else never]")
	c.Flags().Float64Var(&o.rate, "rate", 150, "orders a second, each with one to three outbox rows")
	c.RunE = func(*cobra.Command, []string) (err error) {
		if o.database, err = lab.ParseKind(*database); err != nil || o.database.IsRabbit() {
			return fmt.Errorf("--database %s is no database: it is one of %v", *database, lab.Kinds()[:2])
		}
		if o.broker, err = lab.ParseKind(*broker); err != nil || !o.broker.IsRabbit() {
			return fmt.Errorf("--broker %s is no broker: it is one of %v", *broker, lab.Kinds()[2:])
		}
		if o.rate < 1 || o.rate > 10_000 {
			return fmt.Errorf("--rate %v is not between 1 and 10000", o.rate)
		}
		if o.duration < 0 {
			return fmt.Errorf("--duration %v is negative", o.duration)
		}
		return play(o)
	}
	return c
}

// play runs the demo on this process's terminal, or without one.
func play(o options) error {
	keys := make(chan byte, 8)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer onSignal(func() {
		cancel() // ends the set-up
		press(keys, ctrlC)
	})()
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		if o.duration == 0 {
			o.duration = 20 * time.Second
		}
		return perform(ctx, o, &lines{out: os.Stdout}, os.Stdout, keys, func() func() { return func() {} })
	}
	s := &screen{out: os.Stdout, color: os.Getenv("NO_COLOR") == "", size: func() (int, int) {
		width, height, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24
		}
		return width, height
	}}
	return perform(ctx, o, s, os.Stdout, keys, func() func() {
		before, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return func() {}
		}
		go readKeys(os.Stdin, keys) // ends with the process: nothing else wakes a reader of a terminal
		s.enter()
		return func() {
			s.leave()
			_ = term.Restore(int(os.Stdin.Fd()), before)
		}
	})
}

// onSignal calls f for each signal that asks to end, until it is told to stop.
func onSignal(f func()) (stop func()) {
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-signals:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// press passes a key on, or forgets it when too many wait.
func press(keys chan<- byte, key byte) {
	select {
	case keys <- key:
	default:
	}
}

func readKeys(in io.Reader, keys chan<- byte) {
	var b [1]byte
	for {
		if n, err := in.Read(b[:]); err != nil {
			press(keys, 'q')
			return
		} else if n > 0 {
			press(keys, b[0])
		}
	}
}

// perform sets up, plays, and prints the account. begin takes the display's
// terminal and returns how to give it back.
func perform(ctx context.Context, o options, show display, out io.Writer, keys <-chan byte, begin func() (end func())) (err error) {
	s := &stage{options: o, out: out}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	end := begin()
	d := newDemo(s, show, keys)
	err = d.run()
	end()
	if err != nil {
		return err
	}
	r, err := d.settle(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	fmt.Fprint(out, d.account(r))
	return d.verdict(r)
}
