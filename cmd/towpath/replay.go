package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

// replayFlags are what `replay` is told on the command line.
type replayFlags struct {
	table, idFile, by, since, until string
	ids, where                      []string
	rate                            float64
	all, dryRun, asJSON             bool
}

func newReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay -c FILE --table NAME [--id ID | --id-file FILE | --since TIME | --where COLUMN=VALUE | --all]",
		Short: "Send rows again under their original ids",
		Long: `The leader sends the chosen rows again, with the same ids and bytes, beside the stream, which goes on. Consumers that
deduplicate by message id are not disturbed. Only rows that were sent are: those that the application withdrew, that are
unsent, or that are parked are counted and left alone. A row that the broker refuses is counted, and not parked.

What is given must all hold; ids and values of one column may be given several times. Times are of publish.timestamp, or
of the column that --by names. The command waits for the outcome, which is written to the audit. It exits with 1 when
rows were refused or ids have no row. With --dry-run it counts, sends nothing, and needs no leader.`,
		Example: "  towpath replay -c shop.yaml --table orders --id-file ids.txt --operator ann --reason 'consumer lost its database'\n" +
			"  towpath replay -c shop.yaml --table orders --since 2026-05-04T03:00:00Z --until 2026-05-04T04:00:00Z --by created_at --dry-run\n" +
			"  towpath replay -c shop.yaml --table orders --where tenant=7 --rate 500 --operator ann --reason 'new consumer'",
		Args: noArguments,
	}
	load, change := configFlag(c), changeFlags(c)
	var f replayFlags
	c.Flags().StringVar(&f.table, "table", "", "the table: its name in the configuration, or schema.table (required)")
	c.Flags().StringArrayVar(&f.ids, "id", nil, "a message id (repeatable)")
	c.Flags().StringVar(&f.idFile, "id-file", "", "file of message ids, one a line; - is standard input")
	c.Flags().StringVar(&f.since, "since", "", "not before: a time as 2026-05-04T03:02:01Z, or a duration ago as 24h")
	c.Flags().StringVar(&f.until, "until", "", "before: as --since")
	c.Flags().StringVar(&f.by, "by", "", "column of the times [publish.timestamp]")
	c.Flags().StringArrayVar(&f.where, "where", nil, "COLUMN=VALUE, compared exactly (repeatable)")
	c.Flags().BoolVar(&f.all, "all", false, "all rows that were sent")
	c.Flags().Float64Var(&f.rate, "rate", 0, "at most so many rows a second [as fast as the broker takes them]")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "count, send nothing")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		what, err := f.replay(c.InOrStdin())
		if err != nil {
			return err
		}
		if !f.dryRun {
			if err := change.check(); err != nil {
				return err
			}
		}
		return withState(c, load, func(config *configs.Config, db *sql.DB, store *checkpoint.Store) error {
			return f.run(c, config, db, store, change, what)
		})
	}
	return c
}

// replay is what the flags choose.
func (f *replayFlags) replay(stdin io.Reader) (relay.Replay, error) {
	what := relay.Replay{Table: f.table, By: f.by, Rate: f.rate}
	if f.table == "" {
		return what, &usageError{errors.New("--table is required")}
	}
	if f.rate < 0 {
		return what, &usageError{errors.New("--rate is negative")}
	}
	var err error
	if what.Since, err = parseMoment("since", f.since); err != nil {
		return what, err
	}
	if what.Until, err = parseMoment("until", f.until); err != nil {
		return what, err
	}
	for _, w := range f.where {
		column, value, found := strings.Cut(w, "=")
		if !found || column == "" {
			return what, &usageError{fmt.Errorf("--where %q is not COLUMN=VALUE", w)}
		}
		if what.Where == nil {
			what.Where = map[string][]string{}
		}
		what.Where[column] = append(what.Where[column], value)
	}
	what.IDs = f.ids
	if f.idFile != "" {
		if err := f.readIDs(&what, stdin); err != nil {
			return what, err
		}
	}
	slices.Sort(what.IDs)
	what.IDs = slices.Compact(what.IDs)
	chooses := len(what.IDs) > 0 || len(what.Where) > 0 || !what.Since.IsZero() || !what.Until.IsZero()
	if chooses == f.all {
		return what, &usageError{errors.New("choose rows by --id, --id-file, --since, --until or --where, or all of them by --all")}
	}
	return what, nil
}

func (f *replayFlags) readIDs(what *relay.Replay, stdin io.Reader) error {
	in := stdin
	if f.idFile != "-" {
		file, err := os.Open(f.idFile)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if id := strings.TrimSpace(lines.Text()); id != "" {
			what.IDs = append(what.IDs, id)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read ids: %w", err)
	}
	if len(what.IDs) == 0 {
		return fmt.Errorf("%s has no ids", f.idFile)
	}
	return nil
}

// run has it done, ids in as many requests as they need.
func (f *replayFlags) run(c *cobra.Command, config *configs.Config, db *sql.DB, store *checkpoint.Store, change change, what relay.Replay) error {
	do := func(part relay.Replay) (result relay.ReplayResult, err error) {
		if f.dryRun {
			return relay.ReplayDryRun(c.Context(), config, db, store, part)
		}
		err = change.ask(c.Context(), store, config.Name, relay.RequestReplay, part, &result)
		return result, err
	}
	var sum relay.ReplayResult
	for ids := what.IDs; ; {
		part := what
		part.IDs = ids[:min(len(ids), relay.MaxReplayIDs)]
		ids = ids[len(part.IDs):]
		result, err := do(part)
		if err != nil {
			return err
		}
		sum.Add(result)
		if len(ids) == 0 {
			break
		}
	}
	return f.report(c.OutOrStdout(), sum)
}

func (f *replayFlags) report(out io.Writer, r relay.ReplayResult) error {
	if f.asJSON {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	} else {
		done := "sent again"
		if f.dryRun {
			done = "would be sent again"
		}
		fmt.Fprintf(out, "%d of %d rows %s", r.Sent, r.Rows, done)
		for _, n := range []struct {
			rows uint64
			what string
		}{{r.Withdrawn, "withdrawn"}, {r.Unsent, "not sent yet"}, {r.Parked, "parked"}, {r.Refused, "refused (" + printable(r.Why) + ")"}, {r.Missing, "ids without a row"}} {
			if n.rows > 0 {
				fmt.Fprintf(out, "; %d %s", n.rows, n.what)
			}
		}
		fmt.Fprintln(out)
	}
	if r.Refused > 0 || r.Missing > 0 {
		return errReported
	}
	return nil
}
