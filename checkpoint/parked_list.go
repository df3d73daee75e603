package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ParkedFilter chooses parked rows. What is empty does not choose.
type ParkedFilter struct {
	Tables    []string      `json:"tables,omitempty"`     // label, or schema.name
	Keys      []string      `json:"keys,omitempty"`       // ordering keys
	IDs       []string      `json:"ids,omitempty"`        // message ids
	Classes   []string      `json:"classes,omitempty"`    // of the last refusal
	States    []ParkedState `json:"states,omitempty"`     // empty: those that are not ended
	OlderThan time.Duration `json:"older_than,omitempty"` // since they were parked
}

// where is the filter as a condition.
func (f ParkedFilter) where(stream string) (string, []any) {
	conditions, args := []string{"stream=?"}, []any{stream}
	in := func(column string, values []string) string {
		for _, v := range values {
			args = append(args, v)
		}
		return column + " IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ") + ")"
	}
	if len(f.Tables) > 0 {
		conditions = append(conditions, "("+in("label", f.Tables)+" OR "+in("CONCAT(schema_name, '.', table_name)", f.Tables)+")")
	}
	if len(f.Keys) > 0 {
		conditions = append(conditions, in("ordering_key", f.Keys))
	}
	if len(f.IDs) > 0 {
		conditions = append(conditions, in("message_id", f.IDs))
	}
	if len(f.Classes) > 0 {
		conditions = append(conditions, in("class", f.Classes))
	}
	states := []string{string(ParkedWaiting), string(ParkedFailed)}
	if len(f.States) > 0 {
		states = states[:0]
		for _, s := range f.States {
			states = append(states, string(s))
		}
	}
	conditions = append(conditions, in("state", states))
	if f.OlderThan > 0 {
		conditions = append(conditions, "first_failed_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND")
		args = append(args, f.OlderThan.Microseconds())
	}
	return strings.Join(conditions, " AND "), args
}

// ParkedRow is a parked row as people see it. Times are UTC.
type ParkedRow struct {
	Parked
	FirstFailed string
	LastFailed  string
	Next        string // "" when it is not tried by itself
}

// ParkedRows reads the rows that a filter chooses, in the order of parking,
// without their images: those behind a sequence, at most limit.
func (s *Store) ParkedRows(ctx context.Context, stream string, f ParkedFilter, after uint64, limit int) ([]ParkedRow, error) {
	where, args := f.where(stream)
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT "+parkedColumns+`, first_failed_at, last_failed_at, COALESCE(next_attempt_at, '') FROM {schema}.parked
		WHERE `+where+" AND sequence>? ORDER BY sequence LIMIT ?"), append(args, after, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read parked rows: %w", err)
	}
	defer rows.Close()
	var page []ParkedRow
	for rows.Next() {
		var p ParkedRow
		if err := rows.Scan(p.scan(&p.FirstFailed, &p.LastFailed, &p.Next)...); err != nil {
			return nil, fmt.Errorf("read parked rows: %w", err)
		}
		page = append(page, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read parked rows: %w", err)
	}
	return page, nil
}

// CountParked says how many rows a filter chooses, and the last one's sequence.
func (s *Store) CountParked(ctx context.Context, stream string, f ParkedFilter) (rows, last uint64, err error) {
	where, args := f.where(stream)
	err = s.db.QueryRowContext(ctx, s.sql("SELECT COUNT(*), COALESCE(MAX(sequence), 0) FROM {schema}.parked WHERE "+where), args...).Scan(&rows, &last)
	if err != nil {
		return 0, 0, fmt.Errorf("count parked rows: %w", err)
	}
	return rows, last, nil
}

// RequestsWait says whether there are requests that a leader's TakeRequests would return.
func (s *Store) RequestsWait(ctx context.Context, f Fence) (bool, error) {
	var one int
	err := s.db.QueryRowContext(ctx, s.sql(`SELECT 1 FROM {schema}.request WHERE stream=? AND (state=? OR state=? AND term<>?) LIMIT 1`),
		f.Stream, string(RequestNew), string(RequestTaken), f.Term).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for requests: %w", err)
	}
	return true, nil
}
