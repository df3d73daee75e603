package checkpoint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
)

// ParkedStates says of the given rows of a table which are parked, by their
// encoded key, and in what state each is.
func (s *Store) ParkedStates(ctx context.Context, stream, schema, name string, keys [][]byte) (map[string]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	args := []any{stream, schema, name}
	for _, key := range keys {
		hash := sha256.Sum256(key)
		args = append(args, hash[:])
	}
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT primary_key, state FROM {schema}.parked
		WHERE stream=? AND schema_name=? AND table_name=? AND primary_hash IN (`)+strings.Repeat("?, ", len(keys)-1)+"?)", args...)
	if err != nil {
		return nil, fmt.Errorf("look for parked rows: %w", err)
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		var key []byte
		var state string
		if err := rows.Scan(&key, &state); err != nil {
			return nil, fmt.Errorf("look for parked rows: %w", err)
		}
		found[string(key)] = state
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for parked rows: %w", err)
	}
	return found, nil
}
