package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// matrix drains backlogs that differ in one thing each.
type matrix struct {
	rows, rounds int
	growth       bool
}

func newMatrix(show func(table) error) *cobra.Command {
	m := &matrix{}
	c := &cobra.Command{
		Use:   "matrix",
		Short: "The drain for each after_publish, ordering, body size, queue type, number of keys and of tables",
		Args:  cobra.NoArgs,
		RunE:  measure(m, show),
	}
	f := c.Flags()
	f.IntVar(&m.rows, "rows", 20_000, "rows of each backlog; a tenth of it with large bodies or one key")
	f.IntVar(&m.rounds, "rounds", 3, "pairs to measure for each")
	f.BoolVar(&m.growth, "growth", false, "backlogs of 10,000, 100,000 and 1,000,000 rows instead")
	return c
}

func (m *matrix) run(ctx context.Context) (table, error) {
	base := drain{rows: m.rows, rounds: m.rounds, size: 300, after: "keep", ordering: "strict", queue: "quorum", keys: 10_000, tables: 1, against: "plain"}
	t := table{
		Title: fmt.Sprintf("drains of %d rows, each unlike the first in one thing", m.rows),
		Note:  "other: " + others["plain"] + "\nIn a short drain the relay's start counts.",
	}
	variants := []struct {
		what   string
		change func(*drain)
	}{
		{"300-byte bodies, keep, strict, 10,000 keys, quorum queue", func(*drain) {}},
		{"mark", func(d *drain) { d.after = "mark" }},
		{"delete", func(d *drain) { d.after = "delete" }},
		{"fast", func(d *drain) { d.ordering = "fast" }},
		{"200-byte bodies", func(d *drain) { d.size = 200 }},
		{"2 KB bodies", func(d *drain) { d.size = 2000 }},
		{"64 KB bodies", func(d *drain) { d.size, d.rows = 64000, m.rows/10 }},
		{"classic queue", func(d *drain) { d.queue = "classic" }},
		{"16 keys", func(d *drain) { d.keys = 16 }},
		{"1 key", func(d *drain) { d.keys, d.rows = 1, m.rows/10 }},
		{"20 tables", func(d *drain) { d.tables = 20 }},
	}
	if m.growth {
		t.Title = "drains that grow"
		variants = variants[:0]
		for _, rows := range []int{10_000, 100_000, 1_000_000} {
			variants = append(variants, struct {
				what   string
				change func(*drain)
			}{fmt.Sprintf("%d rows", rows), func(d *drain) { d.rows = rows }})
		}
	}
	for _, v := range variants {
		d := base
		v.change(&d)
		progress("%s", v.what)
		found, err := d.run(ctx)
		if err != nil {
			return table{}, fmt.Errorf("%s: %w", v.what, err)
		}
		for _, l := range found.Rows {
			l.What, l.Goal = v.what+": "+l.What, ""
			t.Rows = append(t.Rows, l)
		}
	}
	return t, nil
}
