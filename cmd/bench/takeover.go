package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
)

// takeover measures how long rows wait when the leader ends, and how long a
// relay takes to start.
type takeover struct {
	stage
	rounds int
	rate   int

	next int
}

func newTakeover(show func(table) error) *cobra.Command {
	b := &takeover{}
	c := &cobra.Command{
		Use:   "takeover",
		Short: "How long a row waits when the leader is killed or stopped, and for a relay that starts",
		Args:  cobra.NoArgs,
		RunE:  measure(b, show),
	}
	f := c.Flags()
	f.IntVar(&b.rounds, "rounds", 50, "rounds of each kind")
	f.IntVar(&b.rate, "rate", 200, "rows a second meanwhile")
	return c
}

func (b *takeover) run(ctx context.Context) (table, error) {
	defer b.tearDown()
	if err := b.setUp(ctx); err != nil {
		return table{}, err
	}
	t := table{
		Title: fmt.Sprintf("the longest that a row waits from commit to delivery, %d rows a second, one standby, default lease", b.rate),
		Note:  "Each round ends the leader at a random moment. A start is timed from the start of the process; the row was there before.",
	}
	for _, kind := range []struct {
		what   string
		signal syscall.Signal
		goal   string
	}{
		{"the leader is killed (SIGKILL)", syscall.SIGKILL, "p99 < 1 s"},
		{"the leader is stopped (SIGTERM)", syscall.SIGTERM, "p99 < 1 s"},
	} {
		var times []time.Duration
		for round := range b.rounds {
			took, err := b.end(ctx, kind.signal)
			if err != nil {
				return table{}, err
			}
			times = append(times, took)
			progress("%s, round %d of %d: %s", kind.what, round+1, b.rounds, took.Round(time.Millisecond))
		}
		t.Spreads = append(t.Spreads, newSpread(kind.what, kind.goal, times))
	}
	var times []time.Duration
	b.killAll()
	for range b.rounds {
		took, err := b.startAlone(ctx)
		if err != nil {
			return table{}, err
		}
		times = append(times, took)
	}
	t.Spreads = append(t.Spreads, newSpread("a relay starts alone", "p99 < 1 s", times))
	return t, nil
}

func (b *takeover) setUp(ctx context.Context) error {
	b.next = 1
	if err := b.stage.setUp(ctx, "quorum"); err != nil {
		return err
	}
	if err := b.exec(ctx, createOutbox("outbox")); err != nil {
		return err
	}
	for range 2 {
		if _, err := b.configure(setting{stream: "bench", tables: "outbox", ordering: "strict", after: "keep"}); err != nil {
			return err
		}
	}
	if err := b.initialize(ctx, b.members[0]); err != nil {
		return err
	}
	for _, m := range b.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until one relay streams and the other stands by, and returns the
// first.
func (b *takeover) ready(ctx context.Context) (*member, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		standing := 0
		var leader *member
		for _, m := range b.members {
			metrics, err := program.ReadMetrics(ctx, m.http)
			switch {
			case err != nil:
			case metrics.Sum("towpath_streaming") == 1:
				leader = m
			case strings.HasPrefix(program.Ready(ctx, m.http), "ok"):
				standing++
			}
		}
		if leader != nil && standing == len(b.members)-1 {
			return leader, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("there was no leader with a standby within 30 s, see %s", b.dir)
}

// end ends the leader amid traffic, and returns the longest wait of a row.
func (b *takeover) end(ctx context.Context, signal syscall.Signal) (time.Duration, error) {
	leader, err := b.ready(ctx)
	if err != nil {
		return 0, err
	}
	t := &traffic{stage: &b.stage, table: "outbox", rate: b.rate, first: b.next, size: 300}
	waits, err := t.play(ctx, func(ctx context.Context) error {
		pause := func(d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}
		pause(300*time.Millisecond + rand.N(700*time.Millisecond))
		leader.process.Signal(signal)
		<-leader.process.Ended()
		pause(500 * time.Millisecond)
		return ctx.Err()
	})
	if err != nil {
		return 0, err
	}
	b.next += len(waits)
	return slices.Max(waits), leader.start()
}

// startAlone commits a row while no relay runs, starts one, and returns when
// the row has arrived.
func (b *takeover) startAlone(ctx context.Context) (time.Duration, error) {
	m := b.members[0]
	publish := time.Time{}
	t := &traffic{stage: &b.stage, table: "outbox", rate: 1000, first: b.next, size: 300}
	waits, err := t.play(ctx, func(ctx context.Context) error {
		for { // until rows are committed
			t.mu.Lock()
			n := len(t.committed)
			t.mu.Unlock()
			if n > 0 || ctx.Err() != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		publish = time.Now()
		return m.start()
	})
	if err != nil {
		return 0, err
	}
	b.next += len(waits)
	took := t.arrived[0].Sub(publish)
	m.process.Kill()
	return took, b.expire(ctx)
}

// expire forgets the lease of a relay that was killed: a start is not to wait
// for it.
func (b *takeover) expire(ctx context.Context) error {
	return b.exec(ctx, "UPDATE towpath.lease SET holder = '', expires_at = NOW(6)")
}
