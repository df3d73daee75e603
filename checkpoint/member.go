package checkpoint

import (
	"context"
	"fmt"
	"time"
)

// Member is a process that runs a stream: its leader, or a standby.
type Member struct {
	Holder  string
	Version string // of the program
	Config  string // hash of its configuration
	HTTP    string // host:port of its HTTP side, as it knows it
	Started string // by the server's clock: "2006-01-02 15:04:05.000000"
	Seen    time.Duration
}

// forgetMembers is after how many days without a sign a member's row is
// removed by another one: it was killed.
const forgetMembers = 1

// Appear records that a process runs the stream now. It needs no lease.
func (s *Store) Appear(ctx context.Context, stream string, m Member) error {
	_, err := s.db.ExecContext(ctx, s.sql(`INSERT INTO {schema}.member (stream, holder, version, config_hash, http_address, started_at, seen_at)
		VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE seen_at=UTC_TIMESTAMP(6)`),
		stream, m.Holder, cut(m.Version, 64), cut(m.Config, 64), cut(m.HTTP, 255))
	if err != nil {
		return fmt.Errorf("record that this process runs the stream: %w", err)
	}
	return nil
}

// Disappear removes a process that stops, and those that were not seen for a day.
func (s *Store) Disappear(ctx context.Context, stream, holder string) error {
	_, err := s.db.ExecContext(ctx, s.sql("DELETE FROM {schema}.member WHERE stream=? AND (holder=? OR seen_at < UTC_TIMESTAMP(6) - INTERVAL ? DAY)"),
		stream, holder, forgetMembers)
	if err != nil {
		return fmt.Errorf("record that this process has stopped: %w", err)
	}
	return nil
}

// Members lists the processes that run a stream, the oldest first. Seen is how
// long ago each gave a sign, by the server's clock; one that was killed stays
// in the list for a day.
func (s *Store) Members(ctx context.Context, stream string) ([]Member, error) {
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT holder, version, config_hash, http_address, started_at,
		TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6)) FROM {schema}.member WHERE stream=? ORDER BY started_at, holder`), stream)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	defer rows.Close()
	var all []Member
	for rows.Next() {
		var m Member
		var seen int64
		if err := rows.Scan(&m.Holder, &m.Version, &m.Config, &m.HTTP, &m.Started, &seen); err != nil {
			return nil, fmt.Errorf("list members: %w", err)
		}
		m.Seen = time.Duration(seen) * time.Microsecond
		all = append(all, m)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return all, nil
}
