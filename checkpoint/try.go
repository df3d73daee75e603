package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Missing names the privileges of g that the account behind db lacks on one
// table, as a GRANT statement names them. Each is tried by having the server
// explain a statement that would touch no row: it then checks the privilege as
// it does for the statement itself, roles included, and runs nothing.
func (g OutboxGrant) Missing(ctx context.Context, db *sql.DB) ([]string, error) {
	return missing(ctx, db, quoteName(g.Schema)+"."+quoteName(g.Name), g.privileges(), g.Update)
}

// MissingState names the tables of the state that lack privileges, and those.
func MissingState(ctx context.Context, db *sql.DB, schema string) (map[string][]string, error) {
	found := map[string][]string{}
	for _, t := range stateTables {
		lacks, err := missing(ctx, db, quoteName(schema)+"."+t.name, strings.Split(t.privileges, ", "), nil)
		if err != nil {
			return nil, err
		}
		if len(lacks) > 0 {
			found[t.name] = lacks
		}
	}
	return found, nil
}

func missing(ctx context.Context, db *sql.DB, table string, privileges, columns []string) (lacks []string, err error) {
	if len(columns) == 0 {
		if columns, err = someColumn(ctx, db, table); err != nil || columns == nil {
			return privileges, err
		}
	}
	for _, p := range privileges {
		var statement string
		switch word, _, _ := strings.Cut(p, " "); word {
		case "SELECT":
			statement = "SELECT 1 FROM " + table + " WHERE FALSE"
		case "INSERT":
			statement = "EXPLAIN INSERT INTO " + table + " () VALUES ()"
		case "UPDATE":
			var set []string
			for _, c := range columns {
				set = append(set, quoteName(c)+" = NULL")
			}
			statement = "EXPLAIN UPDATE " + table + " SET " + strings.Join(set, ", ") + " WHERE FALSE"
		case "DELETE":
			statement = "EXPLAIN DELETE FROM " + table + " WHERE FALSE"
		}
		rows, err := db.QueryContext(ctx, statement)
		if err == nil {
			err = rows.Close()
		}
		var answer *mysql.MySQLError
		switch {
		case hasNumber(err, errTableAccessDenied, errColumnDenied, errDatabaseDenied):
			lacks = append(lacks, p)
		case errors.As(err, &answer): // of the statement itself: the privilege was found before
		case err != nil:
			return nil, fmt.Errorf("try the privilege %s on %s: %w", p, table, err)
		}
	}
	return lacks, nil
}

// someColumn is a column of the table to try an update on, nil when the account
// sees none.
func someColumn(ctx context.Context, db *sql.DB, table string) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table+" WHERE FALSE")
	if hasNumber(err, errTableAccessDenied, errDatabaseDenied) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", table, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	return names[len(names)-1:], rows.Err()
}
