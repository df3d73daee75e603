package canal

import "maps"

// table is a table whose rows are wanted.
type table struct {
	name     TableName
	interest Interest
}

// filter knows which tables are wanted, and which one each table id of the
// open group stands for. A foreign table costs one look-up.
type filter struct {
	want     func(TableName) (Interest, bool)
	verdicts map[string]*table // by schema and name; nil for a foreign one
	wanted   map[TableName]bool
	ids      map[uint64]*table
	key      []byte
}

const (
	// maxVerdicts bounds the memory for names of foreign tables.
	maxVerdicts = 10000
	// dummyTable is the id of a rows event without rows, which ends a
	// statement whose last table is not logged.
	dummyTable = 0xffffff
)

// newFilter takes the tables that exist, so that a statement which names one
// is known to matter before a row of it was seen.
func newFilter(want func(TableName) (Interest, bool), existing []TableName) *filter {
	f := &filter{want: want, verdicts: map[string]*table{}, wanted: map[TableName]bool{}, ids: map[uint64]*table{}}
	for _, t := range existing {
		f.wanted[t] = true
	}
	return f
}

// mapTable notes what a table id stands for and returns the table if it is wanted.
func (f *filter) mapTable(id uint64, schema, name []byte) *table {
	t := f.table(schema, name)
	f.ids[id] = t
	return t
}

// table returns a table if it is wanted.
func (f *filter) table(schema, name []byte) *table {
	f.key = append(append(append(f.key[:0], schema...), 0), name...)
	t, known := f.verdicts[string(f.key)]
	if !known {
		full := TableName{Schema: string(schema), Name: string(name)}
		if interest, ok := f.want(full); ok {
			t = &table{name: full, interest: interest}
			f.wanted[full] = true
		}
		if len(f.verdicts) >= maxVerdicts {
			clear(f.verdicts)
		}
		f.verdicts[string(f.key)] = t
	}
	return t
}

// byID returns the table of an id, nil for a foreign one.
func (f *filter) byID(id uint64) (t *table, known bool) {
	t, known = f.ids[id]
	return t, known
}

// forget ends the group: its table ids mean nothing any more.
func (f *filter) forget() { clear(f.ids) }

// known lists the wanted tables that are known to exist.
func (f *filter) known() []TableName { return keys(f.wanted) }

// Shapes are the known shapes of tables at one place of the stream.
type Shapes map[TableName]*Shape

// Apply brings the shapes from before a batch to behind it.
func (s Shapes) Apply(b Batch) {
	for _, t := range b.Shape {
		delete(s, t)
	}
	for _, shape := range b.Shapes {
		s[shape.Table] = shape
	}
}

// Clone returns a copy that shares the shapes, which never change.
func (s Shapes) Clone() Shapes {
	if s == nil {
		return Shapes{}
	}
	return maps.Clone(s)
}
