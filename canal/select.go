package canal

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/checkpoint"
)

// ConfigureSession makes SQL sessions show values as the binlog's are read (P5):
// the text protocol, utf8mb4, UTC, no times parsed by the driver, and a fixed
// sql_mode, since some modes change what SELECT shows.
func ConfigureSession(cfg *mysql.Config) error {
	cfg.InterpolateParams = true
	cfg.ParseTime = false
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'"
	cfg.Params["sql_mode"] = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
	return cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"))
}

// Quote makes an identifier safe to stand in a statement.
func Quote(ident string) string {
	return "`" + strings.ReplaceAll(ident, "`", "``") + "`"
}

// Quote gives the table's full name, safe to stand in a statement.
func (t TableName) Quote() string { return Quote(t.Schema) + "." + Quote(t.Name) }

// ShareLock is the clause that makes a SELECT a locking read. A plain SELECT
// right after a row's event may not see the row yet; a locking one does.
func ShareLock(flavor checkpoint.Flavor) string {
	if flavor == checkpoint.MariaDB {
		return "LOCK IN SHARE MODE"
	}
	return "FOR SHARE"
}

// SelectRows reads rows by SQL, as the binlog would have shown them. tail is
// what stands behind the table's name: WHERE, ORDER BY, LIMIT, a lock. Only the
// columns in interest and the primary key's are read; the whole result is held
// in memory, so tail must limit it. The session must be one of
// [ConfigureSession], and shape the table's present one.
func SelectRows(ctx context.Context, db Querier, shape *Shape, interest Interest, tail string, args ...any) ([]Row, error) {
	table := shape.Describe()
	var list []string
	var targets []int
	reals := map[int]format{}
	for i := range shape.Columns {
		c := &shape.Columns[i]
		if interest.Columns == nil || interest.Columns(c.Name) || slices.Contains(table.Primary, i) {
			if f, ok := c.real(); ok {
				reals[len(list)] = f
			}
			list = append(list, c.expression())
			targets = append(targets, i)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("read rows of %s: no column is wanted", shape.Table)
	}
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(list, ",")+" FROM "+shape.Table.Quote()+" "+tail, args...)
	if err != nil {
		return nil, fmt.Errorf("read rows of %s: %w", shape.Table, err)
	}
	defer rows.Close()
	raw := make([]sql.RawBytes, len(list))
	into := make([]any, len(list))
	for i := range raw {
		into[i] = &raw[i]
	}
	p := plan{table: table}
	arena := []byte{} // not nil: an empty value is not NULL
	n := 0
	for ; rows.Next(); n++ {
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("read rows of %s: %w", shape.Table, err)
		}
		p.spans = appendNulls(p.spans, len(table.Columns))
		row := p.spans[n*len(table.Columns):]
		for i, v := range raw {
			if v == nil {
				continue
			}
			start := len(arena)
			if f, ok := reals[i]; ok {
				if arena, err = appendParsed(arena, string(v), &f); err != nil {
					return nil, fmt.Errorf("read rows of %s, column %s: %w", shape.Table, shape.Columns[targets[i]].Name, err)
				}
			} else {
				arena = append(arena, v...)
			}
			row[targets[i]] = span{start, len(arena)}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read rows of %s: %w", shape.Table, err)
	}
	return p.slice(arena, n, nil), nil
}

// expression selects the column so that the driver, which parses numbers even in
// the text protocol, does not lose how the server shows them. FLOAT and DOUBLE
// have no such expression (CAST and CONCAT use another form than SELECT): they
// are rendered anew, see [ShapeColumn.real].
func (c *ShapeColumn) expression() string {
	if _, real := c.real(); !real && (c.DataType == "year" || c.Zerofill()) {
		return "CAST(" + Quote(c.Name) + " AS CHAR)"
	}
	return Quote(c.Name)
}

// real says how a FLOAT or DOUBLE is shown, and false for another column.
func (c *ShapeColumn) real() (format, bool) {
	f := format{decimals: -1}
	width := 0
	switch c.DataType {
	case "float":
		f.digits, width = floatDigits, 12
	case "double":
		f.digits, width = doubleDigits, 22
	default:
		return f, false
	}
	if m, d := c.width(); d >= 0 {
		width, f.decimals = m, d
	}
	if c.Zerofill() {
		f.width = width
	}
	return f, true
}

// appendParsed renders a FLOAT or DOUBLE that the driver has parsed.
func appendParsed(dst []byte, text string, f *format) ([]byte, error) {
	bits := 64
	if f.digits == floatDigits {
		bits = 32
	}
	d, err := strconv.ParseFloat(text, bits)
	if err != nil {
		return dst, err
	}
	return renderReal(dst, d, f)
}

// SelectByKey reads one row by its primary key, whose values key gives in key
// order; lock is appended, see [ShareLock]. It returns false when there is no
// such row. A table without a primary key, or with a FLOAT in it, is an error.
func SelectByKey(ctx context.Context, db Querier, shape *Shape, interest Interest, key [][]byte, lock string) (Row, bool, error) {
	where, args, err := shape.KeyCondition(key)
	if err != nil {
		return Row{}, false, err
	}
	rows, err := SelectRows(ctx, db, shape, interest, "WHERE "+where+" "+lock, args...)
	switch {
	case err != nil:
		return Row{}, false, err
	case len(rows) == 0:
		return Row{}, false, nil
	case len(rows) > 1:
		return Row{}, false, fmt.Errorf("read row of %s by its primary key: got %d rows", shape.Table, len(rows))
	}
	return rows[0], true, nil
}

// KeyCondition gives the condition, and its arguments, that holds for just the
// row with these primary-key values, which are in key order and as rows carry
// them.
func (s *Shape) KeyCondition(key [][]byte) (string, []any, error) {
	if len(s.Primary) == 0 {
		return "", nil, fmt.Errorf("find row of %s: the table has no primary key", s.Table)
	}
	if len(key) != len(s.Primary) {
		return "", nil, fmt.Errorf("find row of %s: %d values for a primary key of %d columns", s.Table, len(key), len(s.Primary))
	}
	conditions := make([]string, len(key))
	args := make([]any, len(key))
	for i, name := range s.Primary {
		c, ok := s.Column(name)
		if !ok {
			return "", nil, fmt.Errorf("find row of %s: its primary key has column %s, which it has not", s.Table, name)
		}
		if key[i] == nil {
			return "", nil, fmt.Errorf("find row of %s: primary-key column %s is not known", s.Table, c.Name)
		}
		operand, arg, err := c.argument(key[i])
		if err != nil {
			return "", nil, fmt.Errorf("find row of %s by primary-key column %s: %w", s.Table, c.Name, err)
		}
		conditions[i] = Quote(c.Name) + " = " + operand
		args[i] = arg
	}
	return strings.Join(conditions, " AND "), args, nil
}

// argument gives a value in the form in which the server compares it exactly
// with the column.
func (c *ShapeColumn) argument(v []byte) (operand string, arg any, err error) {
	operand = "?"
	switch c.DataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "year":
		if c.Unsigned() || c.DataType == "year" {
			arg, err = strconv.ParseUint(string(v), 10, 64)
		} else {
			arg, err = strconv.ParseInt(string(v), 10, 64)
		}
	case "bit":
		arg = bigEndian(v)
	case "decimal":
		operand, arg = fmt.Sprintf("CAST(? AS DECIMAL(%d,%d))", c.Precision, c.Scale), string(v)
	case "double":
		arg, err = strconv.ParseFloat(string(v), 64)
	case "float":
		err = fmt.Errorf("a FLOAT cannot be found by what SELECT shows of it; use another type")
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		arg = v
	default:
		arg = string(v)
	}
	return operand, arg, err
}
