package canal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/klauspost/compress/zlib"
)

// ErrShape says that the known definition of a table is not the one that an
// event was written under. A [*ShapeError] says what disagrees.
var ErrShape = errors.New("the known definition of the table is not the event's")

// A ShapeError names the table and what disagrees. It is an [ErrShape]. The row
// must be read by its primary key, or the definition be loaded again.
type ShapeError struct {
	Table  TableName
	Column string // empty when it is not one column that disagrees
	What   string
}

func (e *ShapeError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("decode rows of %s: %v: %s", e.Table, ErrShape, e.What)
	}
	return fmt.Sprintf("decode rows of %s, column %s: %v: %s", e.Table, e.Column, ErrShape, e.What)
}

func (e *ShapeError) Unwrap() error { return ErrShape }

// ErrUnsupported says that a column's values cannot be read exactly.
var ErrUnsupported = errors.New("column cannot be read from the binlog")

// An UnsupportedError names the column and the remedy. It is an [ErrUnsupported].
type UnsupportedError struct {
	Table  TableName
	Column string
	What   string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("decode rows of %s, column %s: %v: %s", e.Table, e.Column, ErrUnsupported, e.What)
}

func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// ErrRows says that the bytes of a rows event do not have the form that its
// table map gives them: nothing of the event can be trusted.
var ErrRows = errors.New("malformed rows event")

// plan is how to read the rows of one table under one table map. It is made
// once and then only read, except for its scratch: one goroutine uses a plan.
type plan struct {
	table   *Table
	columns []planColumn // as in the event
	fixed   int          // bytes of text that a row's wanted values of fixed size may take

	spans   []span // scratch: where each value of the rows at hand lies in the arena
	present []byte // the columns-present bitmap that the next two are for
	count   int    // columns in present
	lacking bool   // a wanted column is not in present

	inflater inflater // scratch, for MariaDB's compressed events
}

// planColumn is how to read one column of the event's rows.
type planColumn struct {
	size   int // bytes of a value, when prefix is 0
	prefix int // bytes of a value's length prefix
	target int // index in Table.Columns of a wanted column, else -1
	key    bool
	render renderer
	format format
}

// A span is a value's place in the arena; start is -1 for NULL and for what was
// not read.
type span struct{ start, end int }

// decode reads the rows of a write-rows event whose header was decoded: body is
// the event's data from the offset on that [replication.RowsEvent.DecodeHeader]
// gave, without checksum. A row whose image lacks a wanted column, or holds
// something that is no value of its column's type, is Incomplete: then only the
// primary key's values are set, and of these not even the ones that the image
// lacks. An [ErrRows] means that the event as a whole is malformed. The rows share one
// buffer of their own and do not alias body.
func (p *plan) decode(re *replication.RowsEvent, body []byte) ([]Row, error) {
	rows, err := p.rows(re, body)
	if err != nil {
		return nil, fmt.Errorf("decode rows of %s: %w", p.table.TableName, err)
	}
	return rows, nil
}

func (p *plan) rows(re *replication.RowsEvent, body []byte) ([]Row, error) {
	if reflect.ValueOf(re).Elem().Field(compressedField).Bool() {
		var err error
		if body, err = p.inflater.inflate(body); err != nil {
			return nil, err
		}
	}
	if re.ColumnCount != uint64(len(p.columns)) || len(re.ColumnBitmap1) != (len(p.columns)+7)/8 {
		return nil, fmt.Errorf("%w: it has %d columns, its table map %d", ErrRows, re.ColumnCount, len(p.columns))
	}
	p.setPresent(re.ColumnBitmap1)

	arena := make([]byte, 0, len(body)+len(body)/4+p.fixed)
	width := len(p.table.Columns)
	p.spans = p.spans[:0]
	var incomplete []int // rows with a value that could not be decoded
	n := 0
	for ; len(body) > 0; n++ {
		p.spans = appendNulls(p.spans, width)
		size, sound := 0, true
		arena, size, sound = p.row(arena, body, p.spans[n*width:])
		// A row without a byte (no column present) would repeat for ever.
		if size <= 0 {
			return nil, fmt.Errorf("%w: row %d ends outside of it", ErrRows, n)
		}
		if !sound {
			incomplete = append(incomplete, n)
		}
		body = body[size:]
	}
	if cap(arena) > 4096 && cap(arena) > 2*len(arena) {
		arena = append(make([]byte, 0, len(arena)), arena...) // most of the event was not wanted
	}
	return p.slice(arena, n, incomplete), nil
}

func appendNulls(spans []span, n int) []span {
	for range n {
		spans = append(spans, span{start: -1})
	}
	return spans
}

// slice cuts the arena into the values of n rows.
func (p *plan) slice(arena []byte, n int, incomplete []int) []Row {
	width := len(p.table.Columns)
	values := make([][]byte, n*width)
	rows := make([]Row, n)
	for i := range rows {
		row := &rows[i]
		*row = Row{Table: p.table, Values: values[i*width : (i+1)*width : (i+1)*width], Incomplete: p.lacking}
		for j, s := range p.spans[i*width : (i+1)*width] {
			if s.start >= 0 {
				row.Values[j] = arena[s.start:s.end:s.end]
			}
		}
		if len(incomplete) > 0 && incomplete[0] == i {
			incomplete = incomplete[1:]
			row.Incomplete = true
			for j := range row.Values {
				if !slices.Contains(p.table.Primary, j) {
					row.Values[j] = nil
				}
			}
		}
	}
	return rows
}

// row reads one row image from the start of body, appends its wanted values to
// the arena and notes their places. It returns the image's size, 0 for one that
// does not fit into body, and whether each wanted value was one of its type.
func (p *plan) row(arena, body []byte, spans []span) (_ []byte, size int, sound bool) {
	pos := (p.count + 7) / 8
	if pos > len(body) {
		return arena, 0, false
	}
	nulls, bit := body[:pos], 0
	sound = true
	for i := range p.columns {
		c := &p.columns[i]
		if p.present[i>>3]&(1<<(i&7)) == 0 {
			continue
		}
		null := nulls[bit>>3]&(1<<(bit&7)) != 0
		bit++
		if null {
			continue
		}
		n := c.size
		if c.prefix > 0 {
			if len(body)-pos < c.prefix {
				return arena, 0, false
			}
			n = littleEndian(body[pos : pos+c.prefix])
			pos += c.prefix
		}
		if n > len(body)-pos {
			return arena, 0, false
		}
		if c.target >= 0 && (c.key || !p.lacking) {
			start := len(arena)
			next, err := c.render(arena, body[pos:pos+n], &c.format)
			if err != nil {
				sound = false
			} else {
				arena = next
				spans[c.target] = span{start, len(arena)}
			}
		}
		pos += n
	}
	return arena, pos, sound
}

// setPresent notes which columns the images of an event hold.
func (p *plan) setPresent(bitmap []byte) {
	if bytes.Equal(bitmap, p.present) {
		return
	}
	p.present = append(p.present[:0], bitmap...)
	p.count, p.lacking = 0, false
	for i := range p.columns {
		if bitmap[i>>3]&(1<<(i&7)) != 0 {
			p.count++
		} else if p.columns[i].target >= 0 {
			p.lacking = true
		}
	}
}

// littleEndian reads an unsigned integer of up to four bytes.
func littleEndian(b []byte) int {
	switch len(b) {
	case 1:
		return int(b[0])
	case 2:
		return int(binary.LittleEndian.Uint16(b))
	case 3:
		return int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	}
	return int(binary.LittleEndian.Uint32(b))
}

// compressedField is where the library keeps whether a rows event is one of
// MariaDB's compressed ones; it tells nobody, and its own decompression
// allocates what the event claims to hold.
var compressedField = func() int {
	f, ok := reflect.TypeFor[replication.RowsEvent]().FieldByName("compressed")
	if !ok || f.Type.Kind() != reflect.Bool {
		panic("go-mysql has no RowsEvent.compressed any more")
	}
	return f.Index[0]
}()

// inflater undoes log_bin_compress: a byte with the size of the length, the
// length (big-endian), a zlib stream. Its buffers are used again for each event.
type inflater struct {
	in     bytes.Reader
	stream io.ReadCloser
	out    bytes.Buffer
}

// inflate gives an event's rows, until it is called again. The length is only a
// claim: the output grows as the input yields.
func (f *inflater) inflate(body []byte) ([]byte, error) {
	if len(body) == 0 {
		return nil, fmt.Errorf("%w: compressed rows without a header", ErrRows)
	}
	size := int(body[0] & 7)
	if size < 1 || size > 4 || len(body) < 1+size {
		return nil, fmt.Errorf("%w: compressed rows with a bad header", ErrRows)
	}
	length := int64(bigEndian(body[1 : 1+size]))
	f.in.Reset(body[1+size:])
	var err error
	if f.stream == nil {
		f.stream, err = zlib.NewReader(&f.in)
	} else {
		err = f.stream.(zlib.Resetter).Reset(&f.in, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: compressed rows: %w", ErrRows, err)
	}
	if f.out.Cap() > maxInflated {
		f.out = bytes.Buffer{} // one large row is no reason to keep its room
	}
	f.out.Reset()
	n, err := io.Copy(&f.out, io.LimitReader(f.stream, length+1))
	if err != nil || n != length {
		return nil, fmt.Errorf("%w: compressed rows: got %d of %d bytes: %v", ErrRows, n, length, err)
	}
	return f.out.Bytes(), nil
}

// inflate gives the content of one compressed event.
func inflate(body []byte) ([]byte, error) { return new(inflater).inflate(body) }

// maxInflated is the largest buffer that is kept for the next event.
const maxInflated = 1 << 20
