package checkpoint

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
)

// Parked is a refused row as it is kept until it is sent or given up.
type Parked struct {
	Label        string // of the table's configuration
	Schema, Name string
	Key          []byte // encoded row key, unique in the table
	Ordering     []byte // ordering key, nil: unordered
	Sequence     uint64 // order among the parked rows of one ordering key
	MessageID    string
	Destination  string // exchange and routing key
	Class        string
	Code         int // AMQP reply code, 0 without one
	Reason       string
	Failed       bool   // not tried again by itself
	Image        []byte // encoded row of a keep table, nil where the row is read by its key
}

// Park makes a row durable as parked; one that is parked already keeps its
// place, its first failure and its attempts.
func (t *Tx) Park(ctx context.Context, p Parked) error {
	hash := sha256.Sum256(p.Key)
	state := "waiting"
	if p.Failed {
		state = "failed"
	}
	_, err := t.Exec(ctx, t.store.sql(`INSERT INTO {schema}.parked (stream, label, schema_name, table_name, primary_key, primary_hash,
		ordering_key, sequence, message_id, destination, class, code, reason, state, first_failed_at, last_failed_at, image)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ?)
		ON DUPLICATE KEY UPDATE class=VALUES(class), code=VALUES(code), reason=VALUES(reason), last_failed_at=VALUES(last_failed_at)`),
		t.fence.Stream, p.Label, p.Schema, p.Name, p.Key, hash[:], p.Ordering, p.Sequence,
		sql.NullString{String: p.MessageID, Valid: p.MessageID != ""}, cut(p.Destination, 520), p.Class, p.Code, cut(p.Reason, 1024), state, p.Image)
	if err != nil {
		return fmt.Errorf("park a row of %s.%s: %w", p.Schema, p.Name, err)
	}
	return nil
}

// cut shortens a text to what its column takes, in characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
