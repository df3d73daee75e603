package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
)

// Audit is one entry of what was done to a stream.
type Audit struct {
	At       string // when, as text in UTC: set by the database
	Term     uint64
	Holder   string
	Action   string
	Operator string          // empty: the relay acted by itself
	Reason   string          //
	Detail   json.RawMessage // what, and how it went; no payload
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

// Audits reads a stream's last entries, newest first, at most limit.
func (s *Store) Audits(ctx context.Context, stream string, limit int) ([]Audit, error) {
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT at, term, holder, action, operator, reason, detail FROM {schema}.audit
		WHERE stream=? ORDER BY id DESC LIMIT ?`), stream, limit)
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
