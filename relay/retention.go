package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

const (
	retentionBatch = 200                   // rows of one transaction
	retentionTime  = 5 * time.Second       // of one turn
	retentionPause = 20 * time.Millisecond // between two
)

// retain removes rows that were sent long ago from each table that asks for it.
// It stays out of the application's way: small transactions that skip locked
// rows, a pause between them, and a step back at the first lock wait or deadlock.
func (h *housekeeper) retain(ctx context.Context) {
	for _, t := range h.tables.polled() {
		if t.config.Retention.SentFor <= 0 {
			continue
		}
		h.current.forget(t)
		err := h.retainTable(ctx, t)
		if busy(err) {
			err = nil // the next turn tries again
		}
		h.note(ctx, "retention of "+t.name.String(), err)
	}
}

func busy(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (server.Number == 1205 || server.Number == 1213)
}

func (h *housekeeper) retainTable(ctx context.Context, t *table) error {
	m, shape, err := h.current.mapping(ctx, t)
	if err != nil {
		return err
	}
	if err := m.pageable(); err != nil {
		return err
	}
	for end := time.Now().Add(retentionTime); time.Now().Before(end); {
		n, err := h.retainBatch(ctx, t, m, shape)
		if err != nil {
			return err
		}
		h.metrics.Retained.WithLabelValues(t.label).Add(float64(n))
		if n < retentionBatch || !sleep(ctx, retentionPause) {
			return nil
		}
	}
	return nil
}

// retainBatch removes up to retentionBatch rows in one fenced transaction: rows
// whose status is sent, whose time of sending is known and long past, and that
// are not parked. The archive gets them in the same transaction.
func (h *housekeeper) retainBatch(ctx context.Context, t *table, m *mapping, shape *canal.Shape) (removed int, err error) {
	i, err := columnIndex(m.shape, t.config.Status.SentAt)
	if err != nil {
		return 0, err
	}
	sentAt := m.shape.Columns[i]
	limit := timeArgument(sentAt, time.Now().Add(-t.config.Retention.SentFor))
	if limit == nil {
		return 0, fmt.Errorf("column %s of %s is of type %s, by which no time can be compared", sentAt.Name, t.name, sentAt.Type)
	}
	var w where
	w.in(m.shape.Columns[m.status], []configs.Value{{Text: string(t.config.Status.Sent)}})
	w.add(canal.Quote(sentAt.Name)+" < ?", limit)
	condition := strings.Join(w.terms, " AND ")
	g := writeGroup{table: t, mapping: m}
	err = h.store.Fenced(ctx, h.fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		removed = 0
		found, err := g.query(ctx, tx.Query, fmt.Sprintf("SELECT %s, '' FROM %s WHERE %s LIMIT %d FOR UPDATE SKIP LOCKED",
			g.keyList(), t.name.Quote(), condition, retentionBatch), nil, w.args)
		if err != nil {
			return err
		}
		var rows []write
		var keys [][]byte
		for ref := range found {
			keys = append(keys, keyOf(ref))
		}
		parked, err := h.store.ParkedStates(ctx, h.stream, t.name.Schema, t.name.Name, keys)
		if err != nil {
			return err
		}
		for ref := range found {
			if state := parked[ref[4:]]; state != "waiting" && state != "failed" {
				rows = append(rows, write{ref: ref})
			}
		}
		if len(rows) == 0 {
			return nil
		}
		// By key alone: they are locked as they were found.
		if a := t.config.Retention.ArchiveTo; a.Table != "" {
			columns := storedColumns(shape)
			insert := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s", canal.TableName{Schema: a.Schema, Name: a.Table}.Quote(), columns, columns, t.name.Quote(), g.where(len(rows)))
			if _, err := tx.Exec(ctx, insert, g.keyArgs(rows)...); err != nil {
				return fmt.Errorf("archive rows of %s: %w", t.name, err)
			}
		}
		// One by one: of a small table the server would rather read all rows than
		// many by key, and wait for those that the application holds.
		for i := range rows {
			if _, err := tx.Exec(ctx, "DELETE FROM "+t.name.Quote()+" WHERE "+g.where(1), g.keyArgs(rows[i:i+1])...); err != nil {
				return fmt.Errorf("delete a sent row of %s: %w", t.name, err)
			}
		}
		removed = len(rows)
		return nil
	})
	return removed, err
}

// storedColumns lists the columns that a copy is made of: those that the server
// computes it computes again.
func storedColumns(shape *canal.Shape) string {
	var names []string
	for _, c := range shape.Columns {
		if !c.Generated {
			names = append(names, canal.Quote(c.Name))
		}
	}
	return strings.Join(names, ", ")
}
