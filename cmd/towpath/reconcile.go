package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
	"github.com/towpath/towpath/relay/reconcile"
)

// inboxPassword names the environment variable with the inbox's password.
const inboxPassword = "TOWPATH_INBOX_PASSWORD"

// reconciliation is the command's flags.
type reconciliation struct {
	table, consumer, timeColumn  string
	inboxTable, address, user    string
	passwordFile, tlsMode, tlsCA string
	since, settle                time.Duration
	from, to, completeSince      string
	done, metricsFile, spoolDir  string
	json, replay                 bool
	change                       change
}

func newReconcile() *cobra.Command {
	r := &reconciliation{}
	c := &cobra.Command{
		Use:   "reconcile -c FILE --consumer NAME",
		Short: "Compare what an outbox has sent with what a consumer has processed",
		Long: `Compares the rows of an outbox table in a time range with the records of a consumer's inbox (deploy/sql/inbox.sql),
which may be on another server, and prints each message that is
  missing     sent, and not processed within the settle time
  unknown     processed, but in no row of the outbox
  different   processed with other content than the row has
Rows older than the inbox's oldest record are counted as unjudged: retention may have removed their records. If the
inbox is complete since some time, say so with --complete-since. It locks nothing and takes no lease.

With --replay-missing the leader sends missing rows again, under their own ids, as replay does. With --mark-done it sets
the status of rows that were sent and processed. Both are audited; a row whose status the application has changed since
it was sent, or that it holds locked, is left alone.

It exits with 0 when nothing is wrong, and with 1 otherwise, so that cron can tell. The password of the inbox's server
comes from --inbox-password-file or ` + inboxPassword + `; without --inbox-address the inbox is on the source server.`,
		Example: "  towpath reconcile -c shop.yaml --consumer billing --since 24h\n" +
			"  towpath reconcile -c shop.yaml --consumer billing --inbox-address db2:3306 --inbox-user audit --inbox-table billing.towpath_inbox --json\n" +
			"  towpath reconcile -c shop.yaml --consumer billing --replay-missing --operator ann --reason \"INC-7: queue was purged\"\n" +
			"  towpath reconcile -c orders.yaml --consumer stock --mark-done 2 --operator cron --reason nightly --metrics-file /var/lib/node_exporter/towpath.prom",
		Args: noArguments,
	}
	load := configFlag(c)
	f := c.Flags()
	f.StringVar(&r.table, "table", "", "outbox table as schema.table [the only one of the configuration]")
	f.StringVar(&r.consumer, "consumer", "", "the consumer's name in its inbox (required)")
	f.StringVar(&r.timeColumn, "time-column", "", "column that says when a row was written [publish.timestamp, or status.sent_at]")
	f.StringVar(&r.inboxTable, "inbox-table", "", "the inbox [towpath_inbox in the outbox's schema]")
	f.StringVar(&r.address, "inbox-address", "", "host:port of the inbox's server [the source]")
	f.StringVar(&r.user, "inbox-user", "", "account there [source.user]")
	f.StringVar(&r.passwordFile, "inbox-password-file", "", "file with its password")
	f.StringVar(&r.tlsMode, "inbox-tls", "preferred", "disabled, preferred, required or verify")
	f.StringVar(&r.tlsCA, "inbox-tls-ca", "", "PEM file for --inbox-tls verify [the system's]")
	f.DurationVar(&r.since, "since", 24*time.Hour, "compare the rows of this long until now")
	f.StringVar(&r.from, "from", "", "compare from this time on, as 2026-01-31T00:00:00Z, instead of --since")
	f.StringVar(&r.to, "to", "", "compare up to this time [now]")
	f.DurationVar(&r.settle, "settle", 10*time.Minute, "how long the consumer may take; nothing younger is looked at")
	f.StringVar(&r.completeSince, "complete-since", "", "the inbox has every record since this time [since its oldest one]")
	f.StringVar(&r.done, "mark-done", "", "set the status of sent and processed rows to this value of the application's own")
	f.StringVar(&r.metricsFile, "metrics-file", "", "write the figures there for a Prometheus text-file collector")
	f.StringVar(&r.spoolDir, "spool-dir", "", "where to sort [source.spool_dir, or the system's temporary folder]")
	f.BoolVar(&r.json, "json", false, "print one JSON object a line: the differences, and then the summary")
	f.BoolVar(&r.replay, "replay-missing", false, "have the leader send missing messages again, under their own ids")
	r.change = changeFlags(c)
	for _, flag := range []string{"operator", "reason"} { // a comparison alone changes nothing
		f.Lookup(flag).Usage = strings.Replace(f.Lookup(flag).Usage, "required", "required with --replay-missing and --mark-done", 1)
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if r.changes() {
			if err := r.change.check(); err != nil {
				return err
			}
		}
		config, err := load()
		if err != nil {
			return err
		}
		return r.run(c.Context(), config, c.OutOrStdout())
	}
	return c
}

func (r *reconciliation) run(ctx context.Context, config *configs.Config, w io.Writer) error {
	if err := r.complete(config); err != nil {
		return &usageError{err}
	}
	options, err := r.options(config)
	if err != nil {
		return &usageError{err}
	}
	// The sessions are idle while the other side is read.
	session := checkpoint.Session{IdleTimeout: time.Hour}
	source := checkpoint.Connect(relay.Endpoint(config), session)
	defer source.Close()
	inboxDB := source
	if r.address != "" {
		inboxDB = checkpoint.Connect(r.endpoint(config), session)
		defer inboxDB.Close()
	}
	sent, err := relay.OpenSent(ctx, config, source, r.table, r.timeColumn)
	if err != nil {
		return err
	}
	if r.changes() {
		store, err := checkpoint.Open(ctx, source, config.State.Schema)
		if err != nil {
			return err
		}
		if err := r.leaderDoes(ctx, config, store, sent, &options); err != nil {
			return err
		}
	}
	bar := showProgress(&options)
	started := time.Now()
	summary, err := reconcile.Run(ctx, sent, reconcile.Inbox{DB: inboxDB, Table: r.inboxTable, Consumer: r.consumer}, options, func(d reconcile.Difference) error {
		if r.json {
			return json.NewEncoder(w).Encode(d)
		}
		_, err := fmt.Fprintf(w, "%-9s  %s\n", d.Class, d.MessageID)
		return err
	})
	bar()
	if err != nil {
		return err
	}
	if err := r.report(w, summary, time.Since(started)); err != nil {
		return err
	}
	if !summary.Clean() {
		return errReported
	}
	return nil
}

func (r *reconciliation) changes() bool { return r.replay || r.done != "" }

// leaderDoes has the leader make the changes that are asked for, by requests.
func (r *reconciliation) leaderDoes(ctx context.Context, config *configs.Config, store *checkpoint.Store, sent *relay.Sent, o *reconcile.Options) error {
	if r.replay {
		o.Replay = func(ids, keys []string) (int64, error) {
			what := sent.Replay(ids, keys)
			if len(what.Keys) == 0 {
				return 0, nil
			}
			var result relay.ReplayResult
			err := r.change.ask(ctx, store, config.Name, relay.RequestReplay, what, &result)
			return int64(result.Sent), err
		}
	}
	if r.done == "" {
		return nil
	}
	o.Done = func(keys []string) (int64, error) {
		what := sent.Done(keys, r.done)
		if len(what.Keys) == 0 {
			return 0, nil
		}
		var result relay.DoneResult
		err := r.change.ask(ctx, store, config.Name, relay.RequestDone, what, &result)
		return int64(result.Marked), err
	}
	return sent.CheckDone(r.done)
}

// complete fills what was left to defaults.
func (r *reconciliation) complete(config *configs.Config) error {
	if r.consumer == "" {
		return errors.New("--consumer is missing: the name that the consumer has in its inbox")
	}
	if r.table == "" {
		t := config.Tables[0].Tables[0]
		if len(config.Tables) > 1 || len(config.Tables[0].Tables) > 1 || !t.Literal() {
			return errors.New("--table is missing: the configuration has several tables")
		}
		r.table = t.String()
	}
	if r.inboxTable == "" {
		schema, _, _ := cutTable(r.table)
		r.inboxTable = schema + ".towpath_inbox"
	}
	if _, _, ok := cutTable(r.inboxTable); !ok {
		return errors.New("--inbox-table wants schema.table")
	}
	if r.spoolDir == "" {
		r.spoolDir = config.Source.SpoolDir
	}
	if r.address == "" && (r.user != "" || r.passwordFile != "") {
		return errors.New("--inbox-user and --inbox-password-file go with --inbox-address")
	}
	return nil
}

func (r *reconciliation) options(config *configs.Config) (reconcile.Options, error) {
	o := reconcile.Options{From: time.Now().Add(-r.since), Settle: r.settle, SpoolDir: r.spoolDir}
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{{"--from", r.from, &o.From}, {"--to", r.to, &o.To}, {"--complete-since", r.completeSince, &o.CompleteSince}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return o, fmt.Errorf("%s %q is no time as 2026-01-31T00:00:00Z", t.flag, t.text)
		}
		*t.into = at.UTC()
	}
	return o, nil
}

func (r *reconciliation) endpoint(config *configs.Config) checkpoint.Endpoint {
	e := checkpoint.Endpoint{Address: r.address, User: r.user, TLS: checkpoint.TLS{Mode: r.tlsMode, CA: r.tlsCA}}
	if e.User == "" {
		e.User = config.Source.User
	}
	e.Password = func() (string, error) {
		if r.passwordFile == "" {
			return os.Getenv(inboxPassword), nil
		}
		text, err := os.ReadFile(r.passwordFile)
		return trimNewline(string(text)), err
	}
	return e
}

func (r *reconciliation) report(w io.Writer, s reconcile.Summary, took time.Duration) error {
	if r.metricsFile != "" {
		if err := r.writeMetrics(s); err != nil {
			return err
		}
	}
	if r.json {
		return json.NewEncoder(w).Encode(s)
	}
	note := ""
	if !s.UnknownJudged {
		note = " (unknown: not judged, the message id is made of several columns)"
	}
	_, err := fmt.Fprintf(w, "%s and consumer %s, %s to %s: sent %d, processed %d, missing %d, unknown %d, different %d, unjudged %d, unsent %d, marked done %d, replayed %d, in %s%s\n",
		r.table, r.consumer, s.From.Format(time.RFC3339), s.To.Format(time.RFC3339), s.Sent, s.Processed, s.Missing, s.Unknown, s.Different,
		s.Unjudged, s.Unsent, s.Marked, s.Replayed, took.Round(time.Millisecond), note)
	return err
}

// writeMetrics leaves the figures of this run for alerts. The file appears at once as a whole.
func (r *reconciliation) writeMetrics(s reconcile.Summary) error {
	reg := prometheus.NewRegistry()
	labels := prometheus.Labels{"table": r.table, "consumer": r.consumer}
	set := func(name, help string, value float64) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "towpath_reconcile_" + name, Help: help, ConstLabels: labels})
		g.Set(value)
		reg.MustRegister(g)
	}
	set("last_run_timestamp_seconds", "When the last comparison ended.", float64(time.Now().Unix()))
	set("sent", "Messages of the range that had to be processed.", float64(s.Sent))
	set("processed", "Of those, processed with the same content.", float64(s.Processed))
	set("missing", "Sent and not processed within the settle time.", float64(s.Missing))
	set("unknown", "Processed, but in no row of the outbox.", float64(s.Unknown))
	set("different", "Processed with other content than the row has.", float64(s.Different))
	set("unjudged", "Rows older than the inbox's oldest record.", float64(s.Unjudged))
	if err := prometheus.WriteToTextfile(r.metricsFile, reg); err != nil {
		return fmt.Errorf("write --metrics-file: %w", err)
	}
	return nil
}

// showProgress shows on a terminal how far a comparison got; the returned
// function ends that.
func showProgress(o *reconcile.Options) (end func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("rows"), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	step := ""
	o.Progress = func(now string, n int64) {
		if now != step {
			step = now
			bar.Reset()
			bar.Describe(now)
		}
		_ = bar.Set64(n)
	}
	return func() { _ = bar.Finish() }
}

// cutTable takes schema.table apart.
func cutTable(name string) (schema, table string, ok bool) {
	schema, table, ok = strings.Cut(name, ".")
	return schema, table, ok && schema != "" && table != ""
}

func trimNewline(text string) string { return strings.TrimRight(text, "\r\n") }
