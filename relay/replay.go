package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// RequestReplay asks the leader to send rows again. Its args are a [Replay].
const RequestReplay = "replay"

// Replay chooses rows that were sent and are to be sent again, under their
// original ids and with the same bytes (P5). All that is given must hold.
type Replay struct {
	Table string              `json:"table"` // its name in the configuration, or schema.table
	IDs   []string            `json:"ids,omitempty"`
	Keys  [][]byte            `json:"keys,omitempty"` // of the rows that IDs are of, without the table's number: then no row is looked for by its id
	By    string              `json:"by,omitempty"`   // column that Since and Until are of; empty: publish.timestamp
	Since time.Time           `json:"since,omitzero"`
	Until time.Time           `json:"until,omitzero"` // not included
	Where map[string][]string `json:"where,omitempty"`
	Rate  float64             `json:"rate,omitempty"` // rows per second; 0: as fast as the broker takes them
}

// MaxReplayIDs is how many ids one request may have.
const MaxReplayIDs = 10000

// ReplayResult says what became of the chosen rows. Each is counted once.
type ReplayResult struct {
	Rows      uint64 `json:"rows"`              // that were chosen
	Sent      uint64 `json:"sent"`              // confirmed by the broker; in a dry run: would be sent
	Withdrawn uint64 `json:"withdrawn"`         // withdrawn by the application: not sent (P10)
	Unsent    uint64 `json:"unsent"`            // not sent before, by their row state: the stream and the fallback see to them
	Parked    uint64 `json:"parked"`            // they wait among the parked rows
	Refused   uint64 `json:"refused"`           // by the broker, or they cannot be mapped
	Missing   uint64 `json:"missing"`           // ids without a row that the configuration sends
	Why       string `json:"refusal,omitempty"` // the first refusal

	// Where it goes on when a leader is followed by another; empty once it is done.
	Doing string `json:"doing,omitempty"`
	After []byte `json:"after,omitempty"`
}

// Add adds another part of the same replay.
func (r *ReplayResult) Add(o ReplayResult) {
	r.Rows += o.Rows
	r.Sent += o.Sent
	r.Withdrawn += o.Withdrawn
	r.Unsent += o.Unsent
	r.Parked += o.Parked
	r.Refused += o.Refused
	r.Missing += o.Missing
	if r.Why == "" {
		r.Why = o.Why
	}
}

// replayRows is how many rows are on their way at once: the stream's own rows
// have most of the room.
const replayRows = 200

// replayer reads the rows that a replay chooses, and gives them to send.
type replayer struct {
	Replay
	tables  *tables
	current *current
	result  ReplayResult
	send    func(context.Context, *page) error            // returns when the page is settled
	report  func(ctx context.Context, total uint64) error // after each page

	patient bool // an outage of the database is waited for (P8)
	wanted  map[string]bool
	total   uint64
	began   time.Time
	paced   uint64 // rows since began
}

// ReplayDryRun counts what a replay would send, and sends nothing.
func ReplayDryRun(ctx context.Context, c *configs.Config, db *sql.DB, store *checkpoint.Store, what Replay) (ReplayResult, error) {
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	names, err := matchedTables(ctx, c, db)
	if err != nil {
		return ReplayResult{}, err
	}
	for _, n := range names {
		ts.find(n)
	}
	r := &replayer{Replay: what, tables: ts, current: newCurrent(db, canal.Server{Flavor: store.Flavor()}, ts)}
	r.Rate = 0
	r.send = func(ctx context.Context, p *page) error {
		keys := make([][]byte, len(p.entries))
		for i, e := range p.entries {
			keys[i] = keyOf(e.ref)
		}
		parked, err := store.ParkedStates(ctx, c.Name, p.table.name.Schema, p.table.name.Name, keys)
		for i, e := range p.entries {
			state := checkpoint.ParkedState(parked[string(keys[i])])
			switch {
			case state != "" && !state.Ended():
				p.parked++
			case e.fault != nil:
				p.refuse(e.fault)
			default:
				p.sent++
			}
		}
		return err
	}
	r.report = func(context.Context, uint64) error { return nil }
	err = r.run(ctx)
	return r.result, err
}

// replay carries a request out, and goes on where another leader has left it.
func (d *dispatcher) replay(ctx context.Context, request checkpoint.Request) (any, error) {
	l := d.leader
	r := &replayer{tables: l.tables, current: newCurrent(l.db, l.server, l.tables), patient: true}
	if err := json.Unmarshal(request.Args, &r.Replay); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if request.Result != nil {
		if err := json.Unmarshal(request.Result, &Answer{Result: &r.result}); err != nil {
			return nil, fmt.Errorf("read how far the request got: %w", err)
		}
	}
	settled := newQueue[*page](1 << 40) // bounded by one page
	r.send = func(ctx context.Context, p *page) error {
		p.back = settled
		l.loop.found.pages.add([]*page{p})
		select {
		case <-settled.ready:
			settled.take(nil)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	told := time.Now()
	r.report = func(ctx context.Context, total uint64) error {
		if time.Since(told) < time.Second {
			return nil
		}
		told = time.Now()
		return d.progress(ctx, request, Answer{Result: r.result, Progress: r.result.Rows, Total: max(total, r.result.Rows)})
	}
	err := r.run(ctx)
	return r.result, err
}

// run goes through the tables that are meant.
func (r *replayer) run(ctx context.Context) error {
	r.began, r.total, r.wanted = time.Now(), r.result.Rows, map[string]bool{}
	for _, id := range r.IDs {
		r.wanted[id] = true
	}
	var chosen []*table
	for _, t := range r.tables.list() {
		if r.Table == t.config.Name || r.Table == t.label || r.Table == t.name.String() {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no table of the stream is called %s: give its name in the configuration, or schema.table", r.Table)
	}
	slices.SortFunc(chosen, func(a, b *table) int { return strings.Compare(a.name.String(), b.name.String()) })
	for _, t := range chosen {
		if t.name.String() < r.result.Doing {
			continue // an earlier leader has done it
		}
		if r.result.Doing != t.name.String() {
			r.result.Doing, r.result.After = t.name.String(), nil
		}
		if err := r.table(ctx, t); err != nil {
			return fmt.Errorf("replay rows of %s: %w", t.name, err)
		}
	}
	r.result.Doing, r.result.After = "", nil
	if n := uint64(len(r.wanted)); n > r.result.Rows {
		r.result.Missing = n - r.result.Rows
	}
	return nil
}

// table reads one table page by page, in key order.
func (r *replayer) table(ctx context.Context, t *table) error {
	if t.config.AfterPublish == configs.Delete {
		return errors.New("after_publish: delete leaves no row to send again")
	}
	m, _, err := r.current.mapping(ctx, t)
	if err != nil {
		return err
	}
	var w where
	if err := r.choose(&w, t.config, m); err != nil {
		return err
	}
	l := look{what: forAll, after: t.ref(r.result.After), more: strings.Join(w.terms, " AND "), args: w.args, limit: replayRows}
	if r.Rate > 0 {
		l.limit = max(1, min(replayRows, int(r.Rate)))
	}
	if n, err := r.current.count(ctx, t, l); err != nil {
		return err
	} else if r.total += n; n == 0 {
		return nil
	}
	for {
		var refs []unsentRow
		err := r.ask(ctx, func() (err error) { refs, err = r.current.page(ctx, t, l, time.Now()); return err })
		if err != nil {
			return err
		}
		more := len(refs) == l.limit
		for len(refs) > 0 {
			n := batchOf(refs, l.limit, retryBytes)
			if err := r.rows(ctx, t, refs[:n]); err != nil {
				return err
			}
			l.after = refs[n-1].ref
			r.result.After = keyOf(l.after)
			refs = refs[n:]
			if err := r.report(ctx, r.total); err != nil {
				return err
			}
			if err := r.pace(ctx, n); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// ask asks the database until it answers.
func (r *replayer) ask(ctx context.Context, question func() error) error {
	for failures := 0; ; failures++ {
		err := question()
		if err == nil || !r.patient || !outage(err) {
			return err
		}
		if !sleep(ctx, backoff(failures, 100*time.Millisecond, 5*time.Second)) {
			return context.Cause(ctx)
		}
	}
}

// pace keeps to the rate.
func (r *replayer) pace(ctx context.Context, rows int) error {
	if r.Rate <= 0 {
		return nil
	}
	r.paced += uint64(rows)
	due := r.began.Add(time.Duration(float64(r.paced) / r.Rate * float64(time.Second)))
	if !sleep(ctx, time.Until(due)) {
		return context.Cause(ctx)
	}
	return nil
}

// rows sends those of a page again that may be.
func (r *replayer) rows(ctx context.Context, t *table, batch []unsentRow) error {
	refs := make([]string, len(batch))
	for i, b := range batch {
		refs[i] = b.ref
	}
	now := time.Now()
	var rows map[string]*canal.Row
	var m *mapping
	if err := r.ask(ctx, func() (err error) { rows, m, err = r.current.rows(ctx, t, refs, ""); return err }); err != nil {
		return err
	}
	p := &page{table: t}
	var counted ReplayResult
	for _, ref := range refs {
		row := rows[ref]
		if row == nil || !m.passes(row) {
			continue
		}
		e := &entry{table: t, mapping: m, origin: fromReplay, page: p, fresh: now}
		m.entry(row, e)
		if len(r.IDs) > 0 && !r.wanted[e.message.ID] {
			continue // equal by collation alone
		}
		counted.Rows++
		if m.status >= 0 {
			e.seen = string(row.Values[m.status])
			switch {
			case t.isWithdrawn(e.seen): // P10
				counted.Withdrawn++
				continue
			case t.marks() && e.seen != string(t.config.Status.Sent):
				counted.Unsent++
				continue
			}
		}
		p.entries = append(p.entries, e)
	}
	p.found, p.open = len(p.entries), len(p.entries)
	if p.found > 0 {
		if err := r.send(ctx, p); err != nil {
			return err
		}
	}
	counted.Sent, counted.Parked, counted.Refused, counted.Why = uint64(p.sent), uint64(p.parked), uint64(p.refused), p.why
	counted.Withdrawn += uint64(p.found - p.sent - p.parked - p.refused) // on the way
	r.result.Add(counted)
	return nil
}

// refuse counts a row that could not be sent again. It is not parked: it has its end.
func (p *page) refuse(f *fault) {
	p.refused++
	if p.why == "" {
		p.why = string(f.class)
		if f.reason != "" {
			p.why += ": " + f.reason
		}
	}
}

// admitReplay takes in a row that was sent before. It passes no earlier row of
// its key that is on its way; behind parked ones it does not wait, as it is no
// first delivery (P6).
func (l *loop) admitReplay(e *entry) {
	b := l.lot.byRef[e.ref]
	switch {
	case b != nil && !b.over():
		e.page.parked++
		l.settle(e)
	case e.fault != nil:
		e.page.refuse(e.fault)
		l.settle(e)
	default:
		if e.table.strict() && l.lot.blocks(e.gate) {
			e.gate = ""
		}
		l.flow.admit(e)
	}
}

// Replay chooses rows for a [RequestReplay]; archived ones are left out. The
// two lists go together, as Rows gave them.
func (s *Sent) Replay(ids, keys []string) Replay {
	r := Replay{Table: s.table.name.String()}
	for i, key := range keys {
		if strings.HasPrefix(key, s.table.ref([]byte{})) {
			r.IDs, r.Keys = append(r.IDs, ids[i]), append(r.Keys, keyOf(key))
		}
	}
	return r
}
