package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
)

// latency measures the time from a commit to the delivery.
type latency struct {
	stage
	rates   []int
	rounds  int
	window  time.Duration
	against string
	after   string

	relay *member
	next  int // id
}

func newLatency(show func(table) error) *cobra.Command {
	l := &latency{}
	c := &cobra.Command{
		Use:   "latency",
		Short: "From commit to delivery, against a producer that publishes itself or a polling relay",
		Args:  cobra.NoArgs,
		RunE:  measure(l, show),
	}
	f := c.Flags()
	f.IntSliceVar(&l.rates, "rates", []int{100, 1000, 5000}, "rows a second")
	f.IntVar(&l.rounds, "rounds", 3, "pairs to measure at each rate")
	f.DurationVar(&l.window, "window", 8*time.Second, "how long one measurement commits rows")
	f.StringVar(&l.after, "after", "keep", "after_publish: keep, mark or delete")
	f.StringVar(&l.against, "against", "floor", "floor: the producer publishes itself after its commit; polling: a tuned polling relay; polling5s: 100 rows every 5 s")
	return c
}

var latencyOthers = map[string]string{
	"floor":     "the producer itself publishes right after its commit: no relay can be faster, and what it publishes can get lost.",
	"polling":   "a polling relay: 500 rows by SKIP LOCKED, published with confirms, marked, and the next look without a pause.",
	"polling5s": "a polling relay that looks every 5 s and takes 100 rows at most.",
}

// quantiles of the waits in one measurement.
type quantiles struct{ p50, p99, p999 time.Duration }

func (l *latency) run(ctx context.Context) (table, error) {
	note := latencyOthers[l.against]
	if note == "" {
		return table{}, fmt.Errorf("--against %q: it is floor, polling or polling5s", l.against)
	}
	defer l.tearDown()
	if err := l.setUp(ctx); err != nil {
		return table{}, err
	}
	if _, err := l.towpath(ctx, l.rates[0]); err != nil { // warm
		return table{}, err
	}
	t := table{
		Title: fmt.Sprintf("from commit to delivery, 300-byte bodies, %s, strict, quorum queue, %d rounds of %s", l.after, l.rounds, l.window),
		Note:  "other: " + note + "\nThe clock starts when COMMIT has returned to the producer. Up to " + fmt.Sprint(transactions) + " transactions a second, of as many rows as that takes.",
	}
	for _, rate := range l.rates {
		rows, err := l.at(ctx, rate)
		if err != nil {
			return table{}, err
		}
		t.Rows = append(t.Rows, rows...)
	}
	return t, nil
}

// at measures pairs at one rate.
func (l *latency) at(ctx context.Context, rate int) ([]line, error) {
	other := map[string]func(context.Context, int) (quantiles, error){
		"floor":   l.floor,
		"polling": func(ctx context.Context, rate int) (quantiles, error) { return l.polling(ctx, rate, 500, 0) },
		"polling5s": func(ctx context.Context, rate int) (quantiles, error) {
			return l.polling(ctx, rate, 100, 5*time.Second)
		},
	}[l.against]
	var ours, others []quantiles
	for round := range l.rounds {
		one := func(to *[]quantiles, measure func(context.Context, int) (quantiles, error)) error {
			q, err := measure(ctx, rate)
			*to = append(*to, q)
			return err
		}
		pair := []func() error{
			func() error { return one(&ours, l.towpath) },
			func() error { return one(&others, other) },
		}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, m := range pair {
			if err := m(); err != nil {
				return nil, err
			}
		}
		progress("%d rows a second, round %d of %d: p99 %s, %s %s", rate, round+1, l.rounds, ours[round].p99, l.against, others[round].p99)
	}
	goal := map[string]string{"floor": "<= 1.3"}[l.against]
	what := func(q string) string { return fmt.Sprintf("%s at %d rows a second", q, rate) }
	return []line{
		pair(what("p50"), "ms", ours, others, func(q quantiles) float64 { return millis(q.p50) }, ""),
		pair(what("p99"), "ms", ours, others, func(q quantiles) float64 { return millis(q.p99) }, goal),
		pair(what("p99.9"), "ms", ours, others, func(q quantiles) float64 { return millis(q.p999) }, ""),
	}, nil
}

func (l *latency) setUp(ctx context.Context) (err error) {
	if err := l.stage.setUp(ctx, "quorum"); err != nil {
		return err
	}
	l.next = 1
	if err := l.exec(ctx, createOutbox("outbox"), createOutbox("other")); err != nil {
		return err
	}
	if l.relay, err = l.configure(setting{stream: "bench", tables: "outbox", ordering: "strict", after: l.after}); err != nil {
		return err
	}
	if err := l.initialize(ctx, l.relay); err != nil {
		return err
	}
	return l.relay.start()
}

// window commits rows for the length of a measurement.
func (l *latency) measure(ctx context.Context, t *traffic) (quantiles, error) {
	t.stage, t.first, t.size = &l.stage, l.next, 300
	waits, err := t.play(ctx, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(l.window):
		}
		return ctx.Err()
	})
	if err != nil {
		return quantiles{}, err
	}
	l.next += len(waits)
	if least := float64(t.rate) * l.window.Seconds() * 0.9; float64(len(waits)) < least {
		progress("the database took %d rows in %s: fewer than %d a second", len(waits), l.window, t.rate)
	}
	slices.Sort(waits)
	return quantiles{quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 0.999)}, nil
}

func (l *latency) towpath(ctx context.Context, rate int) (quantiles, error) {
	if err := l.relay.await(ctx, "streams", func(m program.Metrics) bool { return m.Sum("towpath_streaming") == 1 }); err != nil {
		return quantiles{}, err
	}
	return l.measure(ctx, &traffic{table: "outbox", rate: rate})
}

// floor commits to a table that the relay does not know.
func (l *latency) floor(ctx context.Context, rate int) (quantiles, error) {
	publish, end, err := l.publisher()
	if err != nil {
		return quantiles{}, err
	}
	defer end()
	return l.measure(ctx, &traffic{table: "other", rate: rate, direct: publish})
}

// polling commits to a table that only the polling relay knows.
func (l *latency) polling(ctx context.Context, rate, batch int, pause time.Duration) (quantiles, error) {
	polling, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	p := poller{stage: &l.stage, table: "other", batch: batch, pause: pause}
	go func() { ended <- p.run(polling) }()
	q, err := l.measure(ctx, &traffic{table: "other", rate: rate})
	stop()
	if failed := <-ended; failed != nil && err == nil {
		err = failed
	}
	return q, err
}
