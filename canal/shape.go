package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shape is what a server's information_schema tells of a table: all that a
// binlog event leaves out and that is needed to read its rows as SELECT shows
// them. It is stored as JSON beside the saved position, so that old events are
// read with the shape of their own time. A Shape is not changed once made.
type Shape struct {
	Table   TableName     `json:"table"`
	Engine  string        `json:"engine"`
	Columns []ShapeColumn `json:"columns"` // in the table's own order
	Primary []string      `json:"primary"` // the primary key's columns, in key order
	// Hidden counts the columns behind the last one that a server adds for
	// itself and yet writes to the binlog: one for each unique index of long
	// columns (MariaDB).
	Hidden int `json:"hidden,omitempty"`
}

// ShapeColumn is one column of a [Shape].
type ShapeColumn struct {
	Name       string `json:"name"`
	DataType   string `json:"data_type"`         // lower case: "varchar", "bigint", ...
	ColumnType string `json:"column_type"`       // in full: "int(5) unsigned zerofill"
	Charset    string `json:"charset,omitempty"` // of text, ENUM and SET
	Collation  string `json:"collation,omitempty"`
	Octets     uint64 `json:"octets,omitempty"`    // longest value of a string type, in bytes
	Precision  int    `json:"precision,omitempty"` // of DECIMAL; bits of BIT
	Scale      int    `json:"scale,omitempty"`     // of DECIMAL
	Fraction   int    `json:"fraction,omitempty"`  // digits of fractional seconds
	Nullable   bool   `json:"nullable,omitempty"`
	Generated  bool   `json:"generated,omitempty"`
	Invisible  bool   `json:"invisible,omitempty"`
}

// Column gives a column by its name, as the server compares names: without
// regard to case.
func (s *Shape) Column(name string) (*ShapeColumn, bool) {
	for i := range s.Columns {
		if strings.EqualFold(s.Columns[i].Name, name) {
			return &s.Columns[i], true
		}
	}
	return nil, false
}

// Unsigned says whether the column is declared UNSIGNED (ZEROFILL implies it).
func (c *ShapeColumn) Unsigned() bool { return c.attribute("unsigned") }

// Zerofill says whether SELECT pads the column's numbers with zeros.
func (c *ShapeColumn) Zerofill() bool { return c.attribute("zerofill") }

func (c *ShapeColumn) attribute(word string) bool {
	return !c.named() && slices.Contains(strings.Fields(c.ColumnType), word)
}

func (c *ShapeColumn) named() bool { return c.DataType == "enum" || c.DataType == "set" }

// Names gives the values of an ENUM or SET, and false where the information
// schema (which has no characters beyond U+FFFF) cannot have told them in full.
func (c *ShapeColumn) Names() ([]string, bool) {
	if !c.named() {
		return nil, true
	}
	names, ok := parseNames(strings.TrimPrefix(c.ColumnType, c.DataType))
	if !ok {
		return nil, false
	}
	switch c.Charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		for _, name := range names {
			if strings.Contains(name, "?") {
				return names, false
			}
		}
	}
	return names, true
}

// parseNames reads ('a','b”c'), where quotes are doubled and a backslash
// escapes itself, a newline, a carriage return and a zero byte.
func parseNames(list string) ([]string, bool) {
	list, found := strings.CutPrefix(list, "(")
	if !found {
		return nil, false
	}
	var names []string
	for {
		if list, found = strings.CutPrefix(list, "'"); !found {
			return nil, false
		}
		var name strings.Builder
		closed := false
		for len(list) > 0 && !closed {
			c := list[0]
			list = list[1:]
			switch {
			case c == '\'' && strings.HasPrefix(list, "'"):
				name.WriteByte('\'')
				list = list[1:]
			case c == '\'':
				closed = true
			case c == '\\' && list != "":
				if i := strings.IndexByte("0nr", list[0]); i >= 0 {
					name.WriteByte("\x00\n\r"[i])
				} else {
					name.WriteByte(list[0])
				}
				list = list[1:]
			default:
				name.WriteByte(c)
			}
		}
		if !closed {
			return nil, false
		}
		names = append(names, name.String())
		if list == "" || list[0] != ',' {
			return names, list != "" && list[0] == ')'
		}
		list = list[1:]
	}
}

// width is the display width that ZEROFILL pads to, and decimals the fixed
// number of decimals of a FLOAT(M,D) or DOUBLE(M,D), -1 without one.
func (c *ShapeColumn) width() (width, decimals int) {
	_, rest, found := strings.Cut(c.ColumnType, "(")
	if !found || c.named() {
		return 0, -1
	}
	inside, _, _ := strings.Cut(rest, ")")
	first, second, both := strings.Cut(inside, ",")
	width, _ = strconv.Atoi(strings.TrimSpace(first))
	decimals = -1
	if both {
		decimals, _ = strconv.Atoi(strings.TrimSpace(second))
	}
	return width, decimals
}

// ErrNoTable says that the server has no such table, or shows it to nobody of
// our rights.
var ErrNoTable = errors.New("no such table, or no privilege on it")

// A Querier is what is needed to read from a database: a pool, a connection or
// a transaction of database/sql.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// LoadShape reads a table's shape from the information schema. It returns
// [ErrNoTable] for a table that is not there.
func LoadShape(ctx context.Context, db Querier, name TableName) (*Shape, error) {
	// Columns and keys are read one after the other: a definition that changes
	// in between shows as a difference between the two, and is read again.
	for range 5 {
		shape, consistent, err := loadShape(ctx, db, name)
		if err != nil {
			return nil, fmt.Errorf("read definition of %s: %w", name, err)
		}
		if consistent {
			return shape, nil
		}
	}
	return nil, fmt.Errorf("read definition of %s: it kept changing while it was read", name)
}

const shapeColumns = `SELECT c.COLUMN_NAME, LOWER(c.DATA_TYPE), c.COLUMN_TYPE,
 IFNULL(c.CHARACTER_SET_NAME, ''), IFNULL(c.COLLATION_NAME, ''), IFNULL(c.CHARACTER_OCTET_LENGTH, 0),
 IFNULL(c.NUMERIC_PRECISION, 0), IFNULL(c.NUMERIC_SCALE, 0), IFNULL(c.DATETIME_PRECISION, 0),
 c.IS_NULLABLE = 'YES', c.EXTRA, c.COLUMN_KEY = 'PRI', t.ENGINE
FROM information_schema.COLUMNS c
JOIN information_schema.TABLES t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
WHERE c.TABLE_SCHEMA = ? AND c.TABLE_NAME = ? AND t.TABLE_SCHEMA = ? AND t.TABLE_NAME = ? ORDER BY c.ORDINAL_POSITION`

const shapeKeys = `SELECT INDEX_NAME, IFNULL(COLUMN_NAME, ''), SEQ_IN_INDEX = 1 AND INDEX_TYPE = 'HASH'
FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY INDEX_NAME, SEQ_IN_INDEX`

func loadShape(ctx context.Context, db Querier, name TableName) (_ *Shape, consistent bool, _ error) {
	shape := &Shape{Table: name}
	var inKey int
	err := each(ctx, db, shapeColumns, name, func(rows *sql.Rows) error {
		var c ShapeColumn
		var extra string
		var primary bool
		var engine sql.NullString
		if err := rows.Scan(&c.Name, &c.DataType, &c.ColumnType, &c.Charset, &c.Collation, &c.Octets,
			&c.Precision, &c.Scale, &c.Fraction, &c.Nullable, &extra, &primary, &engine); err != nil {
			return err
		}
		extra = strings.ToUpper(extra)
		c.Generated = strings.Contains(extra, "VIRTUAL GENERATED") || strings.Contains(extra, "STORED GENERATED")
		c.Invisible = strings.Contains(extra, "INVISIBLE")
		if c.Charset == "utf8" {
			c.Charset = "utf8mb3"
		}
		if primary {
			inKey++
		}
		shape.Engine = engine.String
		shape.Columns = append(shape.Columns, c)
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if len(shape.Columns) == 0 {
		return nil, false, ErrNoTable
	}
	err = each(ctx, db, shapeKeys, name, func(rows *sql.Rows) error {
		var index, column string
		var hash bool
		if err := rows.Scan(&index, &column, &hash); err != nil {
			return err
		}
		switch {
		case hash && shape.Engine != "MEMORY":
			shape.Hidden++
		case index == "PRIMARY":
			shape.Primary = append(shape.Primary, column)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	for _, column := range shape.Primary {
		if _, ok := shape.Column(column); !ok {
			return nil, false, nil
		}
	}
	return shape, inKey == len(shape.Primary), nil
}

func each(ctx context.Context, db Querier, query string, name TableName, row func(*sql.Rows) error) error {
	var args []any
	for range strings.Count(query, "?") / 2 {
		args = append(args, name.Schema, name.Name)
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Describe gives the table as rows of it carry it. Two rows of one table have
// the same description whether they came from the binlog or from SQL (P5).
func (s *Shape) Describe() *Table {
	t := &Table{TableName: s.Table, Columns: make([]Column, len(s.Columns))}
	for i := range s.Columns {
		c := &s.Columns[i]
		t.Columns[i] = describe(c.Name, c.DataType, c.Charset)
	}
	for _, name := range s.Primary {
		t.Primary = append(t.Primary, slices.IndexFunc(s.Columns, func(c ShapeColumn) bool { return strings.EqualFold(c.Name, name) }))
	}
	return t
}

// describe classifies a column by its DATA_TYPE and character set.
func describe(name, dataType, charset string) Column {
	c := Column{Name: name, Type: dataType}
	switch dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		c.Integer = true
	case "bit", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector",
		"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
		"geomcollection", "geometrycollection":
		c.Binary = true
	default:
		c.Binary = charset == binaryCharset
	}
	return c
}
