package canal

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Types of MySQL's binary JSON.
const (
	jsonSmallObject = 0x00
	jsonLargeObject = 0x01
	jsonSmallArray  = 0x02
	jsonLargeArray  = 0x03
	jsonLiteral     = 0x04
	jsonInt16       = 0x05
	jsonUint16      = 0x06
	jsonInt32       = 0x07
	jsonUint32      = 0x08
	jsonInt64       = 0x09
	jsonUint64      = 0x0a
	jsonDouble      = 0x0b
	jsonString      = 0x0c
	jsonOpaque      = 0x0f
)

// base64Line is how many bytes the server encodes before it breaks the line, even
// inside a JSON string.
const base64Line = 57

// maxJSONDepth is the deepest nesting that MySQL accepts.
const maxJSONDepth = 100

var errJSON = errors.New("malformed binary JSON")

// jsonWriter writes a binary document as text. Values are found by offsets, so
// a hostile document may refer to the same bytes many times over: the text is
// bounded by a multiple of the document's size, which honest ones stay below.
type jsonWriter struct {
	dst   []byte
	limit int
}

// appendJSON appends the text that the server shows for a binary document: keys
// in stored order, one space behind each colon and comma, the server's own
// forms of numbers, times and opaque values.
func appendJSON(dst, doc []byte) ([]byte, error) {
	if len(doc) == 0 {
		// What INSERT IGNORE makes of a NULL for a NOT NULL column.
		return append(dst, "null"...), nil
	}
	w := jsonWriter{dst: dst, limit: len(dst) + 64 + 16*len(doc)}
	if err := w.value(doc[0], doc[1:], 1); err != nil {
		return dst, err
	}
	return w.dst, nil
}

// value writes the value of a type that begins at the start of b.
func (w *jsonWriter) value(kind byte, b []byte, depth int) error {
	if len(w.dst) > w.limit {
		return fmt.Errorf("%w: its text grows out of all proportion", errJSON)
	}
	if size := jsonScalarSize(kind); len(b) < size {
		return fmt.Errorf("%w: it ends inside a value", errJSON)
	}
	switch kind {
	case jsonSmallObject, jsonSmallArray:
		return w.container(b, kind == jsonSmallObject, 2, depth)
	case jsonLargeObject, jsonLargeArray:
		return w.container(b, kind == jsonLargeObject, 4, depth)
	case jsonLiteral:
		return w.literal(b[0])
	case jsonInt16:
		w.dst = strconv.AppendInt(w.dst, int64(int16(binary.LittleEndian.Uint16(b))), 10)
	case jsonUint16:
		w.dst = strconv.AppendUint(w.dst, uint64(binary.LittleEndian.Uint16(b)), 10)
	case jsonInt32:
		w.dst = strconv.AppendInt(w.dst, int64(int32(binary.LittleEndian.Uint32(b))), 10)
	case jsonUint32:
		w.dst = strconv.AppendUint(w.dst, uint64(binary.LittleEndian.Uint32(b)), 10)
	case jsonInt64:
		w.dst = strconv.AppendInt(w.dst, int64(binary.LittleEndian.Uint64(b)), 10)
	case jsonUint64:
		w.dst = strconv.AppendUint(w.dst, binary.LittleEndian.Uint64(b), 10)
	case jsonDouble:
		return w.double(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case jsonString:
		text, err := jsonBytes(b)
		if err != nil {
			return err
		}
		w.dst = appendJSONString(w.dst, text)
	case jsonOpaque:
		return w.opaque(b)
	default:
		return fmt.Errorf("%w: unknown type %d", errJSON, kind)
	}
	return nil
}

// jsonScalarSize is the least size of a value.
func jsonScalarSize(kind byte) int {
	switch kind {
	case jsonLiteral, jsonString:
		return 1
	case jsonInt16, jsonUint16, jsonOpaque:
		return 2
	case jsonInt32, jsonUint32:
		return 4
	case jsonInt64, jsonUint64, jsonDouble:
		return 8
	}
	return 0
}

// container writes an object or array. Its numbers (element count, size,
// offsets from its own start) take width bytes each. Count and size are
// followed by a key entry for each member (offset, and length in two bytes) and
// a value entry for each element (type, then offset or a small value itself).
func (w *jsonWriter) container(b []byte, object bool, width, depth int) error {
	if depth > maxJSONDepth {
		return fmt.Errorf("%w: it nests deeper than %d levels", errJSON, maxJSONDepth)
	}
	if len(b) < 2*width {
		return fmt.Errorf("%w: it ends inside a container", errJSON)
	}
	count, size := littleEndian(b[:width]), littleEndian(b[width:2*width])
	if size > len(b) {
		return fmt.Errorf("%w: a container is larger than its document", errJSON)
	}
	b = b[:size]
	keys, values := 2*width, 2*width
	opening, closing := byte('['), byte(']')
	if object {
		values += count * (width + 2)
		opening, closing = '{', '}'
	}
	if values+count*(1+width) > len(b) {
		return fmt.Errorf("%w: a container has no room for its %d elements", errJSON, count)
	}
	w.dst = append(w.dst, opening)
	for i := range count {
		if i > 0 {
			w.dst = append(w.dst, ',', ' ')
		}
		if object {
			entry := b[keys+i*(width+2):]
			start, length := littleEndian(entry[:width]), littleEndian(entry[width:width+2])
			if start > len(b) || length > len(b)-start {
				return fmt.Errorf("%w: a key lies outside of its object", errJSON)
			}
			w.dst = appendJSONString(w.dst, b[start:start+length])
			w.dst = append(w.dst, ':', ' ')
		}
		entry := b[values+i*(1+width):]
		kind, at := entry[0], entry[1:1+width]
		if !jsonInlined(kind, width) {
			start := littleEndian(at)
			if start > len(b) {
				return fmt.Errorf("%w: a value lies outside of its container", errJSON)
			}
			at = b[start:]
		}
		if err := w.value(kind, at, depth+1); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, closing)
	return nil
}

// jsonInlined says that a value lies in its entry itself.
func jsonInlined(kind byte, width int) bool {
	switch kind {
	case jsonLiteral, jsonInt16, jsonUint16:
		return true
	case jsonInt32, jsonUint32:
		return width == 4
	}
	return false
}

func (w *jsonWriter) literal(b byte) error {
	switch b {
	case 0:
		w.dst = append(w.dst, "null"...)
	case 1:
		w.dst = append(w.dst, "true"...)
	case 2:
		w.dst = append(w.dst, "false"...)
	default:
		return fmt.Errorf("%w: unknown literal %d", errJSON, b)
	}
	return nil
}

// double writes a number so that it stays a double: 1.0, not 1.
func (w *jsonWriter) double(d float64) error {
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return fmt.Errorf("%w: a number that is none", errJSON)
	}
	start := len(w.dst)
	w.dst = appendReal(w.dst, d, doubleDigits)
	for _, c := range w.dst[start:] {
		if c == '.' || c == 'e' {
			return nil
		}
	}
	w.dst = append(w.dst, ".0"...)
	return nil
}

// opaque writes a value of an SQL type: type, length, bytes.
func (w *jsonWriter) opaque(b []byte) error {
	kind := b[0]
	v, err := jsonBytes(b[1:])
	if err != nil {
		return err
	}
	switch kind {
	case typeNewDecimal:
		if len(v) < 2 {
			return fmt.Errorf("%w: a decimal without precision", errJSON)
		}
		if w.dst, err = appendDecimal(w.dst, v[2:], int(v[0]), int(v[1]), 0); err != nil {
			return fmt.Errorf("%w: a decimal: %w", errJSON, err)
		}
	case typeDate, typeTime, typeDatetime, typeTimestamp:
		if len(v) != 8 {
			return fmt.Errorf("%w: a time of %d bytes", errJSON, len(v))
		}
		packed := int64(binary.LittleEndian.Uint64(v))
		if packed == math.MinInt64 {
			return fmt.Errorf("%w: a time that is none", errJSON)
		}
		w.time(kind, packed)
	default:
		w.dst = append(w.dst, `"base64:type`...)
		w.dst = strconv.AppendUint(w.dst, uint64(kind), 10)
		w.dst = append(w.dst, ':')
		for len(v) > base64Line {
			w.dst = base64.StdEncoding.AppendEncode(w.dst, v[:base64Line])
			w.dst = append(w.dst, `\n`...)
			v = v[base64Line:]
		}
		w.dst = append(base64.StdEncoding.AppendEncode(w.dst, v), '"')
	}
	return nil
}

// time writes a packed time: the fields as in columns, then 24 bits of
// microseconds, the whole negated for a negative time.
func (w *jsonWriter) time(kind byte, packed int64) {
	w.dst = append(w.dst, '"')
	if packed < 0 {
		w.dst, packed = append(w.dst, '-'), -packed
	}
	fields, micros := packed>>24, int(packed&(1<<24-1))
	switch kind {
	case typeDate:
		date := fields >> 17
		w.dst = appendDate(w.dst, int(date>>5/13), int(date>>5%13), int(date&31))
	case typeTime:
		w.dst = appendClock(w.dst, int(fields>>12&1023), int(fields>>6&63), int(fields&63))
		w.dst = appendPoint(w.dst, micros, 6, 6)
	default:
		w.dst = appendDatetime(w.dst, fields)
		w.dst = appendPoint(w.dst, micros, 6, 6)
	}
	w.dst = append(w.dst, '"')
}

// jsonBytes gives a value that follows its length, which is written in groups
// of seven bits, lowest first.
func jsonBytes(b []byte) ([]byte, error) {
	length := 0
	for i := 0; i < 5 && i < len(b); i++ {
		length |= int(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			if length > len(b)-i-1 {
				break
			}
			return b[i+1 : i+1+length], nil
		}
	}
	return nil, fmt.Errorf("%w: it ends inside a string", errJSON)
}

// appendJSONString appends a quoted string.
func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(append(dst, s[start:i]...), '\\')
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, c)
		case '\b':
			dst = append(dst, 'b')
		case '\f':
			dst = append(dst, 'f')
		case '\n':
			dst = append(dst, 'n')
		case '\r':
			dst = append(dst, 'r')
		case '\t':
			dst = append(dst, 't')
		default:
			dst = append(dst, 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}
