package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

func newPosition() *cobra.Command {
	c := &cobra.Command{
		Use:   "position",
		Short: "Show or set the saved position",
		Args:  noArguments,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPositionShow(), newPositionSet())
	return c
}

func newPositionShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show -c FILE",
		Short: "Print the saved position",
		Long: `Prints the position up to which everything is settled, as it was saved last. With --json it is in the form that
tail --from and position set --to take.`,
		Example: "  towpath position show -c shop.yaml\n  towpath position show -c shop.yaml --json > before-upgrade.json",
		Args:    noArguments,
	}
	load := configFlag(c)
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return withState(c, load, func(config *configs.Config, _ *sql.DB, store *checkpoint.Store) error {
			p, age, err := store.SavedPosition(c.Context(), config.Name)
			switch {
			case err != nil:
				return err
			case p.IsZero():
				return fmt.Errorf("stream %s has no position yet: its first leader saves one", config.Name)
			case *asJSON:
				return json.NewEncoder(c.OutOrStdout()).Encode(p)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s\nserver %s, saved %s ago\n", p, p.Server, span(age.Seconds()))
			return err
		})
	}
	return c
}

func newPositionSet() *cobra.Command {
	c := &cobra.Command{
		Use:   "set -c FILE --to POSITION --operator NAME --reason TEXT",
		Short: "Move the saved position: rows in between are sent again, or skipped",
		Long: `Takes the lease with a new term, saves the position, and resigns; the relay that leads next goes on from there. A relay
that leads now is deposed, finds out within a third of lease.ttl, and may lead again.

Moved back, the stream reads rows again: rows of keep tables are sent again, rows of mark and delete tables are looked
at and sent if they are unsent. Moved ahead, rows of keep tables in between are never sent; those of mark and delete
tables are found by the fallback. POSITION must be the end of an event group: FILE:OFFSET, "now", or what position
show --json prints, or gtid: and a GTID set. It is read from before it is saved, and written to the audit. Where no position
was saved before, tables with start: now begin there as well.`,
		Example: "  towpath position set -c shop.yaml --to binlog.000042:4 --operator ann --reason 'resend after a restore'\n" +
			"  towpath position set -c shop.yaml --to \"$(cat before-upgrade.json)\" --operator ann --reason 'back to before the upgrade'",
		Args: noArguments,
	}
	load := configFlag(c)
	to := c.Flags().String("to", "", "where to: FILE:OFFSET, now, gtid:SET, or JSON (required)")
	author := authorFlags(c)
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *to == "" {
			return &usageError{errors.New("--to is required")}
		}
		if err := author.check(); err != nil {
			return err
		}
		place := *to
		if place == "now" {
			place = ""
		}
		target, err := parseTarget(place)
		if err != nil {
			return &usageError{err}
		}
		config, err := load()
		if err != nil {
			return err
		}
		moved, err := relay.SetPosition(c.Context(), config, target, *author.operator, *author.reason)
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(moved)
		}
		fmt.Fprintf(c.OutOrStdout(), "position of stream %s under term %d:\n  from %s\n  to   %s\n", config.Name, moved.Term, moved.From, moved.To)
		return nil
	}
	return c
}

// parseTarget reads a position, or gtid: and the set of what lies behind it.
func parseTarget(text string) (checkpoint.Position, error) {
	set, byGTID := strings.CutPrefix(text, "gtid:")
	if !byGTID {
		return parsePosition(text)
	}
	p := checkpoint.Position{Flavor: checkpoint.MySQL}
	if !strings.Contains(set, ":") { // 0-1-42 has none, UUID:1-42 has
		p.Flavor = checkpoint.MariaDB
	}
	var err error
	if p.GTIDs, err = checkpoint.ParseGTIDSet(p.Flavor, set); err == nil && p.GTIDs.IsZero() {
		err = errors.New("the GTID set is empty")
	}
	return p, err
}
