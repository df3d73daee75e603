package canal

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// rowReader decodes the table maps and rows of wanted tables, each with the
// shape that the table had at that place of the stream.
type rowReader struct {
	flavor checkpoint.Flavor
	filter *filter
	shapes Shapes
	unsure map[TableName]string // why rows cannot be told until the next definition comes
	// load reads a table's shape from the server. It is certain if no statement
	// between the given place and the reading may have changed it.
	load func(TableName, checkpoint.Mark) (shape *Shape, certain bool, err error)

	parser *replication.BinlogParser
	header []byte // the format description that the parser was given
	maps   map[uint64]*tableMap
	event  *replication.RowsEvent // what the parser read last
	body   []byte                 // its row images
}

// tableMap is a table map that the parser knows, with the plan to read its rows.
type tableMap struct {
	body  []byte
	event *replication.TableMapEvent
	table *table
	plan  *plan // nil until rows come, and after the shape changed
	// keysOnly says that the plan tells the primary key and nothing else.
	keysOnly bool
}

// maxMaps bounds the table maps that are kept: a table gets a new id each time
// the server opens it anew.
const maxMaps = 256

// undecodable says what cannot be read, without any row's data.
type undecodable struct{ what string }

func (e *undecodable) Error() string { return e.what }

// uncertain says that rows cannot be told column by column: the table is swept.
type uncertain struct{ what string }

func (e *uncertain) Error() string { return e.what }

func newRowReader(flavor checkpoint.Flavor, f *filter, shapes Shapes, load func(TableName, checkpoint.Mark) (*Shape, bool, error)) *rowReader {
	return &rowReader{flavor: flavor, filter: f, shapes: shapes.Clone(), unsure: map[TableName]string{}, load: load, maps: map[uint64]*tableMap{}}
}

// format takes the stream's format description and returns the size of the
// checksum behind each event.
func (r *rowReader) format(e event) (checksum int, err error) {
	defer catch(&err)
	// Read with its checksum field as it is, kept with the checksum off: what
	// is parsed later has none any more.
	var d replication.FormatDescriptionEvent
	if err := d.Decode(e.body()); err != nil {
		return 0, err
	}
	if d.ChecksumAlgorithm == replication.BINLOG_CHECKSUM_ALG_CRC32 {
		checksum = replication.BinlogChecksumLength
	}
	r.header = bytes.Clone(e.raw)
	r.header[len(r.header)-5] = byte(replication.BINLOG_CHECKSUM_ALG_OFF)
	return checksum, r.restart()
}

// restart gives the parser a clean memory.
func (r *rowReader) restart() error {
	r.parser = replication.NewBinlogParser()
	r.parser.SetFlavor(string(r.flavor))
	r.parser.SetRowsEventDecodeFunc(func(re *replication.RowsEvent, body []byte) error {
		n, err := re.DecodeHeader(body)
		r.event, r.body = re, body[n:]
		return err
	})
	clear(r.maps)
	_, err := r.parser.Parse(r.header)
	return err
}

// catch turns a panic of the library on hostile bytes into an error.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("malformed event: %v", p)
	}
}

// forget drops what is known of a table's shape.
func (r *rowReader) forget(t TableName) {
	delete(r.shapes, t)
	delete(r.unsure, t)
	for _, m := range r.maps {
		if m.table.name == t {
			m.plan, m.keysOnly = nil, false
		}
	}
}

// read takes a table map or rows and appends what comes of it to the batch.
// mark is the end of the event's group.
func (r *rowReader) read(raw []byte, mark checkpoint.Mark, b *Batch) (TableName, error) {
	e, err := parseEvent(raw, 0)
	if err != nil {
		return TableName{}, &undecodable{"event without a frame"}
	}
	if e.kind == replication.TABLE_MAP_EVENT {
		return r.tableMap(e)
	}
	m := r.maps[tableID(e.body())]
	if m == nil {
		return TableName{}, &undecodable{"rows without a table map"}
	}
	rows, err := r.decode(m, e, mark, b)
	b.Rows = append(b.Rows, rows...)
	return m.table.name, err
}

func (r *rowReader) tableMap(e event) (TableName, error) {
	id, schema, name, err := tableMapName(e)
	if err != nil {
		return TableName{}, &undecodable{"table map makes no sense"}
	}
	if m := r.maps[id]; m != nil && bytes.Equal(m.body, e.body()) {
		return m.table.name, nil
	}
	if len(r.maps) >= maxMaps {
		if err := r.restart(); err != nil {
			return TableName{}, &undecodable{"format description makes no sense"}
		}
	}
	m := &tableMap{body: e.body(), table: r.filter.table(schema, name)}
	if m.event, err = r.parseMap(e.raw); err != nil {
		delete(r.maps, id)
		return m.table.name, &undecodable{fmt.Sprintf("table map of %s makes no sense", m.table.name)}
	}
	r.maps[id] = m
	return m.table.name, nil
}

func (r *rowReader) parseMap(raw []byte) (_ *replication.TableMapEvent, err error) {
	defer catch(&err)
	if err := vetTableMap(raw[headerLen:]); err != nil {
		return nil, err
	}
	parsed, err := r.parser.Parse(raw)
	if err != nil {
		return nil, err
	}
	return parsed.Event.(*replication.TableMapEvent), nil
}

// parseRows reads a rows event's header, into r.event and r.body.
func (r *rowReader) parseRows(e event) (err error) {
	defer catch(&err)
	// The parser forgets its table maps at the end of a statement; ours live
	// on, because the next statement's are nearly always the same.
	e.body()[6] &^= replication.RowsEventStmtEndFlag
	_, err = r.parser.Parse(e.raw)
	return err
}

func (r *rowReader) decode(m *tableMap, e event, mark checkpoint.Mark, b *Batch) (_ []Row, err error) {
	name := m.table.name
	if err := r.parseRows(e); err != nil {
		return nil, &undecodable{fmt.Sprintf("rows event of %s makes no sense", name)} // the library's text holds row data
	}
	if m.plan == nil {
		if m.plan, err = r.plan(m, mark, b); err != nil {
			return nil, err
		}
	}
	rows, err := r.run(m.plan)
	if errors.Is(err, ErrRows) {
		return nil, &undecodable{err.Error()}
	}
	if m.keysOnly {
		for i := range rows {
			rows[i].Incomplete = true
		}
	}
	return rows, err
}

func (r *rowReader) run(p *plan) (_ []Row, err error) {
	defer func() {
		if recover() != nil {
			err = &undecodable{fmt.Sprintf("rows event of %s makes no sense", p.table.TableName)}
		}
	}()
	return p.decode(r.event, r.body)
}

// plan makes the plan for a table map: with the shape that is known for this
// place if it fits, else with one that is read now.
func (r *rowReader) plan(m *tableMap, mark checkpoint.Mark, b *Batch) (*plan, error) {
	name := m.table.name
	if shape := r.shapes[name]; shape != nil {
		p, err := newPlan(m.event, shape, m.table.interest, r.flavor)
		if !errors.Is(err, ErrShape) {
			return p, asHalt(err)
		}
	}
	named := len(m.event.ColumnName) > 0 // binlog_row_metadata=FULL
	if why := r.unsure[name]; why != "" && !named {
		return nil, &uncertain{why}
	}
	shape, certain, err := r.load(name, mark)
	switch {
	case errors.Is(err, ErrNoTable):
		shape, certain = nil, false
	case err != nil:
		return nil, err
	case certain:
		r.shapes[name] = shape
		b.Shapes = append(b.Shapes, shape)
	}
	if named {
		return r.named(m, shape)
	}
	if !certain {
		r.unsure[name] = fmt.Sprintf("the definition of %s changed again since, and the binlog does not name columns (binlog_row_metadata is not FULL)", name)
		return nil, &uncertain{r.unsure[name]}
	}
	p, err := newPlan(m.event, shape, m.table.interest, r.flavor)
	if errors.Is(err, ErrShape) {
		r.unsure[name] = err.Error()
		return nil, &uncertain{err.Error()}
	}
	return p, asHalt(err)
}

// named makes a plan for an event that names its columns: if they cannot all be
// told, its primary key still can, and the rows are incomplete.
func (r *rowReader) named(m *tableMap, shape *Shape) (*plan, error) {
	p, err := newPlan(m.event, shape, m.table.interest, r.flavor)
	if !errors.Is(err, ErrShape) {
		return p, asHalt(err)
	}
	why := err.Error()
	p, err = newPlan(m.event, nil, Interest{Columns: func(string) bool { return false }}, r.flavor)
	if err != nil || len(p.table.Primary) == 0 {
		return nil, &uncertain{why}
	}
	m.keysOnly = true
	return p, nil
}

func asHalt(err error) error {
	if errors.Is(err, ErrUnsupported) {
		return &undecodable{err.Error()}
	}
	return err
}
