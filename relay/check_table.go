package relay

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// checkShapes finds the configured tables and what of them keeps a relay from
// starting, and returns the shapes of those that it can relay.
func checkShapes(ctx context.Context, fs *findings, c *configs.Config, db *sql.DB, s *canal.Server) ([]*canal.Shape, error) {
	names, err := matchedTables(ctx, c, db)
	if err != nil {
		return nil, err
	}
	var shapes []*canal.Shape
	for i := range c.Tables {
		t := &c.Tables[i]
		checkPatterns(fs, t, names)
		for _, n := range names {
			if !t.Matches(n.Schema, n.Name) {
				continue
			}
			shape, err := canal.LoadShape(ctx, db, n)
			if err != nil {
				return nil, err
			}
			if checkShape(fs, t, shape, s.RowMetadata == "FULL") {
				shapes = append(shapes, shape)
			}
		}
	}
	return shapes, nil
}

// matchedTables lists the tables that exist and that the configuration matches.
func matchedTables(ctx context.Context, c *configs.Config, db *sql.DB) ([]canal.TableName, error) {
	rows, err := db.QueryContext(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
		WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
		ORDER BY TABLE_SCHEMA, TABLE_NAME`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer rows.Close()
	var names []canal.TableName
	for rows.Next() {
		var n canal.TableName
		if err := rows.Scan(&n.Schema, &n.Name); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		if slices.ContainsFunc(c.Tables, func(t configs.Table) bool { return t.Matches(n.Schema, n.Name) }) {
			names = append(names, n)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return names, nil
}

func checkPatterns(fs *findings, t *configs.Table, names []canal.TableName) {
	for _, p := range t.Tables {
		switch {
		case slices.ContainsFunc(names, func(n canal.TableName) bool { return p.Matches(n.Schema, n.Name) }):
		case p.Literal():
			fs.fail(p.String(), "create it, correct the name, or grant SELECT on it", "the table does not exist, or this account may not see it")
		default:
			fs.warn(p.String(), "", "no table matches yet")
		}
	}
}

// checkShape reports whether rows of the table can be mapped.
func checkShape(fs *findings, c *configs.Table, shape *canal.Shape, fullMetadata bool) bool {
	name, before := shape.Table.String(), len(*fs)
	var lacks columnNames
	for _, column := range append(c.Reads(), c.Writes()...) {
		if _, has := shape.Column(column); !has {
			lacks.add(column)
		}
	}
	for _, column := range lacks {
		fs.fail(name, "correct the name in the configuration, or add the column; there are "+columnList(shape), "it has no column %s", column)
	}
	unsupported := shape.UnsupportedColumns(interest(c), fullMetadata)
	for _, column := range slices.Sorted(maps.Keys(unsupported)) {
		fs.fail(name, "", "column %s cannot be read from the binary log: %s", column, unsupported[column])
	}
	if len(*fs) == before {
		if _, err := compileMapping(c, shape.Describe(), 0); err != nil {
			fs.fail(name, "", "%v", err)
		}
	}
	if !strings.EqualFold(shape.Engine, "InnoDB") {
		fs.warn(name, "ALTER TABLE "+shape.Table.Quote()+" ENGINE=InnoDB", "its engine is %s: a rollback leaves its rows, and they are sent", shape.Engine)
	}
	for _, f := range (*fs)[before:] {
		if f.Level == Fail {
			return false
		}
	}
	return true
}

type columnNames []string

func (c *columnNames) add(name string) {
	if !containsFold(*c, name) {
		*c = append(*c, name)
	}
}

func columnList(shape *canal.Shape) string {
	names := make([]string, len(shape.Columns))
	for i, c := range shape.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// checkTable looks at what a relay runs without, at a price.
func checkTable(ctx context.Context, fs *findings, c *configs.Table, shape *canal.Shape, db *sql.DB) {
	name, before := shape.Table.String(), len(*fs)
	m, err := compileMapping(c, shape.Describe(), 0)
	if err != nil {
		fs.fail(name, "", "%v", err)
		return
	}
	if err := checkKeys(ctx, fs, c, shape, m, db); err != nil {
		fs.fail(name, "", "%v", err)
		return
	}
	checkStatus(fs, c, shape)
	for _, column := range c.Reads() {
		col, _ := shape.Column(column)
		switch col.Charset {
		case "", "utf8mb4", "utf8mb3", "ascii", "binary":
		default:
			fs.warn(name, alterColumn(shape, col, "CHARACTER SET utf8mb4"), "column %s is in %s: what it holds is sent as utf8mb4, and no longer byte for byte as stored", column, col.Charset)
		}
	}
	if len(*fs) == before {
		fs.ok(name, "%d columns, ordering %s, after_publish %s", len(shape.Columns), c.Ordering, c.AfterPublish)
	}
}

// checkKeys looks at what finds rows: the unique id and the index for the fallback.
func checkKeys(ctx context.Context, fs *findings, c *configs.Table, shape *canal.Shape, m *mapping, db *sql.DB) error {
	name, table := shape.Table.String(), shape.Table.Quote()
	unique, err := uniqueIndexes(ctx, db, shape.Table)
	if err != nil {
		return err
	}
	id := c.Columns.ID.Columns()
	if !slices.ContainsFunc(unique, func(columns []string) bool {
		return !slices.ContainsFunc(columns, func(column string) bool { return !containsFold(id, column) })
	}) {
		fs.warn(name, fmt.Sprintf("ALTER TABLE %s ADD UNIQUE KEY towpath_id (%s)", table, quoteList(id)),
			"nothing keeps its id (%s) unique: consumers drop the second of two messages with one id", strings.Join(id, ", "))
	}
	for _, column := range id {
		if col, _ := shape.Column(column); col.Nullable {
			fs.warn(name, alterColumn(shape, col, "NOT NULL"), "column %s of its id may be NULL: such a row cannot be sent, and fails", column)
		}
	}
	if c.AfterPublish == configs.Keep {
		return nil
	}
	if err := m.pageable(); err != nil {
		fs.fail(name, "add a primary key of whole numbers or text", "the fallback cannot read it: %v", err)
	}
	if c.AfterPublish == configs.Mark {
		index, err := statusIndex(ctx, db, shape.Table, c.Status.Column)
		if err != nil {
			return err
		}
		if index == "" {
			fs.warn(name, fmt.Sprintf("CREATE INDEX towpath_unsent ON %s (%s)", table, canal.Quote(c.Status.Column)),
				"no index begins with %s: each look for unsent rows, every %s, reads the whole table", c.Status.Column, c.Fallback.Every)
		}
	}
	return nil
}

// uniqueIndexes lists the columns of each unique index of a table.
func uniqueIndexes(ctx context.Context, db *sql.DB, name canal.TableName) ([][]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT INDEX_NAME, COALESCE(COLUMN_NAME, '') FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA=? AND TABLE_NAME=? AND NON_UNIQUE=0 ORDER BY INDEX_NAME, SEQ_IN_INDEX`, name.Schema, name.Name)
	if err != nil {
		return nil, fmt.Errorf("look for unique indexes of %s: %w", name, err)
	}
	defer rows.Close()
	columns := map[string][]string{}
	for rows.Next() {
		var index, column string
		if err := rows.Scan(&index, &column); err != nil {
			return nil, fmt.Errorf("look for unique indexes of %s: %w", name, err)
		}
		columns[index] = append(columns[index], column)
	}
	return slices.Collect(maps.Values(columns)), rows.Err()
}

func quoteList(columns []string) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = canal.Quote(c)
	}
	return strings.Join(quoted, ", ")
}

func alterColumn(shape *canal.Shape, c *canal.ShapeColumn, change string) string {
	return fmt.Sprintf("ALTER TABLE %s MODIFY %s %s %s", shape.Table.Quote(), canal.Quote(c.Name), c.ColumnType, change)
}

// checkStatus sees to it that what the relay writes fits.
func checkStatus(fs *findings, c *configs.Table, shape *canal.Shape) {
	s := c.Status
	for _, v := range []struct {
		key   string
		value configs.StatusValue
	}{{"pending", s.Pending}, {"sent", s.Sent}, {"failed", s.Failed}, {"processing", s.Processing}} {
		col, has := shape.Column(s.Column)
		if v.value == "" || !has {
			continue
		}
		if why := holds(col, string(v.value)); why != "" {
			fs.fail(shape.Table.String(), "correct status."+v.key+", or let the column take it", "column %s cannot hold status.%s %q: %s", col.Name, v.key, v.value, why)
		}
	}
	for _, w := range []struct{ key, column string }{
		{"sent_at", s.SentAt}, {"next_attempt_at", s.NextAttemptAt}, {"locked_until", s.LockedUntil}, {"attempts", s.Attempts},
	} {
		key, column := w.key, w.column
		col, has := shape.Column(column)
		if !has {
			continue
		}
		integer := slices.Contains([]string{"tinyint", "smallint", "mediumint", "int", "bigint"}, col.DataType)
		timed := col.DataType == "datetime" || col.DataType == "timestamp"
		if key == "attempts" && !integer || key != "attempts" && !timed && col.DataType != "bigint" {
			fs.fail(shape.Table.String(), "name another column, or change its type", "status.%s is column %s of type %s", key, column, col.ColumnType)
		}
	}
}

// holds says why a column could not take a value, "" when it can.
func holds(c *canal.ShapeColumn, value string) string {
	switch c.DataType {
	case "enum":
		if names, _ := c.Names(); !slices.Contains(names, value) {
			return "it is " + c.ColumnType
		}
	case "char", "varchar":
		_, inside, _ := strings.Cut(strings.TrimSuffix(c.ColumnType, ")"), "(")
		if most, err := strconv.Atoi(inside); err == nil && utf8.RuneCountInString(value) > most {
			return "it is " + c.ColumnType
		}
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		bits := map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[c.DataType]
		var err error
		if c.Unsigned() {
			_, err = strconv.ParseUint(value, 10, bits)
		} else {
			_, err = strconv.ParseInt(value, 10, bits)
		}
		if err != nil {
			return "it is " + c.ColumnType
		}
	}
	return ""
}
