package relay

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// repairBatch is how many rows one repairing read covers.
const repairBatch = 500

// repair reads the rows whose image is not whole, each table's in batches, by
// key and under a lock, and returns them by their place in rows. A row that is
// not returned has come to its end: it is gone (counted and audited); of a
// delete table it was sent or withdrawn; or somebody holds it locked and its
// row state shows that it is unsent, so the fallback will find it.
func (p *preparer) repair(ctx context.Context, rows []canal.Row) (map[int]*canal.Row, error) {
	byTable := map[*table][]int{}
	for i := range rows {
		if rows[i].Incomplete {
			if t := p.tables.find(rows[i].Table.TableName); !p.beforeStart(t) {
				byTable[t] = append(byTable[t], i)
			}
		}
	}
	if len(byTable) == 0 {
		return nil, nil
	}
	repaired := map[int]*canal.Row{}
	for t, list := range byTable {
		for len(list) > 0 {
			n := min(len(list), repairBatch)
			if err := p.repairSome(ctx, t, rows, list[:n], repaired); err != nil {
				return nil, err
			}
			list = list[n:]
		}
	}
	return repaired, nil
}

func (p *preparer) repairSome(ctx context.Context, t *table, rows []canal.Row, list []int, repaired map[int]*canal.Row) error {
	refs := make([]string, len(list))
	for i, at := range list {
		m, err := p.mapping(t, rows[at].Table)
		if err != nil {
			return err
		}
		if len(m.rowKey) == 0 && p.passes() {
			t.metrics.gone.Add(float64(len(list)))
			return nil // the resumption is in the audit
		}
		if len(m.rowKey) == 0 {
			return &haltError{reason: "repair", mark: &checkpoint.Mark{File: p.last.File, Offset: p.last.Offset}, err: errors.New("a row of " + t.name.String() +
				" is not whole in the binlog and the table has no primary key to read it by: set binlog_row_image=FULL, add a primary key, then: towpath resume --skip-event")}
		}
		refs[i] = m.ref(&rows[at])
	}
	for {
		var found map[string]*canal.Row
		var unseen map[string]bool
		err := p.retry(ctx, "read rows by key", func() (err error) {
			found, unseen, err = p.current.locked(ctx, t, refs)
			return err
		})
		if err != nil {
			return err
		}
		if t.config.AfterPublish == configs.Keep && len(unseen) > 0 {
			// Only the image tells what to send: wait for whoever holds the row.
			if !sleep(ctx, 100*time.Millisecond) {
				return context.Cause(ctx)
			}
			continue
		}
		return p.sortRepaired(ctx, t, list, refs, found, unseen, repaired)
	}
}

// sortRepaired gives each row its end or its image.
func (p *preparer) sortRepaired(ctx context.Context, t *table, list []int, refs []string, found map[string]*canal.Row, unseen map[string]bool, repaired map[int]*canal.Row) error {
	var gone []string
	for i, at := range list {
		switch row := found[refs[i]]; {
		case row != nil:
			repaired[at] = row
		case unseen[refs[i]]:
			t.metrics.deferred.Inc()
			p.dues.note(t, time.Now().Add(lockedRetry))
		case t.config.AfterPublish == configs.Delete:
			t.metrics.absent.Inc()
		default:
			t.metrics.gone.Inc()
			gone = append(gone, hex.EncodeToString(keyOf(refs[i])))
		}
	}
	if len(gone) == 0 {
		return nil
	}
	p.log.Warn("rows are gone before anything could read them", zap.String("table", t.label), zap.Int("rows", len(gone)))
	detail, err := auditDetail(map[string]any{"table": t.name.String(), "rows": len(gone), "keys": gone})
	if err != nil {
		return err
	}
	return p.persist(ctx, func(ctx context.Context, tx *checkpoint.Tx) error {
		return tx.Audit(ctx, checkpoint.Audit{Action: "gone", Detail: detail})
	})
}

// persist writes by the leader's fence until it succeeds.
func (p *preparer) persist(ctx context.Context, work func(ctx context.Context, tx *checkpoint.Tx) error) error {
	return p.retry(ctx, "write to the state tables", func() error { return p.store.Fenced(ctx, p.fence, work) })
}

// retry does until it succeeds: a database that is away stops the stream, and
// fails nothing (P8).
func (p *preparer) retry(ctx context.Context, what string, do func() error) error {
	for failures := 0; ; {
		err := do()
		var halt *haltError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, checkpoint.ErrFenced), errors.As(err, &halt):
			return err
		}
		if failures++; failures == 1 {
			p.log.Warn("the stream waits for the database, trying on", zap.String("to", what), zap.Error(err))
		}
		if !sleep(ctx, backoff(failures, 50*time.Millisecond, 3*time.Second)) {
			return context.Cause(ctx)
		}
	}
}
