package main

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"
)

// latency measures the time from a row's commit to the delivery of its message.
type latency struct {
	shape
	rates   []int
	seconds int
	rounds  int
}

func newLatency() (*cobra.Command, measure) {
	l := &latency{shape: usual}
	c := &cobra.Command{Use: "latency", Short: "Commit to delivery, against a producer that publishes right after its commit"}
	f := c.Flags()
	f.IntSliceVar(&l.rates, "rates", []int{100, 1000, 5000}, "rows a second")
	f.IntVar(&l.seconds, "seconds", 3, "of one measurement")
	f.IntVar(&l.rounds, "rounds", 3, "pairs to measure at each rate")
	f.StringVar(&l.after, "after", l.after, "after_publish: keep, mark or delete")
	f.StringVar(&l.queue, "queue", l.queue, "queue type: quorum or classic")
	f.IntVar(&l.size, "size", l.size, "bytes of a body")
	return c, l
}

// waits are what a round shows: from when COMMIT was sent, and from its return.
type waits struct{ sent, returned spread }

func waitsOf(trips map[int64]*trip) (w waits) {
	for _, t := range trips {
		w.sent = append(w.sent, t.arrived.Sub(t.sent))
		w.returned = append(w.returned, t.arrived.Sub(t.committed))
	}
	return w
}

func (l *latency) run(ctx context.Context, b *bed) (table, error) {
	s, err := b.lay(ctx, l.shape)
	defer s.remove()
	if err != nil {
		return table{}, err
	}
	w, err := s.watch()
	if err != nil {
		return table{}, err
	}
	defer w.close()
	t := table{
		Title: fmt.Sprintf("commit to delivery, %s, %d rounds of %d s at each rate", l.shape, l.rounds, l.seconds),
		Note: "other: the floor, a producer that publishes each row itself right after its commit; the relay does not run then.\n" +
			"Above 200 rows a second several rows share a transaction. A relay can deliver before COMMIT returns to the producer:\n" +
			"the binlog is sent while the engine commits. p99.9 of less than 1,000 rows is the slowest.",
	}
	lasts := time.Duration(l.seconds) * time.Second
	for _, rate := range l.rates {
		var ours, floor []waits
		for round := range l.rounds {
			if err := inTurns(round,
				func() error { return s.relayed(ctx, w, rate, lasts, &ours) },
				func() error { return s.direct(ctx, w, rate, lasts, &floor) }); err != nil {
				return table{}, err
			}
			progress(b, "latency, %d rows/s, round %d of %d: p99 %.2f ms, floor %.2f ms", rate, round+1, l.rounds, ours[round].sent.at(0.99), floor[round].sent.at(0.99))
		}
		t.Rows = append(t.Rows, waitLines(fmt.Sprintf("%d/s", rate), ours, floor, "p99 <= 1.3")...)
	}
	return t, nil
}

func waitLines(at string, ours, other []waits, goal string) (lines []line) {
	for _, p := range []struct {
		name  string
		share float64
		goal  string
	}{{"p50", 0.5, ""}, {"p99", 0.99, goal}, {"p99.9", 0.999, ""}} {
		lines = append(lines, pair(at+" "+p.name+" from COMMIT sent", "ms", ours, other, func(w waits) float64 { return w.sent.at(p.share) }, p.goal))
	}
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		lines = append(lines, pair(at+" "+p.name+" from COMMIT returned", "ms", ours, other, func(w waits) float64 { return w.returned.at(p.share) }, ""))
	}
	return lines
}

// relayed puts a load on a relay.
func (s *stream) relayed(ctx context.Context, w *watcher, rate int, lasts time.Duration, to *[]waits) error {
	r, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer r.Kill()
	trips, err := s.loaded(ctx, w, rate, lasts, nil)
	if err != nil {
		return err
	}
	*to = append(*to, waitsOf(trips))
	return r.stop()
}

func (s *stream) loaded(ctx context.Context, w *watcher, rate int, lasts time.Duration, publish func(int, int64, int64) error) (map[int64]*trip, error) {
	if err := s.load(ctx, w, rate, lasts, publish); err != nil {
		return nil, err
	}
	return w.all(ctx)
}

// direct is the same load by a producer that publishes. What it writes goes to a
// table that no relay reads.
func (s *stream) direct(ctx context.Context, w *watcher, rate int, lasts time.Duration, to *[]waits) error {
	beside, err := s.aside(ctx)
	if err != nil {
		return err
	}
	defer beside.db.Close()
	channels := make([]*amqp.Channel, loaders)
	conn, err := amqp.Dial(s.vhost.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	for n := range channels {
		if channels[n], err = conn.Channel(); err != nil {
			return err
		}
		if err := channels[n].Confirm(false); err != nil {
			return err
		}
	}
	trips, err := beside.loaded(ctx, w, rate, lasts, func(worker int, first, last int64) error {
		for id := first; id <= last; id++ {
			if _, err := channels[worker].PublishWithDeferredConfirm("", queueName, true, false, amqp.Publishing{MessageId: fmt.Sprint(id),
				Type: "created", ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(s.body(id))}); err != nil {
				return err
			}
		}
		return nil
	})
	s.last = beside.last
	if err != nil {
		return err
	}
	*to = append(*to, waitsOf(trips))
	return nil
}
