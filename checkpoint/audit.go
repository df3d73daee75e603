package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Audit is one entry of what was done to a stream.
type Audit struct {
	At       string          `json:"at"` // when, as text in UTC: set by the database
	Term     uint64          `json:"term"`
	Holder   string          `json:"holder"`
	Action   string          `json:"action"`
	Operator string          `json:"operator,omitempty"` // empty: the relay acted by itself
	Reason   string          `json:"reason,omitempty"`
	Detail   json.RawMessage `json:"detail"` // what, and how it went; no payload
}

// Audit adds an entry, in the transaction of what it tells of. Who did it is
// this leadership.
func (t *Tx) Audit(ctx context.Context, a Audit) error {
	detail := "{}"
	if a.Detail != nil {
		detail = string(a.Detail)
	}
	_, err := t.Exec(ctx, t.store.sql(`INSERT INTO {schema}.audit (stream, at, term, holder, action, operator, reason, detail)
		VALUES (?, UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?)`), t.fence.Stream, t.fence.Term, t.fence.Holder, a.Action, a.Operator, cut(a.Reason, 1024), detail)
	if err != nil {
		return fmt.Errorf("audit %s: %w", a.Action, err)
	}
	return nil
}

// AuditFilter chooses audit entries. What is empty does not choose.
type AuditFilter struct {
	Action, Operator string
	Since, Until     time.Time // Since included, Until not
}

// Audits reads a stream's last entries that a filter chooses, newest first, at most limit.
func (s *Store) Audits(ctx context.Context, stream string, f AuditFilter, limit int) ([]Audit, error) {
	where, args := "stream=?", []any{stream}
	add := func(term string, given bool, arg any) {
		if given {
			where, args = where+" AND "+term, append(args, arg)
		}
	}
	const layout = "2006-01-02 15:04:05.000000"
	add("action=?", f.Action != "", f.Action)
	add("operator=?", f.Operator != "", f.Operator)
	add("at>=?", !f.Since.IsZero(), f.Since.UTC().Format(layout))
	add("at<?", !f.Until.IsZero(), f.Until.UTC().Format(layout))
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT at, term, holder, action, operator, reason, detail FROM {schema}.audit WHERE "+
		where+" ORDER BY id DESC LIMIT ?"), append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	defer rows.Close()
	var all []Audit
	for rows.Next() {
		var a Audit
		if err := rows.Scan(&a.At, &a.Term, &a.Holder, &a.Action, &a.Operator, &a.Reason, (*[]byte)(&a.Detail)); err != nil {
			return nil, fmt.Errorf("read audit: %w", err)
		}
		all = append(all, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	return all, nil
}
