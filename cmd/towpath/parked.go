package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
	"github.com/towpath/towpath/relay/rabbit"
)

func newParked() *cobra.Command {
	c := &cobra.Command{
		Use:   "parked",
		Short: "List, show, retry or discard rows that were refused",
		Long: `Rows that the broker refused, that wait behind one of their key, or that are due later, are parked. Most of them are
sent by themselves once what refused them is mended; those in state failed wait for a person.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newParkedList(), newParkedShow(), newParkedRetry(), newParkedDiscard())
	return c
}

// filterFlags adds the flags that choose parked rows.
func filterFlags(c *cobra.Command) func() (checkpoint.ParkedFilter, error) {
	f := c.Flags()
	tables := f.StringArray("table", nil, "of a table: its name in the configuration, or schema.table (repeatable)")
	keys := f.StringArray("key", nil, "of an ordering key (repeatable)")
	ids := f.StringArray("id", nil, "of a message id (repeatable)")
	classes := f.StringArray("class", nil, "by the last refusal: destination, unknown, poison, behind, closed, scheduled (repeatable)")
	states := f.StringArray("state", nil, "in a state: waiting, failed, or the ends sent, discarded, withdrawn, gone, filtered [waiting and failed] (repeatable)")
	older := f.Duration("older-than", 0, "parked for longer than this")
	return func() (checkpoint.ParkedFilter, error) {
		filter := checkpoint.ParkedFilter{Tables: *tables, Keys: *keys, IDs: *ids, Classes: *classes, OlderThan: *older}
		for _, s := range *states {
			filter.States = append(filter.States, checkpoint.ParkedState(s))
		}
		for flag, check := range map[string]struct{ have, of []string }{
			"class": {*classes, []string{"destination", "unknown", "poison", "behind", "closed", "scheduled"}},
			"state": {*states, []string{"waiting", "failed", "sent", "discarded", "withdrawn", "gone", "filtered"}},
		} {
			for _, v := range check.have {
				if !slices.Contains(check.of, v) {
					return filter, &usageError{fmt.Errorf("--%s %q is not one of %s", flag, v, strings.Join(check.of, ", "))}
				}
			}
		}
		if *older < 0 {
			return filter, &usageError{errors.New("--older-than is negative")}
		}
		return filter, nil
	}
}

// parkedLine is a parked row as it is printed.
type parkedLine struct {
	Table      string                 `json:"table"`
	ID         string                 `json:"id"`
	Key        *string                `json:"key"`
	State      checkpoint.ParkedState `json:"state"`
	Class      string                 `json:"class"`
	Code       int                    `json:"code,omitempty"`
	Reason     string                 `json:"reason,omitempty"`
	Exchange   string                 `json:"exchange"`
	RoutingKey string                 `json:"routing_key"`
	Refusals   int                    `json:"refusals"`
	Attempts   int                    `json:"attempts"`
	Since      string                 `json:"since"`
	Last       string                 `json:"last"`
	Next       string                 `json:"next,omitempty"`
	Message    *parkedMessage         `json:"message,omitempty"`
}

// parkedMessage is what a parked row would be sent as.
type parkedMessage struct {
	Headers map[string]any `json:"headers,omitempty"`
	Type    string         `json:"type,omitempty"`
	Body    string         `json:"body"`
	Bytes   bool           `json:"base64,omitempty"` // the body is no text
	End     string         `json:"end,omitempty"`    // it would not be sent but end so
}

func lineOf(p *checkpoint.ParkedRow) parkedLine {
	l := parkedLine{Table: p.Label, ID: p.MessageID, State: p.State, Class: p.Class, Code: p.Code, Reason: p.Reason,
		Exchange: p.Exchange, RoutingKey: p.RoutingKey, Refusals: p.Refusals, Attempts: p.Attempts,
		Since: p.FirstFailed, Last: p.LastFailed, Next: p.Next}
	if p.Ordering != nil {
		key := string(p.Ordering)
		l.Key = &key
	}
	return l
}

func newParkedList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list -c FILE",
		Short:   "List parked rows in the order in which they were parked",
		Example: "  towpath parked list -c shop.yaml --state failed\n  towpath parked list -c shop.yaml --table orders --older-than 1h --json",
		Args:    noArguments,
	}
	load, filter := configFlag(c), filterFlags(c)
	limit := c.Flags().Int("limit", 1000, "at most so many rows; 0: all")
	asJSON := c.Flags().Bool("json", false, "print one JSON object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		chosen, err := filter()
		if err != nil {
			return err
		}
		return withState(c, load, func(config *configs.Config, _ *sql.DB, store *checkpoint.Store) error {
			return listParked(c.Context(), c.OutOrStdout(), store, config.Name, chosen, *limit, *asJSON)
		})
	}
	return c
}

// listParked prints rows page by page: there may be many.
func listParked(ctx context.Context, out io.Writer, store *checkpoint.Store, stream string, filter checkpoint.ParkedFilter, limit int, asJSON bool) error {
	const pageRows = 500
	encoder := json.NewEncoder(out)
	printed := 0
	for after := uint64(0); ; {
		n := pageRows
		if limit > 0 {
			n = min(n, limit-printed)
		}
		if n == 0 {
			total, _, err := store.CountParked(ctx, stream, filter)
			if err == nil && total > uint64(printed) && !asJSON {
				fmt.Fprintf(out, "(%d of %d rows)\n", printed, total)
			}
			return err
		}
		page, err := store.ParkedRows(ctx, stream, filter, after, n)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		if printed == 0 && len(page) > 0 && !asJSON {
			fmt.Fprintln(table, "TABLE\tID\tKEY\tSTATE\tCLASS\tREFUSED\tATTEMPTS\tSINCE\tNEXT\tREASON")
		}
		for i := range page {
			l := lineOf(&page[i])
			after = page[i].Sequence
			if asJSON {
				if err := encoder.Encode(l); err != nil {
					return err
				}
				continue
			}
			key := "-"
			if l.Key != nil {
				key = *l.Key
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", l.Table, printable(l.ID), printable(key), l.State, l.Class,
				l.Refusals, l.Attempts, seconds(l.Since), seconds(l.Next), printable(l.because()))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		printed += len(page)
		if len(page) < n {
			if printed == 0 && !asJSON {
				fmt.Fprintln(out, "no parked rows")
			}
			return nil
		}
	}
}

// because is the reason with its code.
func (l parkedLine) because() string {
	if l.Code != 0 {
		return fmt.Sprintf("%d %s", l.Code, l.Reason)
	}
	return l.Reason
}

// seconds cuts the fraction off a time.
func seconds(at string) string {
	if at == "" {
		return "-"
	}
	at, _, _ = strings.Cut(at, ".")
	return at
}

// printable keeps what comes from rows from driving a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

func newParkedShow() *cobra.Command {
	c := &cobra.Command{
		Use:     "show -c FILE ID...",
		Short:   "Show parked rows by message id",
		Long:    `Shows all that is known of parked rows, in any state. Bodies and headers are shown only with --body: they may be confidential.`,
		Example: "  towpath parked show -c shop.yaml 4711\n  towpath parked show -c shop.yaml --body 4711",
	}
	load := configFlag(c)
	body := c.Flags().Bool("body", false, "also show the message as it would be sent now, payload included")
	asJSON := c.Flags().Bool("json", false, "print one JSON object a line")
	c.RunE = func(c *cobra.Command, ids []string) error {
		if len(ids) == 0 {
			return &usageError{errors.New("name at least one message id")}
		}
		return withState(c, load, func(config *configs.Config, db *sql.DB, store *checkpoint.Store) error {
			rows, err := store.ParkedRows(c.Context(), config.Name, checkpoint.ParkedFilter{IDs: ids, States: everyState}, 0, 1000)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return fmt.Errorf("no parked row has the message id %s", strings.Join(ids, " or "))
			}
			for i := range rows {
				l := lineOf(&rows[i])
				if *body {
					m, end, err := relay.ParkedMessage(c.Context(), config, db, store, rows[i].Parked)
					if err != nil {
						return fmt.Errorf("read the message of %s: %w", l.ID, err)
					}
					l.Message = messageOf(m, end)
				}
				if err := printParked(c.OutOrStdout(), l, *asJSON); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

var everyState = []checkpoint.ParkedState{checkpoint.ParkedWaiting, checkpoint.ParkedFailed,
	checkpoint.ParkedSent, checkpoint.ParkedDiscarded, checkpoint.ParkedWithdrawn, checkpoint.ParkedGone, checkpoint.ParkedFiltered}

func messageOf(m rabbit.Message, end checkpoint.ParkedState) *parkedMessage {
	p := &parkedMessage{Type: m.Type, Body: string(m.Body), End: string(end)}
	if !utf8.Valid(m.Body) {
		text, _ := json.Marshal(m.Body) // bytes always have a form
		p.Body, p.Bytes = strings.Trim(string(text), `"`), true
	}
	if len(m.Headers) > 0 {
		p.Headers = map[string]any{}
		for _, h := range m.Headers {
			p.Headers[h.Name] = h.Value
		}
	}
	return p
}

func printParked(out io.Writer, l parkedLine, asJSON bool) error {
	encoder := json.NewEncoder(out)
	if !asJSON {
		encoder.SetIndent("", "  ")
	}
	return encoder.Encode(l)
}

func newParkedRetry() *cobra.Command {
	c := newParkedChange(relay.RequestParkedRetry, "retried")
	c.Use, c.Short = "retry -c FILE", "Try parked rows again at once, as if they had never been tried"
	c.Example = "  towpath parked retry -c shop.yaml --id 4711 --operator ann --reason 'binding restored'\n" +
		"  towpath parked retry -c shop.yaml --all --operator ann --reason 'exchange restored'"
	return c
}

func newParkedDiscard() *cobra.Command {
	c := newParkedChange(relay.RequestParkedDiscard, "discarded")
	c.Use, c.Short = "discard -c FILE", "Give parked rows up: they are never sent"
	c.Example = "  towpath parked discard -c shop.yaml --table orders --state failed --operator ann --reason 'test data'"
	return c
}

// newParkedChange is a command that the leader carries out on chosen rows.
func newParkedChange(kind, done string) *cobra.Command {
	c := &cobra.Command{
		Long: `The leader carries it out, and the command waits for the outcome. Rows are chosen by flags that must all hold, or with
--all. It is written to the audit, with the operator and the reason.`,
		Args: noArguments,
	}
	load, filter, change := configFlag(c), filterFlags(c), changeFlags(c)
	all := c.Flags().Bool("all", false, "all parked rows")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		chosen, err := filter()
		if err != nil {
			return err
		}
		if err := change.check(); err != nil {
			return err
		}
		chooses := len(chosen.Tables)+len(chosen.Keys)+len(chosen.IDs)+len(chosen.Classes)+len(chosen.States) > 0 || chosen.OlderThan > 0
		if chooses == *all {
			return &usageError{errors.New("choose rows by --table, --key, --id, --class, --state or --older-than, or all of them by --all")}
		}
		for _, s := range chosen.States {
			if s.Ended() {
				return &usageError{fmt.Errorf("rows in state %s have ended: nothing can be done to them", s)}
			}
		}
		return withState(c, load, func(config *configs.Config, _ *sql.DB, store *checkpoint.Store) error {
			began := time.Now()
			var result relay.ParkedResult
			if err := change.ask(c.Context(), store, config.Name, kind, chosen, &result); err != nil {
				return err
			}
			if *asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(result)
			}
			printParkedResult(c.OutOrStdout(), result, done, time.Since(began))
			if result.Rows == 0 && len(chosen.IDs) > 0 {
				return fmt.Errorf("no parked row has the message id %s", strings.Join(chosen.IDs, " or "))
			}
			return nil
		})
	}
	return c
}

func printParkedResult(out io.Writer, r relay.ParkedResult, done string, took time.Duration) {
	fmt.Fprintf(out, "%d of %d rows %s in %s", r.Changed, r.Rows, done, took.Round(time.Millisecond))
	if r.UnderWay > 0 {
		fmt.Fprintf(out, "; %d were just being sent and are %s only if the broker refuses them", r.UnderWay, done)
	}
	if r.Ended > 0 {
		fmt.Fprintf(out, "; %d had ended meanwhile", r.Ended)
	}
	fmt.Fprintln(out)
}
