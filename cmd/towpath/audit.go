package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

func newAudit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit -c FILE",
		Short: "List what was done to the stream, by whom, why, and how it went",
		Long: `Lists the audit, newest first: what operators changed, and what the relay did by itself that loses or doubles
messages, such as closing a gap.`,
		Example: "  towpath audit -c shop.yaml --limit 20\n  towpath audit -c shop.yaml --action replay --operator ann --since 24h --json",
		Args:    noArguments,
	}
	load := configFlag(c)
	var f checkpoint.AuditFilter
	c.Flags().StringVar(&f.Action, "action", "", "only this action, as gap, replay, parked.retry, position.set")
	c.Flags().StringVar(&f.Operator, "operator", "", "only what this person did")
	since := c.Flags().String("since", "", "not before: a time as 2026-05-04T03:02:01Z, or a duration ago as 24h")
	until := c.Flags().String("until", "", "before: as --since")
	limit := c.Flags().Int("limit", 100, "at most so many entries")
	asJSON := c.Flags().Bool("json", false, "print one JSON object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var err error
		if f.Since, err = parseMoment("since", *since); err != nil {
			return err
		}
		if f.Until, err = parseMoment("until", *until); err != nil {
			return err
		}
		if *limit < 1 {
			return &usageError{errors.New("--limit must be at least 1")}
		}
		return withState(c, load, func(config *configs.Config, _ *sql.DB, store *checkpoint.Store) error {
			entries, err := store.Audits(c.Context(), config.Name, f, *limit)
			if err != nil {
				return err
			}
			return printAudit(c.OutOrStdout(), entries, *asJSON)
		})
	}
	return c
}

func printAudit(out io.Writer, entries []checkpoint.Audit, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		for _, e := range entries {
			if err := encoder.Encode(e); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AT\tTERM\tACTION\tOPERATOR\tREASON\tDETAIL")
	for _, e := range entries {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", e.At[:min(len(e.At), 19)], e.Term, e.Action, dash(printable(e.Operator)), dash(printable(e.Reason)), e.Detail)
	}
	return table.Flush()
}

// parseMoment reads a time, or a duration ago; "" is the zero time.
func parseMoment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return time.Now().Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, &usageError{fmt.Errorf("--%s %q is neither a time as 2026-05-04T03:02:01Z nor a duration as 24h", flag, text)}
}
