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

// jsonReader reads a binary document and appends its text. Values are found by
// offsets, so a hostile document may refer to the same bytes many times over:
// the text is bounded by a multiple of the document's size, which honest ones
// stay below.
type jsonReader struct {
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
	r := jsonReader{limit: len(dst) + 64 + 16*len(doc)}
	out, err := r.value(dst, doc[0], doc[1:], 1)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// value appends the value of a type that begins at the start of b.
func (r *jsonReader) value(dst []byte, kind byte, b []byte, depth int) ([]byte, error) {
	if len(dst) > r.limit {
		return nil, fmt.Errorf("%w: its text grows out of all proportion", errJSON)
	}
	if size := jsonScalarSize(kind); len(b) < size {
		return nil, fmt.Errorf("%w: it ends inside a value", errJSON)
	}
	switch kind {
	case jsonSmallObject, jsonSmallArray:
		return r.container(dst, b, kind == jsonSmallObject, 2, depth)
	case jsonLargeObject, jsonLargeArray:
		return r.container(dst, b, kind == jsonLargeObject, 4, depth)
	case jsonLiteral:
		return appendJSONLiteral(dst, b[0])
	case jsonInt16:
		return strconv.AppendInt(dst, int64(int16(binary.LittleEndian.Uint16(b))), 10), nil
	case jsonUint16:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint16(b)), 10), nil
	case jsonInt32:
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(b))), 10), nil
	case jsonUint32:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(b)), 10), nil
	case jsonInt64:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(b)), 10), nil
	case jsonUint64:
		return strconv.AppendUint(dst, binary.LittleEndian.Uint64(b), 10), nil
	case jsonDouble:
		return appendJSONDouble(dst, math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case jsonString:
		text, err := jsonBytes(b)
		if err != nil {
			return nil, err
		}
		return appendJSONString(dst, text), nil
	case jsonOpaque:
		return appendJSONOpaque(dst, b)
	}
	return nil, fmt.Errorf("%w: unknown type %d", errJSON, kind)
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
func (r *jsonReader) container(dst, b []byte, object bool, width, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("%w: it nests deeper than %d levels", errJSON, maxJSONDepth)
	}
	if len(b) < 2*width {
		return nil, fmt.Errorf("%w: it ends inside a container", errJSON)
	}
	count, size := littleEndian(b[:width]), littleEndian(b[width:2*width])
	if size > len(b) {
		return nil, fmt.Errorf("%w: a container is larger than its document", errJSON)
	}
	b = b[:size]
	keys, values := 2*width, 2*width
	opening, closing := byte('['), byte(']')
	if object {
		values += count * (width + 2)
		opening, closing = '{', '}'
	}
	if values+count*(1+width) > len(b) {
		return nil, fmt.Errorf("%w: a container has no room for its %d elements", errJSON, count)
	}
	dst = append(dst, opening)
	for i := range count {
		if i > 0 {
			dst = append(dst, ',', ' ')
		}
		if object {
			entry := b[keys+i*(width+2):]
			start, length := littleEndian(entry[:width]), littleEndian(entry[width:width+2])
			if start > len(b) || length > len(b)-start {
				return nil, fmt.Errorf("%w: a key lies outside of its object", errJSON)
			}
			dst = append(appendJSONString(dst, b[start:start+length]), ':', ' ')
		}
		entry := b[values+i*(1+width):]
		kind, at := entry[0], entry[1:1+width]
		if !jsonInlined(kind, width) {
			start := littleEndian(at)
			if start > len(b) {
				return nil, fmt.Errorf("%w: a value lies outside of its container", errJSON)
			}
			at = b[start:]
		}
		var err error
		if dst, err = r.value(dst, kind, at, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, closing), nil
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

func appendJSONLiteral(dst []byte, b byte) ([]byte, error) {
	switch b {
	case 0:
		return append(dst, "null"...), nil
	case 1:
		return append(dst, "true"...), nil
	case 2:
		return append(dst, "false"...), nil
	}
	return nil, fmt.Errorf("%w: unknown literal %d", errJSON, b)
}

// appendJSONDouble writes a number so that it stays a double: 1.0, not 1.
func appendJSONDouble(dst []byte, d float64) ([]byte, error) {
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return nil, fmt.Errorf("%w: a number that is none", errJSON)
	}
	start := len(dst)
	dst = appendReal(dst, d, doubleDigits)
	for _, c := range dst[start:] {
		if c == '.' || c == 'e' {
			return dst, nil
		}
	}
	return append(dst, ".0"...), nil
}

// appendJSONOpaque writes a value of an SQL type: type, length, bytes.
func appendJSONOpaque(dst, b []byte) ([]byte, error) {
	kind := b[0]
	v, err := jsonBytes(b[1:])
	if err != nil {
		return nil, err
	}
	switch kind {
	case typeNewDecimal:
		if len(v) < 2 {
			return nil, fmt.Errorf("%w: a decimal without precision", errJSON)
		}
		if dst, err = appendDecimal(dst, v[2:], int(v[0]), int(v[1]), 0); err != nil {
			return nil, fmt.Errorf("%w: a decimal: %w", errJSON, err)
		}
		return dst, nil
	case typeDate, typeTime, typeDatetime, typeTimestamp:
		if len(v) != 8 {
			return nil, fmt.Errorf("%w: a time of %d bytes", errJSON, len(v))
		}
		packed := int64(binary.LittleEndian.Uint64(v))
		if packed == math.MinInt64 {
			return nil, fmt.Errorf("%w: a time that is none", errJSON)
		}
		return appendJSONTime(dst, kind, packed), nil
	}
	dst = strconv.AppendUint(append(dst, `"base64:type`...), uint64(kind), 10)
	dst = append(dst, ':')
	for ; len(v) > base64Line; v = v[base64Line:] {
		dst = append(base64.StdEncoding.AppendEncode(dst, v[:base64Line]), `\n`...)
	}
	return append(base64.StdEncoding.AppendEncode(dst, v), '"'), nil
}

// appendJSONTime writes a packed time: the fields as in columns, then 24 bits of
// microseconds, the whole negated for a negative time.
func appendJSONTime(dst []byte, kind byte, packed int64) []byte {
	dst = append(dst, '"')
	if packed < 0 {
		dst, packed = append(dst, '-'), -packed
	}
	fields, micros := packed>>24, int(packed&(1<<24-1))
	switch kind {
	case typeDate:
		date := fields >> 17
		dst = appendDate(dst, int(date>>5/13), int(date>>5%13), int(date&31))
	case typeTime:
		dst = appendClock(dst, int(fields>>12&1023), int(fields>>6&63), int(fields&63))
		dst = appendPoint(dst, micros, 6, 6)
	default:
		dst = appendPoint(appendDatetime(dst, fields), micros, 6, 6)
	}
	return append(dst, '"')
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

// jsonEscaped are the bytes that cannot stand in a string as they are.
var jsonEscaped = func() (escaped [256]bool) {
	for c := range 0x20 {
		escaped[c] = true
	}
	escaped['"'], escaped['\\'] = true, true
	return escaped
}()

// appendJSONString appends a quoted string.
func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i, c := range s {
		if !jsonEscaped[c] {
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
