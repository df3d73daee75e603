package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/towpath/towpath/relay/inbox"
)

// view is what is shown at one moment.
type view struct {
	title   string
	elapsed time.Duration
	phase   string // what is under way, "" while all runs

	transactions, committed, rolledBack int
	confirmed, waiting                  int
	applied                             int           // effects, by the consumer's own count
	oldest                              time.Duration // age of the oldest that waits
	rate                                uint64        // consumed in the last second
	p50, p99, allP50, allP99, longest   time.Duration
	lost, ghosts, duplicates, disorder  int

	relays   []relayView
	broker   string
	lanes    string
	position string
	saved    time.Duration // ago; negative when it never was
	events   []string
}

type relayView struct {
	name, role string
	term       int
	pid        int
}

func (d *demo) view() view {
	now := time.Now()
	w := d.ledger.waiting()
	recent := d.ledger.lags.last(now)
	all := &d.ledger.lags.all
	v := view{
		title:   title(d.options.database) + " -> Towpath -> " + title(d.options.broker),
		elapsed: d.since(now), phase: d.phase,
		transactions: d.ledger.transactions, committed: d.ledger.committed, rolledBack: d.ledger.rolledBack,
		waiting: w.rows, rate: d.ledger.lags.rate(now),
		p50: recent.quantile(.5), p99: recent.quantile(.99), allP50: all.quantile(.5), allP99: all.quantile(.99), longest: all.max,
		lost: w.overtaken, ghosts: d.ledger.ghosts, disorder: d.ledger.disordered,
		broker: d.broker, position: d.position, saved: -1,
	}
	if d.busy != "" && v.phase == "" {
		v.phase = d.busy
	}
	if w.rows > 0 {
		v.oldest = now.Sub(w.oldest)
	}
	if d.consumer != nil {
		v.applied, v.duplicates = d.consumer.processed(inbox.Applied), d.consumer.processed(inbox.Duplicate)
	}
	if !d.saved.IsZero() {
		v.saved = now.Sub(d.saved)
	}
	confirmed, lanes := 0.0, 0.0
	for _, r := range d.relays {
		confirmed += r.confirmed + r.seen.confirmed
		lanes += r.seen.lanesUp
		rv := relayView{name: r.name, role: r.role(), term: int(r.seen.term)}
		if r.process != nil {
			rv.pid = r.process.PID()
		}
		v.relays = append(v.relays, rv)
	}
	v.confirmed, v.lanes = int(confirmed), fmt.Sprintf("%d lanes up", int(lanes))
	for _, e := range d.events {
		v.events = append(v.events, fmt.Sprintf("%6.1f  %s", d.since(e.at).Seconds(), e.text))
	}
	return v
}

// result is what the account is made of, beside the ledger.
type result struct {
	unsent     int   // rows that their tables still show as not sent
	audit      audit // of the effects
	duplicates int   // deliveries that the consumer took for what they were
}

// settle reads what the tables hold once all have stopped.
func (d *demo) settle(ctx context.Context) (r result, err error) {
	if r.unsent, err = d.unsent(ctx); err != nil {
		return r, fmt.Errorf("count unsent rows: %w", err)
	}
	effects, err := d.consumer.effects(ctx)
	r.audit, r.duplicates = d.ledger.audit(effects), d.consumer.processed(inbox.Duplicate)
	return r, err
}

// account is the end of a demo whose run is complete.
func (d *demo) account(r result) string {
	l := d.ledger
	var b strings.Builder
	line := func(name string, n int, format string, args ...any) {
		fmt.Fprintf(&b, "  %-14s%8d   %s\n", name, n, fmt.Sprintf(format, args...))
	}
	b.WriteString("account\n")
	line("committed", l.committed, "rows, in %d transactions", l.transactions)
	line("rolled back", l.rolledBack, "rows, %d transactions whole, others to a savepoint", l.rolledBackTransactions)
	line("applied", r.audit.applied, "effects of committed rows in the consumer's table")
	line("lost", len(r.audit.lost), "committed and without an effect%s", list(r.audit.lost))
	line("ghosts", l.ghosts+r.audit.ghosts, "received, or with an effect, and never committed")
	line("applied twice", len(r.audit.twice), "rows with more than one effect%s", list(r.audit.twice))
	line("duplicates", r.duplicates, "received again and recognized; %s, %s, %s", times(d.kills, "kill"), times(d.restarts, "broker restart"), times(d.purges, "purge"))
	line("out of order", l.disordered, "received after a later row of their key")
	line("unsent", r.unsent, "rows that their tables still show as not sent")
	all := &l.lags.all
	fmt.Fprintf(&b, "  %-14s p50 %s, p99 %s, longest %s, from sending COMMIT to the consumer\n", "lag", brief(all.quantile(.5)), brief(all.quantile(.99)), brief(all.max))
	return b.String()
}

func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// list shows the first few of ids.
func list(ids []uint64) string {
	if len(ids) == 0 {
		return ""
	}
	more := ""
	if len(ids) > 10 {
		ids, more = ids[:10], " ..."
	}
	return ": message ids " + strings.Trim(fmt.Sprint(ids), "[]") + more
}

// verdict is an error when the account shows what must never be.
func (d *demo) verdict(r result) error {
	lost, ghosts, twice := len(r.audit.lost), d.ledger.ghosts+r.audit.ghosts, len(r.audit.twice)
	if lost > 0 || ghosts > 0 || twice > 0 || d.ledger.disordered > 0 {
		return fmt.Errorf("%d lost, %d ghosts, %d applied twice, %d out of order", lost, ghosts, twice, d.ledger.disordered)
	}
	return nil
}

// brief is a duration with two or three digits.
func brief(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
