package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// RequestDone asks the leader to set the application's own status for done on
// rows that were sent. Its args are a [Done].
const RequestDone = "done"

// Done chooses rows that were sent and processed.
type Done struct {
	Table  string   `json:"table"`  // schema.table
	Status string   `json:"status"` // the application's value
	Keys   [][]byte `json:"keys"`   // of the rows, without the table's number; at most MaxDoneKeys
}

// MaxDoneKeys is how many rows one request may have.
const MaxDoneKeys = 5000

// DoneResult says what became of the rows. Each is counted once.
type DoneResult struct {
	Rows    uint64 `json:"rows"`    // that were asked for
	Marked  uint64 `json:"marked"`  // have the status now
	Changed uint64 `json:"changed"` // the application changed or removed them first
	Locked  uint64 `json:"locked"`  // the application holds them locked: left for another time
}

// donePage is how many rows one transaction marks.
const donePage = 500

// markDone carries a request out, page by page, and goes on where another
// leader has left it. Only the leader writes row state (P4).
func (d *dispatcher) markDone(ctx context.Context, request checkpoint.Request) (any, error) {
	var what Done
	var result DoneResult
	if err := json.Unmarshal(request.Args, &what); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if request.Result != nil {
		if err := json.Unmarshal(request.Result, &Answer{Result: &result}); err != nil {
			return nil, fmt.Errorf("read how far the request got: %w", err)
		}
	}
	schema, name, _ := strings.Cut(what.Table, ".")
	l := d.leader
	t := l.tables.find(canal.TableName{Schema: schema, Name: name})
	if t == nil {
		return nil, fmt.Errorf("the configuration has no table %s", what.Table)
	}
	if err := t.checkDone(what.Status); err != nil {
		return nil, err
	}
	m, _, err := newCurrent(l.db, l.server, l.tables).mapping(ctx, t)
	if err != nil {
		return result, err
	}
	total := uint64(len(what.Keys))
	for keys := range slices.Chunk(what.Keys[min(result.Rows, total):], donePage) {
		if result, err = d.donePage(ctx, request, t, m, what.Status, keys, Answer{Result: result, Total: total}); err != nil {
			return result, err
		}
	}
	return result, nil
}

// donePage marks one page of rows, and notes in the same transaction how far
// the request got.
func (d *dispatcher) donePage(ctx context.Context, request checkpoint.Request, t *table, m *mapping, done string, keys [][]byte, so Answer) (DoneResult, error) {
	before := so.Result.(DoneResult)
	g := writeGroup{table: t, mapping: m, seen: string(t.config.Status.Sent), confirm: true}
	for _, key := range keys {
		g.writes = append(g.writes, write{table: t, mapping: m, ref: t.ref(key), seen: g.seen})
	}
	after := before
	err := d.write(ctx, func(ctx context.Context, tx *checkpoint.Tx) error {
		after = before
		r, mine, changed, err := g.lock(ctx, tx)
		if err != nil {
			return err
		}
		if len(mine) > 0 {
			// Exact columns, and those rows alone that are still as sent (P10).
			args := append(append([]any{done}, g.keyArgs(mine)...), g.seenArgs()...)
			if _, err := tx.Exec(ctx, g.doneStatement(len(mine)), args...); err != nil {
				return g.judge(err)
			}
		}
		after.Rows += uint64(len(keys))
		after.Marked += uint64(len(mine))
		after.Locked += uint64(len(r.locked))
		for _, w := range changed {
			if w.there && w.now == done { // by an attempt whose commit was not known
				after.Marked++
			} else {
				after.Changed++
			}
		}
		so.Result, so.Progress = after, after.Rows
		answer, err := json.Marshal(so)
		if err != nil {
			return fmt.Errorf("record request %d: %w", request.ID, err)
		}
		return tx.RequestProgress(ctx, request.ID, answer)
	})
	if isLockWait(err) { // a gap of an index is held: the rows are left as they are (P9)
		after = before
		after.Rows += uint64(len(keys))
		after.Locked += uint64(len(keys))
		return after, nil
	}
	return after, err
}

func (g writeGroup) doneStatement(n int) string {
	return fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s%s", g.table.name.Quote(), canal.Quote(g.table.config.Status.Column), g.where(n), g.andSeen())
}

// checkDone refuses a value that the relay gives a meaning of its own.
func (t *table) checkDone(done string) error {
	st := t.config.Status
	value := configs.StatusValue(done)
	switch {
	case t.config.AfterPublish != configs.Mark:
		return fmt.Errorf("table %s has no status to mark as done", t.name)
	case value == "" || value == st.Pending || value == st.Sent || value == st.Failed || value == st.Processing || slices.Contains(st.Withdrawn, value):
		return fmt.Errorf("%q is no value for done: the configuration of %s gives it another meaning", done, t.name)
	}
	return nil
}
