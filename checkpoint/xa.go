package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// PreparedRows are rows of an XA transaction that is prepared and has no
// verdict yet, or a part of them.
type PreparedRows struct {
	XID   []byte // as the binlog has it, at most 255 bytes
	Chunk int    // 0, 1, ... in the order of the rows
	File  string // end of the prepare's group in the binlog
	Place uint64 // its offset
	Rows  []byte // encoded; a chunk stays well below the server's max_allowed_packet
}

// HoldPrepared stores rows of an XA PREPARE, which must happen before or with
// a position past it (promise P3). The same chunk again replaces itself: after a
// crash the stream reads it once more.
func (t *Tx) HoldPrepared(ctx context.Context, p PreparedRows) error {
	_, err := t.Exec(ctx, t.store.sql(`INSERT INTO {schema}.xa (stream, xid, chunk, prepared_at, mark_file, mark_offset, row_data)
		VALUES (?, ?, ?, UTC_TIMESTAMP(6), ?, ?, ?)
		ON DUPLICATE KEY UPDATE mark_file=VALUES(mark_file), mark_offset=VALUES(mark_offset), row_data=VALUES(row_data)`),
		t.fence.Stream, p.XID, p.Chunk, p.File, p.Place, p.Rows)
	if err != nil {
		return fmt.Errorf("hold the rows of a prepared transaction: %w", err)
	}
	return nil
}

// DropPrepared forgets an XA transaction: rolled back, or all its rows settled.
func (t *Tx) DropPrepared(ctx context.Context, xid []byte) error {
	if _, err := t.Exec(ctx, t.store.sql("DELETE FROM {schema}.xa WHERE stream=? AND xid=?"), t.fence.Stream, xid); err != nil {
		return fmt.Errorf("drop the rows of a prepared transaction: %w", err)
	}
	return nil
}

// Prepared lists the XA transactions that are held, each by its first chunk
// without the rows.
func (s *Store) Prepared(ctx context.Context, stream string) ([]PreparedRows, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT xid, mark_file, mark_offset FROM {schema}.xa WHERE stream=? AND chunk=0 ORDER BY prepared_at, xid"), stream)
	if err != nil {
		return nil, fmt.Errorf("list prepared transactions: %w", err)
	}
	defer rows.Close()
	var all []PreparedRows
	for rows.Next() {
		var p PreparedRows
		if err := rows.Scan(&p.XID, &p.File, &p.Place); err != nil {
			return nil, fmt.Errorf("list prepared transactions: %w", err)
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list prepared transactions: %w", err)
	}
	return all, nil
}

// EachPrepared hands out the chunks of one XA transaction in order, one in
// memory at a time (promise P7), and reports how many there were: none for an
// xid that is not known.
func (s *Store) EachPrepared(ctx context.Context, stream string, xid []byte, do func(rows []byte) error) (chunks int, err error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT row_data FROM {schema}.xa WHERE stream=? AND xid=? ORDER BY chunk"), stream, xid)
	if err != nil {
		return 0, fmt.Errorf("read a prepared transaction: %w", err)
	}
	defer rows.Close()
	for ; rows.Next(); chunks++ {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return chunks, fmt.Errorf("read a prepared transaction: %w", err)
		}
		if err := do(data); err != nil {
			return chunks, err
		}
	}
	if err := rows.Err(); err != nil {
		return chunks, fmt.Errorf("read a prepared transaction: %w", err)
	}
	return chunks, nil
}

// PreparedChunk reads one chunk of an XA transaction; false when there is none.
// Unlike EachPrepared it leaves no result open while the caller waits.
func (s *Store) PreparedChunk(ctx context.Context, stream string, xid []byte, chunk int) (rows []byte, found bool, err error) {
	err = s.db.QueryRowContext(ctx, s.sql("SELECT row_data FROM {schema}.xa WHERE stream=? AND xid=? AND chunk=?"), stream, xid, chunk).Scan(&rows)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read a prepared transaction: %w", err)
	}
	return rows, true, nil
}
