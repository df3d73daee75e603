package canal

import (
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// TableName is a table's full name.
type TableName struct{ Schema, Name string }

func (t TableName) String() string { return t.Schema + "." + t.Name }

// Table is the shape that a table had when a row of it was written. Values of
// this type are shared between rows and never changed.
type Table struct {
	TableName
	Columns []Column // in the table's own order
	Primary []int    // indexes of the primary key's columns, in key order; empty without one
}

// Column describes one column of a table.
type Column struct {
	Name    string
	Type    string // as information_schema's DATA_TYPE says it, lower case: "varchar", "bigint", "json", ...
	Integer bool   // an integer type: a lone {column} header becomes an AMQP integer
	Binary  bool   // bytes, not text: outside the body it needs a template format
}

// Row is one inserted row. Values[i] is column i of the table as SELECT shows
// it under utf8mb4 and UTC; nil is NULL, an empty value is not nil. Columns
// that nobody asked for (see [Interest]) are nil too and must not be read.
// Values are owned by the row: they alias no packet buffer that outlives it.
type Row struct {
	Table  *Table
	Values [][]byte
	// Incomplete is set when the image lacks columns (binlog_row_image MINIMAL
	// or NOBLOB) or could not be decoded with certainty. Only primary-key
	// values may then be used: the row is repaired by a locking read.
	Incomplete bool
}

// Kind says what the end of a group did to its rows.
type Kind uint8

// The kinds of groups.
const (
	Committed  Kind = iota // rows are committed
	Prepared               // XA PREPARE: rows are held, durably, until the verdict on XID
	XACommit               // XA COMMIT of an earlier Prepared group; no rows of its own
	XARollback             // XA ROLLBACK of an earlier Prepared group; no rows of its own
)

// Batch is a whole event group, or a part of a large one. Parts of one group
// follow each other without another group between them, all with the same Kind
// and XID, and only the last has End set.
type Batch struct {
	Kind Kind
	XID  []byte // for the three XA kinds: opaque, equal between prepare and verdict
	Rows []Row
	// Sweep lists configured tables that this group may have given rows which
	// cannot be read from the binlog: a statement wrote to them (statement
	// format), a partition or tablespace was exchanged or imported, the columns
	// of their rows cannot be told for sure (see [Shape]), or the place was
	// unreadable and passed on request ([Start].Skip). They need a sweep (P2).
	Sweep []TableName
	// Shape lists configured tables whose definition may have changed in this
	// group: what was known of their shape before ends here.
	Shape []TableName
	// Shapes are the shapes that were read anew to decode Rows. They hold from
	// this group on, and are to be saved with a position behind it.
	Shapes []*Shape
	// Updates counts the UPDATE and DELETE events on configured tables, which
	// are no messages: also what REPLACE and ON DUPLICATE KEY UPDATE made of an
	// existing row, and what the relay itself wrote.
	Updates int
	// End is the group's end, nil while more of the same group follows.
	End *checkpoint.Mark
	// Time is the commit time, as precise as the server tells.
	Time time.Time
}

// Interest says what of a table is wanted. A nil Columns function wants every column.
type Interest struct {
	Columns func(name string) bool
}
