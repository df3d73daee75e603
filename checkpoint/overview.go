package checkpoint

import (
	"context"
	"fmt"
	"time"
)

// ParkedCount is how many parked rows of a table are alike.
type ParkedCount struct {
	Table  string        `json:"table"` // label
	Class  string        `json:"class"` // of the last refusal
	State  ParkedState   `json:"state"`
	Rows   uint64        `json:"rows"`
	Oldest time.Duration `json:"-"` // since the first of them was refused first
}

// ParkedCounts counts the rows that wait or have failed.
func (s *Store) ParkedCounts(ctx context.Context, stream string) ([]ParkedCount, error) {
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT label, class, state, COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(first_failed_at), UTC_TIMESTAMP(6))
		FROM {schema}.parked WHERE stream=? AND state IN ('waiting', 'failed') GROUP BY label, class, state ORDER BY label, class, state`), stream)
	if err != nil {
		return nil, fmt.Errorf("count parked rows: %w", err)
	}
	defer rows.Close()
	var all []ParkedCount
	for rows.Next() {
		var c ParkedCount
		if err := rows.Scan(&c.Table, &c.Class, &c.State, &c.Rows, (*microseconds)(&c.Oldest)); err != nil {
			return nil, fmt.Errorf("count parked rows: %w", err)
		}
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count parked rows: %w", err)
	}
	return all, nil
}

// ParkedKey is an ordering key whose rows wait.
type ParkedKey struct {
	Table string        `json:"table"` // label
	Key   string        `json:"key"`
	Rows  uint64        `json:"rows"`
	Since time.Duration `json:"-"` // since its first row was refused first
}

// ParkedKeys lists the ordering keys that have been waited for longest, at most limit.
func (s *Store) ParkedKeys(ctx context.Context, stream string, limit int) ([]ParkedKey, error) {
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT label, ordering_key, COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(first_failed_at), UTC_TIMESTAMP(6))
		FROM {schema}.parked WHERE stream=? AND state IN ('waiting', 'failed') AND ordering_key IS NOT NULL
		GROUP BY label, ordering_key ORDER BY MIN(first_failed_at) LIMIT ?`), stream, limit)
	if err != nil {
		return nil, fmt.Errorf("list the keys of parked rows: %w", err)
	}
	defer rows.Close()
	var all []ParkedKey
	for rows.Next() {
		var k ParkedKey
		if err := rows.Scan(&k.Table, &k.Key, &k.Rows, (*microseconds)(&k.Since)); err != nil {
			return nil, fmt.Errorf("list the keys of parked rows: %w", err)
		}
		all = append(all, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the keys of parked rows: %w", err)
	}
	return all, nil
}
