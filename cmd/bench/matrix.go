package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// matrix measures every combination of what changes the way of a message.
type matrix struct {
	after, ordering, queues []string
	sizes, keys             []int
	rows, rounds            int
}

func newMatrix() (*cobra.Command, measure) {
	m := &matrix{}
	c := &cobra.Command{Use: "matrix", Short: "Short drains of every combination, against a plain publisher",
		Long: "Short drains of every combination of after, ordering, queue, body and keys, against a plain publisher.\nThe flags choose a part: a run of all takes some minutes."}
	f := c.Flags()
	f.StringSliceVar(&m.after, "after", []string{"keep", "mark", "delete"}, "after_publish")
	f.StringSliceVar(&m.ordering, "ordering", []string{"strict", "fast"}, "ordering")
	f.StringSliceVar(&m.queues, "queue", []string{"classic", "quorum"}, "queue type")
	f.IntSliceVar(&m.sizes, "size", []int{200, 2 << 10, 64 << 10}, "bytes of a body")
	f.IntSliceVar(&m.keys, "keys", []int{1, 16, 10_000}, "distinct ordering keys")
	f.IntVar(&m.rows, "rows", 10_000, "rows of a drain; fewer with few keys or large bodies")
	f.IntVar(&m.rounds, "rounds", 1, "pairs of each combination")
	return c, m
}

// rowsOf keeps a drain short: a strict key waits for each confirm, and large
// bodies take their time everywhere.
func (m *matrix) rowsOf(of shape) int {
	n := m.rows
	if of.ordering == "strict" && of.keys < 1000 {
		n = min(n, 500+of.keys*200)
	}
	return min(n, max(100, (24<<20)/of.size))
}

func (m *matrix) run(ctx context.Context, b *bed) (table, error) {
	t := table{
		Title: fmt.Sprintf("drains of up to %d rows, streaming, without the start of the process; %d rounds of each", m.rows, m.rounds),
		Note: "other: a plain amqp091-go publisher, 256 in flight, which keeps no order after a refusal, reads no database and marks nothing.\n" +
			"strict sends one message of a key at a time: with 1 key its rate is one confirm after another. Peaks are MiB since the\n" +
			"start of each process: the servers' grow over the run, whatever they serve; other is there the plain publisher's process.",
	}
	total := len(m.after) * len(m.ordering) * len(m.queues) * len(m.sizes) * len(m.keys)
	done := 0
	var relayPeak, databasePeak, brokerPeak, plainPeak float64
	for _, after := range m.after {
		for _, ordering := range m.ordering {
			for _, queue := range m.queues {
				for _, size := range m.sizes {
					for _, keys := range m.keys {
						of := shape{after: after, ordering: ordering, queue: queue, size: size, keys: keys, tables: 1}
						ours, plain, err := m.cell(ctx, b, of)
						if err != nil {
							return table{}, fmt.Errorf("%s: %w", of, err)
						}
						done++
						progress(b, "matrix, %d of %d: %s: towpath %.0f/s, plain %.0f/s, CPU %.1f and %.1f us, %.0f MiB", done, total, of,
							ours[0].rate, plain[0].rate, ours[0].cpu, plain[0].cpu, ours[0].memory)
						t.Rows = append(t.Rows,
							pair(of.String(), "/s", ours, plain, func(s sample) float64 { return s.rate }, ">= 1"),
							pair("  CPU a message", "us", ours, plain, func(s sample) float64 { return s.cpu }, "<= 1"),
							pair("  peak memory", "MiB", ours, plain, func(s sample) float64 { return s.memory }, "< 64 MiB"))
						for n := range ours {
							relayPeak, plainPeak = max(relayPeak, ours[n].memory), max(plainPeak, plain[n].memory)
							databasePeak, brokerPeak = max(databasePeak, ours[n].mysqlMemory), max(brokerPeak, ours[n].brokerMemory)
						}
					}
				}
			}
		}
	}
	for _, p := range []struct {
		what string
		peak float64
		goal string
	}{{"largest peak of a relay", relayPeak, "< 64 MiB"}, {"peak of the database", databasePeak, ""}, {"peak of the broker", brokerPeak, ""}} {
		t.Rows = append(t.Rows, line{What: p.what, Unit: "MiB", Ours: p.peak, Other: plainPeak, Ratio: finite(p.peak / plainPeak), Goal: p.goal})
	}
	return t, nil
}

func (m *matrix) cell(ctx context.Context, b *bed, of shape) (ours, plain []sample, err error) {
	s, err := b.lay(ctx, of)
	defer s.remove()
	if err != nil {
		return nil, nil, err
	}
	for round := range m.rounds {
		if err := compete(ctx, round, m.rowsOf(of), s.counted(s.drain), s.counted(s.plain), &ours, &plain); err != nil {
			return nil, nil, err
		}
	}
	return ours, plain, nil
}
