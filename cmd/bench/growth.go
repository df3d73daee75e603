package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// growth measures whether a message costs more when there are more of them.
type growth struct {
	shape
	base     int
	backlogs []int
	tables   int
	rounds   int
}

func newGrowth() (*cobra.Command, measure) {
	g := &growth{shape: usual}
	c := &cobra.Command{Use: "growth", Short: "Cost a message of large backlogs and many tables, against a small backlog of one table"}
	f := c.Flags()
	f.IntVar(&g.base, "base", 10_000, "rows of the small backlog")
	f.IntSliceVar(&g.backlogs, "backlogs", []int{100_000, 1_000_000}, "rows of the large backlogs")
	f.IntVar(&g.tables, "tables", 20, "many tables")
	f.IntVar(&g.rounds, "rounds", 1, "pairs of each")
	f.StringVar(&g.after, "after", g.after, "after_publish: keep, mark or delete")
	return c, g
}

func (g *growth) run(ctx context.Context, b *bed) (table, error) {
	one, err := b.lay(ctx, g.shape)
	defer one.remove()
	if err != nil {
		return table{}, err
	}
	of := g.shape
	of.tables = g.tables
	many, err := b.lay(ctx, of)
	defer many.remove()
	if err != nil {
		return table{}, err
	}
	t := table{
		Title: fmt.Sprintf("cost a message as backlogs and tables grow, %s", g.shape),
		Note:  fmt.Sprintf("other: a backlog of %d rows of one table, drained next to it. Rates and CPU while streaming.", g.base),
	}
	type kind struct {
		s    *stream
		rows int
	}
	var kinds []kind
	for _, n := range g.backlogs {
		kinds = append(kinds, kind{one, n})
	}
	if g.tables > 1 {
		kinds = append(kinds, kind{many, g.base}, kind{many, slices.Min(g.backlogs)})
	}
	for _, k := range kinds {
		var ours, small []sample
		for round := range g.rounds {
			if err := inTurns(round,
				func() error { return add(ctx, k.s.counted(k.s.drain), k.rows, &ours) },
				func() error { return add(ctx, one.counted(one.drain), g.base, &small) }); err != nil {
				return table{}, err
			}
		}
		what := fmt.Sprintf("%d rows, %d tables:", k.rows, k.s.tables)
		progress(b, "growth, %s %.0f/s, %.1f us, %.0f MiB", what, ours[0].rate, ours[0].cpu, ours[0].memory)
		t.Rows = append(t.Rows,
			pair(what+" messages a second", "/s", ours, small, func(s sample) float64 { return s.rate }, ">= 1"),
			pair(what+" CPU a message", "us", ours, small, func(s sample) float64 { return s.cpu }, "<= 1"),
			pair(what+" peak memory", "MiB", ours, small, func(s sample) float64 { return s.memory }, "< 64 MiB"))
	}
	return t, nil
}
