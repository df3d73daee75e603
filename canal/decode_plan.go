package canal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// Column types as table maps and opaque JSON values number them.
const (
	typeTiny       = mysql.MYSQL_TYPE_TINY
	typeShort      = mysql.MYSQL_TYPE_SHORT
	typeLong       = mysql.MYSQL_TYPE_LONG
	typeFloat      = mysql.MYSQL_TYPE_FLOAT
	typeDouble     = mysql.MYSQL_TYPE_DOUBLE
	typeTimestamp  = mysql.MYSQL_TYPE_TIMESTAMP
	typeLonglong   = mysql.MYSQL_TYPE_LONGLONG
	typeInt24      = mysql.MYSQL_TYPE_INT24
	typeDate       = mysql.MYSQL_TYPE_DATE
	typeTime       = mysql.MYSQL_TYPE_TIME
	typeDatetime   = mysql.MYSQL_TYPE_DATETIME
	typeYear       = mysql.MYSQL_TYPE_YEAR
	typeVarchar    = mysql.MYSQL_TYPE_VARCHAR
	typeBit        = mysql.MYSQL_TYPE_BIT
	typeTimestamp2 = mysql.MYSQL_TYPE_TIMESTAMP2
	typeDatetime2  = mysql.MYSQL_TYPE_DATETIME2
	typeTime2      = mysql.MYSQL_TYPE_TIME2
	typeVector     = mysql.MYSQL_TYPE_VECTOR
	typeJSON       = mysql.MYSQL_TYPE_JSON
	typeNewDecimal = mysql.MYSQL_TYPE_NEWDECIMAL
	typeEnum       = mysql.MYSQL_TYPE_ENUM
	typeSet        = mysql.MYSQL_TYPE_SET
	typeBlob       = mysql.MYSQL_TYPE_BLOB
	typeVarString  = mysql.MYSQL_TYPE_VAR_STRING
	typeString     = mysql.MYSQL_TYPE_STRING
	typeGeometry   = mysql.MYSQL_TYPE_GEOMETRY

	// MariaDB's COMPRESSED columns.
	typeBlobCompressed    = 140
	typeVarcharCompressed = 141
)

// planner makes a plan out of what a table map says, what the shape knows, and
// what is wanted.
type planner struct {
	tm     *replication.TableMapEvent
	kinds  []byte   // each column's real type
	metas  []uint16 // and what the table map says more of its type
	meta   *metadata
	shape  *Shape
	flavor checkpoint.Flavor
	wanted func(name string) bool
}

// newPlan compiles how to read a table's rows. With full row metadata columns
// are matched to the shape by name, and event and shape need only agree on
// columns whose text depends on what the metadata does not tell. Otherwise they
// are matched by place, and every column must agree: a change that leaves types
// and lengths alone cannot be seen then (two columns of one type that trade
// names; on MariaDB without metadata a change of sign or character set, too).
// shape may be nil when it is not known. The error is an [ErrShape] (rows would be mapped to the wrong
// columns, or read wrongly) or an [ErrUnsupported].
func newPlan(tm *replication.TableMapEvent, shape *Shape, interest Interest, flavor checkpoint.Flavor) (*plan, error) {
	b := &planner{tm: tm, shape: shape, flavor: flavor, wanted: interest.Columns}
	if b.wanted == nil {
		b.wanted = func(string) bool { return true }
	}
	if err := checkTableMap(tm); err != nil {
		return nil, b.disagree("", "%s", err)
	}
	if err := b.types(); err != nil {
		return nil, err
	}
	var err error
	if b.meta, err = readMetadata(tm, b.kinds, flavor); err != nil {
		return nil, b.disagree("", "%s", err)
	}
	columns, err := b.identify()
	if err != nil {
		return nil, err
	}
	return b.compile(columns)
}

func (b *planner) name() TableName {
	return TableName{Schema: string(b.tm.Schema), Name: string(b.tm.Table)}
}

func (b *planner) disagree(column, format string, args ...any) error {
	return &ShapeError{Table: b.name(), Column: column, What: fmt.Sprintf(format, args...)}
}

// types finds the columns' types. The library does not know that a COMPRESSED
// column has a meta, so what it read as the meta of that column and of those
// behind it is wrong: there the shape's must do.
func (b *planner) types() error {
	b.metas = slices.Clone(b.tm.ColumnMeta)
	b.kinds = make([]byte, len(b.metas))
	shifted := false
	for i, kind := range b.tm.ColumnType {
		shifted = shifted || kind == typeBlobCompressed || kind == typeVarcharCompressed
		if shifted {
			c, ok := b.known(i)
			if !ok {
				return b.unsupported(i, "", "it lies behind a COMPRESSED column, and the table's definition is not known")
			}
			want, meta, ok := c.wire(b.flavor)
			if !ok || want != kind {
				return b.disagree(c.Name, "the event's type is %d, the definition's %s", kind, c.ColumnType)
			}
			b.metas[i] = meta
		}
		b.kinds[i] = realType(kind, b.metas[i])
	}
	return nil
}

// known finds the shape's column for the event's: by name if it has names, else
// by place.
func (b *planner) known(i int) (*ShapeColumn, bool) {
	switch {
	case b.shape == nil:
		return nil, false
	case len(b.tm.ColumnName) > 0:
		return b.shape.Column(string(b.tm.ColumnName[i]))
	case i < len(b.shape.Columns):
		return &b.shape.Columns[i], true
	}
	return nil, false
}

// identify finds what is known of each of the event's columns. One that the
// server hides has an empty name.
func (b *planner) identify() ([]ShapeColumn, error) {
	if len(b.tm.ColumnName) > 0 {
		return b.byName()
	}
	return b.byPlace()
}

// byPlace pairs the event's columns with the shape's.
func (b *planner) byPlace() ([]ShapeColumn, error) {
	if b.shape == nil {
		return nil, b.disagree("", "the event names no columns (binlog_row_metadata is not FULL) and no definition is known")
	}
	n, known := len(b.tm.ColumnType), len(b.shape.Columns)
	if n != known && n != known+b.shape.Hidden {
		return nil, b.disagree("", "the event has %d columns, the definition %d", n, known)
	}
	columns := make([]ShapeColumn, n)
	for i := range known {
		c := b.shape.Columns[i]
		if why := b.differs(i, &c); why != "" {
			return nil, b.disagree(c.Name, "%s", why)
		}
		if nullable := b.tm.NullBitmap[i>>3]&(1<<(i&7)) != 0; nullable != c.Nullable {
			return nil, b.disagree(c.Name, "nullable is %t in the event, %t in the definition", nullable, c.Nullable)
		}
		if charset, ok := b.meta.charset(i); ok && c.Charset != "" && charset != c.Charset {
			return nil, b.disagree(c.Name, "the character set is %s in the event, %s in the definition", charset, c.Charset)
		}
		columns[i] = c
	}
	return columns, nil
}

// byName takes names, character sets and values from the event, and the rest
// from the shape's column of that name where it is of the same type.
func (b *planner) byName() ([]ShapeColumn, error) {
	columns := make([]ShapeColumn, len(b.tm.ColumnType))
	for i := range columns {
		name := string(b.tm.ColumnName[i])
		if b.hidden(name) {
			continue
		}
		c, unsure := b.derive(i), ""
		if known, ok := b.known(i); !ok {
			unsure = b.ambiguous(i, c)
		} else if why := b.differs(i, known); why == "" {
			c = *known
		} else if unsure = b.ambiguous(i, c); unsure != "" {
			unsure += "; " + why
		}
		c.Name = name
		if charset, ok := b.meta.charset(i); ok {
			c.Charset = charset
		}
		if unsure != "" && (b.wanted(name) || b.meta.inPrimary(i)) {
			return nil, b.disagree(name, "%s", unsure)
		}
		columns[i] = c
	}
	return columns, nil
}

// hidden says that a server made the column for itself (see [Shape]).
func (b *planner) hidden(name string) bool {
	if b.flavor != checkpoint.MariaDB || !strings.HasPrefix(name, "DB_ROW_HASH_") {
		return false
	}
	if b.shape == nil {
		return true
	}
	_, known := b.shape.Column(name)
	return !known
}

// compile makes the plan for columns that are identified.
func (b *planner) compile(columns []ShapeColumn) (*plan, error) {
	p := &plan{table: &Table{TableName: b.name()}, columns: make([]planColumn, len(columns))}
	primary := b.primary(columns)
	target := make([]int, len(columns))
	for i := range columns {
		c, pc := &columns[i], &p.columns[i]
		pc.target, target[i] = -1, -1
		if err := b.frame(i, c, pc); err != nil {
			return nil, err
		}
		if c.Name == "" {
			continue
		}
		target[i] = len(p.table.Columns)
		p.table.Columns = append(p.table.Columns, describe(c.Name, c.DataType, c.Charset))
		pc.key = slices.Contains(primary, i)
		if !pc.key && !b.wanted(c.Name) {
			continue
		}
		if err := b.render(i, c, pc); err != nil {
			return nil, err
		}
		pc.target = target[i]
		if pc.prefix == 0 {
			p.fixed += 32 + max(pc.format.width, pc.format.precision, pc.format.length, 4*pc.size)
		}
	}
	for _, i := range primary {
		p.table.Primary = append(p.table.Primary, target[i])
	}
	return p, nil
}

// primary gives the event's columns that are the primary key, in key order.
func (b *planner) primary(columns []ShapeColumn) []int {
	if len(b.tm.ColumnName) > 0 {
		return b.meta.primary
	}
	var primary []int
	for _, name := range b.shape.Primary {
		primary = append(primary, slices.IndexFunc(columns, func(c ShapeColumn) bool { return strings.EqualFold(c.Name, name) }))
	}
	return primary
}
