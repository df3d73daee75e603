package checkpoint

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Version is the version of the state tables that this program was written
// for. It also works on the next one: a version only ever adds to the one
// before, so N and N+1 of the program run side by side while it is replaced.
const Version = 2

// The files of schema/, one a version, hold the statements that lead there
// from the version before.
//
//go:embed schema/*.sql
var schemaFiles embed.FS

// versionTable is what makes the rest readable; it never changes.
const versionTable = `-- Versions of the state tables that were applied here.
CREATE TABLE IF NOT EXISTS {schema}.version (
  version    INT UNSIGNED NOT NULL,
  applied_at DATETIME(6)  NOT NULL,
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

// DDL returns the statements that make the state tables in a schema, with
// their comments, as a script.
func DDL(schema string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE DATABASE IF NOT EXISTS %s DEFAULT CHARACTER SET utf8mb4;\n\n", quoteName(schema))
	b.WriteString(in(schema, versionTable) + ";\n\n")
	for v := 1; v <= Version; v++ {
		b.WriteString(in(schema, schemaFile(schemaFiles, v)))
		fmt.Fprintf(&b, "\nINSERT IGNORE INTO %s.version (version, applied_at) VALUES (%d, UTC_TIMESTAMP(6));\n", quoteName(schema), v)
	}
	return b.String()
}

// Init creates the state tables in a schema, or brings older ones up to
// [Version], and returns the version that it found and the one it left (0:
// none; a later program's stays). Several may run it at once: a named lock
// lets one work and the others find the work done.
func Init(ctx context.Context, db *sql.DB, schema string) (from, to int, err error) {
	return upgrade(ctx, db, schema, schemaFiles, Version)
}

func upgrade(ctx context.Context, db *sql.DB, schema string, files fs.FS, target int) (from, to int, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("create state tables: %w", err)
	}
	defer discard(conn) // with the session goes the lock
	var locked sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 60)", lockName("init", schema)).Scan(&locked); err != nil {
		return 0, 0, fmt.Errorf("create state tables: wait for another init to end: %w", err)
	}
	if locked.Int64 != 1 {
		return 0, 0, errors.New("create state tables: another init has been at work for a minute: let it end, or end its session")
	}
	if err := createSchema(ctx, conn, schema); err != nil {
		return 0, 0, err
	}
	from, err = readVersion(ctx, conn, schema)
	if err != nil {
		return 0, 0, err
	}
	for v := from + 1; v <= target; v++ {
		if err := apply(ctx, conn, schema, files, v); err != nil {
			return from, v - 1, err
		}
	}
	return from, max(from, target), nil
}

func createSchema(ctx context.Context, conn *sql.Conn, schema string) error {
	var n int // asked first: to create what exists would need a privilege too
	if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name=?", schema).Scan(&n); err != nil {
		return fmt.Errorf("create state schema: %w", err)
	}
	if n == 0 {
		if _, err := conn.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+quoteName(schema)+" DEFAULT CHARACTER SET utf8mb4"); err != nil {
			return fmt.Errorf("create state schema %s: %w", schema, err)
		}
	}
	if _, err := conn.ExecContext(ctx, in(schema, versionTable)); err != nil {
		return fmt.Errorf("create the version table in %s: %w", schema, err)
	}
	return nil
}

// apply brings the tables from v-1 to v. DDL has no transaction: after a crash
// halfway it runs again over what it had done.
func apply(ctx context.Context, conn *sql.Conn, schema string, files fs.FS, v int) error {
	for statement := range strings.SplitSeq(in(schema, schemaFile(files, v)), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil && !hasNumber(err, errDuplicateColumn, errDuplicateIndex) {
			return fmt.Errorf("bring the state tables in %s to version %d: %w", schema, v, err)
		}
	}
	if _, err := conn.ExecContext(ctx, in(schema, "INSERT IGNORE INTO {schema}.version (version, applied_at) VALUES (?, UTC_TIMESTAMP(6))"), v); err != nil {
		return fmt.Errorf("record version %d of the state tables in %s: %w", v, schema, err)
	}
	return nil
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readVersion(ctx context.Context, q queryer, schema string) (int, error) {
	var v int
	err := q.QueryRowContext(ctx, in(schema, "SELECT COALESCE(MAX(version), 0) FROM {schema}.version")).Scan(&v)
	if err != nil {
		return 0, fmt.Errorf("read the version of the state tables in %s: %w", schema, err)
	}
	return v, nil
}

func schemaFile(files fs.FS, v int) string {
	b, err := fs.ReadFile(files, fmt.Sprintf("schema/%d.sql", v))
	if err != nil { // built in, and read by every test
		return ""
	}
	return string(b)
}

// in puts the schema's name into a statement.
func in(schema, statement string) string {
	return strings.ReplaceAll(statement, "{schema}", quoteName(schema))
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// lockName names a server lock of a purpose. It is hashed because the server
// takes at most 64 characters, and does not tell upper from lower case.
func lockName(purpose string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "towpath." + purpose + "." + hex.EncodeToString(sum[:16])
}

// discard ends the session behind conn, and all that it holds, for good.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// Error numbers of the servers; both flavors share them.
const (
	errTableAccessDenied = 1142
	errColumnDenied      = 1143
	errDatabaseDenied    = 1044
	errNoDatabase        = 1049
	errDuplicateColumn   = 1060
	errDuplicateIndex    = 1061
	errNoTable           = 1146
	errLockWait          = 1205
	errDeadlock          = 1213
)

func hasNumber(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range numbers {
		if e.Number == n {
			return true
		}
	}
	return false
}
