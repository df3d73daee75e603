package checkpoint

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Store is the state tables in one schema of the source server. It is a set of
// statements without state of its own, safe for use by several goroutines.
type Store struct {
	db     *sql.DB
	schema string
	flavor Flavor
}

// Open returns the store in a schema after a look at its version.
func Open(ctx context.Context, db *sql.DB, schema string) (*Store, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open state tables: %w", err)
	}
	defer conn.Close()
	flavor, _, err := Identify(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("open state tables: %w", err)
	}
	version, err := readVersion(ctx, conn, schema)
	switch {
	case hasNumber(err, errNoDatabase, errNoTable):
		return nil, fmt.Errorf("no state tables in schema %s: run towpath init", schema)
	case hasNumber(err, errTableAccessDenied, errDatabaseDenied):
		return nil, fmt.Errorf("no state tables in schema %s, or no right to read them: run towpath init, then what towpath grants prints: %w", schema, err)
	case err != nil:
		return nil, err
	case version < Version:
		return nil, fmt.Errorf("the state tables in schema %s are of version %d, this program needs %d: run towpath init", schema, version, Version)
	case version > Version+1:
		return nil, fmt.Errorf("the state tables in schema %s are of version %d, this program knows %d: use a later program", schema, version, Version)
	}
	return &Store{db: db, schema: schema, flavor: flavor}, nil
}

// Flavor is the server's.
func (s *Store) Flavor() Flavor { return s.flavor }

// sql puts the schema's name into a statement.
func (s *Store) sql(statement string) string { return in(s.schema, statement) }

// forShare ends a locking read.
func (s *Store) forShare() string {
	if s.flavor == MariaDB {
		return " LOCK IN SHARE MODE"
	}
	return " FOR SHARE"
}

// Checkpoint is what a leader starts from.
type Checkpoint struct {
	Position Position       // zero: none was saved yet
	Tables   []CoveredTable // that the position covers, in the order of their names
}

// CoveredTable is one table that the position covers, and what goes with it.
type CoveredTable struct {
	Schema, Name string
	Shape        json.RawMessage // the table's columns at the position; nil when not known
	Sweep        json.RawMessage // a sweep under way and its cursor; nil for none
}

// Checkpoint reads what was saved last, without a lock: for those who look. A
// leader starts from the one that its takeover returned.
func (s *Store) Checkpoint(ctx context.Context, stream string) (Checkpoint, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	defer conn.Close()
	return s.readCheckpoint(ctx, conn, stream)
}

// SavedPosition reads the position that was saved last, zero for none, and how
// long ago that was by the server's clock.
func (s *Store) SavedPosition(ctx context.Context, stream string) (p Position, age time.Duration, err error) {
	var position []byte
	var micros int64
	err = s.db.QueryRowContext(ctx, s.sql(`SELECT position, TIMESTAMPDIFF(MICROSECOND, saved_at, UTC_TIMESTAMP(6))
		FROM {schema}.checkpoint WHERE stream=?`), stream).Scan(&position, &micros)
	if errors.Is(err, sql.ErrNoRows) {
		return p, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(position, &p)
	}
	if err != nil {
		return p, 0, fmt.Errorf("read the saved position of stream %s: %w", stream, err)
	}
	return p, time.Duration(micros) * time.Microsecond, nil
}

func (s *Store) readCheckpoint(ctx context.Context, conn *sql.Conn, stream string) (Checkpoint, error) {
	var c Checkpoint
	var position []byte
	err := conn.QueryRowContext(ctx, s.sql("SELECT position FROM {schema}.checkpoint WHERE stream=?"), stream).Scan(&position)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("read checkpoint: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(position, &c.Position); err != nil {
			return c, fmt.Errorf("read checkpoint of stream %s: %w", stream, err)
		}
	}
	rows, err := conn.QueryContext(ctx, s.sql(`SELECT schema_name, table_name, shape, sweep FROM {schema}.checkpoint_table
		WHERE stream=? ORDER BY schema_name, table_name`), stream)
	if err != nil {
		return c, fmt.Errorf("read the checkpoint's tables: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t CoveredTable
		if err := rows.Scan(&t.Schema, &t.Name, (*[]byte)(&t.Shape), (*[]byte)(&t.Sweep)); err != nil {
			return c, fmt.Errorf("read the checkpoint's tables: %w", err)
		}
		c.Tables = append(c.Tables, t)
	}
	if err := rows.Err(); err != nil {
		return c, fmt.Errorf("read the checkpoint's tables: %w", err)
	}
	return c, nil
}

// SavePosition makes p the stream's position. It is the caller's to have
// settled everything before it (promise P3).
func (t *Tx) SavePosition(ctx context.Context, p Position) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("save position: %w", err)
	}
	// An UPDATE first: an upsert would take a gap lock when there is no row.
	r, err := t.Exec(ctx, t.store.sql("UPDATE {schema}.checkpoint SET term=?, saved_at=UTC_TIMESTAMP(6), position=? WHERE stream=?"),
		t.fence.Term, string(text), t.fence.Stream)
	if err != nil {
		return fmt.Errorf("save position: %w", err)
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return err
	}
	_, err = t.Exec(ctx, t.store.sql("INSERT INTO {schema}.checkpoint (stream, term, saved_at, position) VALUES (?, ?, UTC_TIMESTAMP(6), ?)"),
		t.fence.Stream, t.fence.Term, string(text))
	if err != nil {
		return fmt.Errorf("save position: %w", err)
	}
	return nil
}

// CoverTable records that the position covers a table, and the table's shape
// there, nil when it is not known.
func (t *Tx) CoverTable(ctx context.Context, schema, name string, shape json.RawMessage) error {
	return t.saveTable(ctx, "shape", schema, name, shape)
}

// SaveSweep records a sweep of a table and its cursor, nil for none. The shape
// is left as it is.
func (t *Tx) SaveSweep(ctx context.Context, schema, name string, sweep json.RawMessage) error {
	return t.saveTable(ctx, "sweep", schema, name, sweep)
}

func (t *Tx) saveTable(ctx context.Context, column, schema, name string, value json.RawMessage) error {
	_, err := t.Exec(ctx, t.store.sql(fmt.Sprintf(`INSERT INTO {schema}.checkpoint_table (stream, schema_name, table_name, added_at, %[1]s)
		VALUES (?, ?, ?, UTC_TIMESTAMP(6), ?) ON DUPLICATE KEY UPDATE %[1]s=VALUES(%[1]s)`, column)),
		t.fence.Stream, schema, name, jsonOrNull(value))
	if err != nil {
		return fmt.Errorf("save table %s.%s of the checkpoint: %w", schema, name, err)
	}
	return nil
}

// UncoverTable takes a table out of the checkpoint: configured again, it
// starts as a new one.
func (t *Tx) UncoverTable(ctx context.Context, schema, name string) error {
	_, err := t.Exec(ctx, t.store.sql("DELETE FROM {schema}.checkpoint_table WHERE stream=? AND schema_name=? AND table_name=?"),
		t.fence.Stream, schema, name)
	if err != nil {
		return fmt.Errorf("take table %s.%s out of the checkpoint: %w", schema, name, err)
	}
	return nil
}

// jsonOrNull keeps the driver from writing JSON with a binary introducer.
func jsonOrNull(m json.RawMessage) any {
	if m == nil {
		return nil
	}
	return string(m)
}
