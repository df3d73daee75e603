package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// purgeBatch is how many records one statement deletes: a short transaction,
// and a short event for replicas.
const purgeBatch = 1000

// Purge deletes this consumer's records that are older than keep, by the
// database's clock, and returns how many. It refuses to keep them for less than
// the replay window: a message that comes again after its record is gone is
// applied twice. Between two batches it pauses as long as the last one took.
func (in *Inbox) Purge(ctx context.Context, keep time.Duration) (deleted int64, err error) {
	if keep < in.ReplayWindow {
		return 0, fmt.Errorf("purge inbox: records must be kept for the replay window of %v at least, not %v", in.ReplayWindow, keep)
	}
	query := fmt.Sprintf(`DELETE FROM %s WHERE consumer=? AND processed_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
		ORDER BY processed_at LIMIT %d`, quoteTable(in.Table), purgeBatch)
	for {
		started := time.Now()
		n, err := in.purgeOnce(ctx, query, in.Consumer, keep.Microseconds())
		if err != nil {
			return deleted, fmt.Errorf("purge inbox: %w", err)
		}
		deleted += n
		in.metrics.purged.Add(float64(n))
		if n < purgeBatch {
			return deleted, nil
		}
		timer := time.NewTimer(time.Since(started))
		select {
		case <-ctx.Done():
			timer.Stop()
			return deleted, fmt.Errorf("purge inbox: %w", ctx.Err())
		case <-timer.C:
		}
	}
}

// purgeOnce deletes one batch. READ COMMITTED: it locks what it deletes, and no gaps.
func (in *Inbox) purgeOnce(ctx context.Context, query string, args ...any) (int64, error) {
	tx, err := in.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	return n, tx.Commit()
}
