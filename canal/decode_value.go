package canal

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// A renderer appends one value, given as a row image holds it, as SELECT shows
// it under utf8mb4 and UTC (P5). It fails, having appended nothing of use, on
// bytes that are no value of the type; the caller has framed them, so they have
// the length that the type asks for.
type renderer func(dst, v []byte, f *format) ([]byte, error)

// format is what a renderer needs to know of its column.
type format struct {
	unsigned  bool
	width     int      // ZEROFILL: pad with zeros to this many characters
	precision int      // DECIMAL
	digits    int      // FLOAT, DOUBLE: how many to show at most
	decimals  int      // DECIMAL, FLOAT(M,D), DOUBLE(M,D): digits after the point; -1: as many as needed
	fraction  int      // digits of fractional seconds
	length    int      // BINARY and its like: bytes of every value
	names     [][]byte // ENUM, SET, as utf8mb4
	text      transcoder
}

var errValue = errors.New("no value of the column's type")

func renderInteger(dst, v []byte, f *format) ([]byte, error) {
	var u uint64
	for i, c := range v {
		u |= uint64(c) << (8 * i)
	}
	start := len(dst)
	if f.unsigned {
		return zerofill(strconv.AppendUint(dst, u, 10), start, f.width), nil
	}
	shift := 64 - 8*len(v)
	return strconv.AppendInt(dst, int64(u<<shift)>>shift, 10), nil
}

// zerofill pads what lies behind start to the width.
func zerofill(dst []byte, start, width int) []byte {
	if missing := width - (len(dst) - start); missing > 0 {
		for range missing {
			dst = append(dst, '0')
		}
		copy(dst[start+missing:], dst[start:len(dst)-missing])
		for i := range missing {
			dst[start+i] = '0'
		}
	}
	return dst
}

func renderFloat(dst, v []byte, f *format) ([]byte, error) {
	d := float64(math.Float32frombits(binary.LittleEndian.Uint32(v)))
	return renderReal(dst, d, f)
}

func renderDouble(dst, v []byte, f *format) ([]byte, error) {
	return renderReal(dst, math.Float64frombits(binary.LittleEndian.Uint64(v)), f)
}

func renderReal(dst []byte, d float64, f *format) ([]byte, error) {
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return dst, errValue
	}
	start := len(dst)
	if f.decimals >= 0 {
		dst = appendFixed(dst, d, f.decimals)
	} else {
		dst = appendReal(dst, d, f.digits)
	}
	return zerofill(dst, start, f.width), nil
}

func renderDecimal(dst, v []byte, f *format) ([]byte, error) {
	return appendDecimal(dst, v, f.precision, f.decimals, f.width)
}

func renderBytes(dst, v []byte, _ *format) ([]byte, error) { return append(dst, v...), nil }

func renderText(dst, v []byte, f *format) ([]byte, error) { return f.text(dst, v), nil }

// renderBinary restores the zero bytes that the server strips from the end of a
// BINARY value in the binlog.
func renderBinary(dst, v []byte, f *format) ([]byte, error) {
	if len(v) > f.length {
		return dst, errValue
	}
	dst = append(dst, v...)
	for range f.length - len(v) {
		dst = append(dst, 0)
	}
	return dst, nil
}

func renderEnum(dst, v []byte, f *format) ([]byte, error) {
	n := littleEndian(v) // of one or two bytes
	switch {
	case n == 0: // the error value
		return dst, nil
	case n > len(f.names):
		return dst, errValue
	}
	return append(dst, f.names[n-1]...), nil
}

func renderSet(dst, v []byte, f *format) ([]byte, error) {
	var bits uint64
	for i, c := range v {
		bits |= uint64(c) << (8 * i)
	}
	if len(f.names) < 64 && bits>>len(f.names) != 0 {
		return dst, errValue
	}
	first := true
	for i, name := range f.names {
		if bits&(1<<i) == 0 {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, name...)
	}
	return dst, nil
}

func renderJSON(dst, v []byte, _ *format) ([]byte, error) { return appendJSON(dst, v) }

// renderInet4 reads MariaDB's INET4, in network byte order.
func renderInet4(dst, v []byte, _ *format) ([]byte, error) {
	var b [4]byte
	if len(v) > len(b) {
		return dst, errValue
	}
	copy(b[:], v)
	return appendInet4(dst, b[:]), nil
}

func appendInet4(dst, b []byte) []byte {
	for i, c := range b {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return dst
}

// renderInet6 reads MariaDB's INET6, in network byte order. The first of the
// longest runs of zero groups becomes "::", even one of a single group; an
// embedded IPv4 address is shown as one.
func renderInet6(dst, v []byte, _ *format) ([]byte, error) {
	var b [16]byte
	if len(v) > len(b) {
		return dst, errValue
	}
	copy(b[:], v)
	var groups [8]uint64
	gap, size := -1, 0
	for i, run := 0, 0; i < 8; i++ {
		groups[i] = bigEndian(b[2*i : 2*i+2])
		if groups[i] != 0 {
			run = 0
		} else if run++; run > size {
			gap, size = i-run+1, run
		}
	}
	for i := 0; i < 8; i++ {
		if i == gap {
			dst = append(dst, ':')
			if i += size; i == 8 {
				return append(dst, ':'), nil
			}
		}
		if i > 0 {
			dst = append(dst, ':')
		}
		if i == 6 && gap == 0 && (size == 6 || size == 5 && groups[5] == 0xffff) {
			return appendInet4(dst, b[12:]), nil
		}
		dst = strconv.AppendUint(dst, groups[i], 16)
	}
	return dst, nil
}

// renderUUID reads MariaDB's UUID.
func renderUUID(dst, v []byte, _ *format) ([]byte, error) {
	var b [16]byte
	if len(v) > len(b) {
		return dst, errValue
	}
	copy(b[:], v)
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst, nil
}

const hexDigits = "0123456789abcdef"
