package canal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// imageVersion begins every stored row image.
const imageVersion = 1

// maxImageColumns bounds what a damaged image can make us allocate; servers
// allow 4096 columns, hidden ones included.
const maxImageColumns = 8192

// Bits of a stored image.
const (
	imageIncomplete = 1 << iota
)

const (
	imageInteger = 1 << iota
	imageBinary
)

// ErrImage says that stored bytes are not a row image of this version.
var ErrImage = errors.New("not a row image")

// AppendImage appends the row in a form that [ParseImage] reads without knowing
// the table: the table's name, columns and primary key, then the values.
func (r Row) AppendImage(dst []byte) []byte {
	t := r.Table
	var flags byte
	if r.Incomplete {
		flags |= imageIncomplete
	}
	dst = append(dst, imageVersion, flags)
	dst = appendImageString(dst, t.Schema)
	dst = appendImageString(dst, t.Name)
	dst = binary.AppendUvarint(dst, uint64(len(t.Columns)))
	for _, c := range t.Columns {
		dst = appendImageString(dst, c.Name)
		dst = appendImageString(dst, c.Type)
		flags = 0
		if c.Integer {
			flags |= imageInteger
		}
		if c.Binary {
			flags |= imageBinary
		}
		dst = append(dst, flags)
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.Primary)))
	for _, i := range t.Primary {
		dst = binary.AppendUvarint(dst, uint64(i))
	}
	for _, v := range r.Values {
		if v == nil {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(v))+1)
		dst = append(dst, v...)
	}
	return dst
}

func appendImageString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// ParseImage reads what [Row.AppendImage] wrote. The row does not alias b. The
// error is an [ErrImage].
func ParseImage(b []byte) (Row, error) {
	if len(b) < 2 || b[0] != imageVersion {
		return Row{}, fmt.Errorf("parse stored row: %w of version %d", ErrImage, imageVersion)
	}
	p := imageParser{rest: b[2:]}
	t := &Table{}
	row := Row{Table: t, Incomplete: b[1]&imageIncomplete != 0}
	t.Schema, t.Name = string(p.bytes()), string(p.bytes())
	n := p.count(maxImageColumns)
	t.Columns = make([]Column, n)
	for i := range t.Columns {
		c := Column{Name: string(p.bytes()), Type: string(p.bytes())}
		flags := p.take(1)
		if len(flags) == 1 {
			c.Integer, c.Binary = flags[0]&imageInteger != 0, flags[0]&imageBinary != 0
		}
		t.Columns[i] = c
	}
	if keys := p.count(n); keys > 0 {
		t.Primary = make([]int, keys)
	}
	for i := range t.Primary {
		if k := p.uvarint(); k < uint64(n) {
			t.Primary[i] = int(k)
		} else {
			p.failed = true
		}
	}
	p.rest = slices.Clone(p.rest)
	row.Values = make([][]byte, n)
	for i := range row.Values {
		if size := p.uvarint(); size > 0 {
			row.Values[i] = p.take(size - 1)
		}
	}
	if p.failed || len(p.rest) > 0 {
		return Row{}, fmt.Errorf("parse stored row: %w: it is damaged", ErrImage)
	}
	return row, nil
}

// imageParser takes an image apart; once it failed it gives only empty parts.
type imageParser struct {
	rest   []byte
	failed bool
}

func (p *imageParser) uvarint() uint64 {
	n, size := binary.Uvarint(p.rest)
	if size <= 0 {
		p.failed, p.rest = true, nil
		return 0
	}
	p.rest = p.rest[size:]
	return n
}

// count reads a number that may be as large as most.
func (p *imageParser) count(most int) int {
	n := p.uvarint()
	// Each thing counted takes a byte at least.
	if n > uint64(most) || n > uint64(len(p.rest)) {
		p.failed, p.rest = true, nil
		return 0
	}
	return int(n)
}

func (p *imageParser) bytes() []byte { return p.take(p.uvarint()) }

func (p *imageParser) take(n uint64) []byte {
	if n > uint64(len(p.rest)) {
		p.failed, p.rest = true, nil
		return nil
	}
	v := p.rest[:n:n]
	p.rest = p.rest[n:]
	return v
}
