package main

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

func newResume() *cobra.Command {
	c := &cobra.Command{
		Use:   "resume -c FILE",
		Short: "Go on after a halt",
		Long: `A stream halts where it can neither read nor pass something without a person's decision; the log, towpath status and
towpath_halted say why, and which of the options continues it. It is written to the audit, with the operator and the reason.

Rows of mark and delete tables that may have been missed are looked for in any case. Rows of keep tables do not show
whether they were sent: --resend-since sends those again whose publish.timestamp is at least the time, under their
original message ids; --accept-loss goes on without them.`,
		Example: `  towpath resume -c shop.yaml --skip-event --operator ann --reason 'row 17 is damaged, mended by hand'
  towpath resume -c shop.yaml --resend-since 2026-03-01T08:00:00Z --operator ann --reason 'binlog purged over the weekend'`,
		Args: noArguments,
	}
	load, change := configFlag(c), changeFlags(c)
	f := c.Flags()
	skip := f.Bool("skip-event", false, "pass the one event that cannot be read")
	accept := f.Bool("accept-loss", false, "go on although rows of keep tables may never be sent")
	since := f.String("resend-since", "", "send rows of keep tables since this time again, as 2026-03-01T08:00:00Z")
	c.RunE = func(c *cobra.Command, _ []string) error {
		r := relay.Resumption{SkipEvent: *skip, AcceptLoss: *accept}
		if *since != "" {
			var err error
			if r.ResendSince, err = time.Parse(time.RFC3339, *since); err != nil {
				return &usageError{fmt.Errorf("--resend-since %q is not a time as 2026-03-01T08:00:00Z", *since)}
			}
			if *accept {
				return &usageError{errors.New("--resend-since and --accept-loss exclude each other")}
			}
		}
		if err := change.check(); err != nil {
			return err
		}
		return withState(c, load, func(config *configs.Config, _ *sql.DB, store *checkpoint.Store) error {
			if err := change.ask(c.Context(), store, config.Name, relay.RequestResume, r, nil); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), "resumed")
			return err
		})
	}
	return c
}
