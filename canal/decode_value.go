package canal

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
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
	return renderReal(dst, d, floatDigits, f)
}

func renderDouble(dst, v []byte, f *format) ([]byte, error) {
	return renderReal(dst, math.Float64frombits(binary.LittleEndian.Uint64(v)), doubleDigits, f)
}

func renderReal(dst []byte, d float64, digits int, f *format) ([]byte, error) {
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return dst, errValue
	}
	start := len(dst)
	if f.decimals >= 0 {
		dst = appendFixed(dst, d, f.decimals)
	} else {
		dst = appendReal(dst, d, digits)
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
	n := littleEndian(v)
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

// renderInet reads MariaDB's INET4 and INET6 in network byte order.
func renderInet(dst, v []byte, f *format) ([]byte, error) {
	var b [16]byte
	if len(v) > f.length {
		return dst, errValue
	}
	copy(b[:], v)
	if f.length == 4 {
		return netip.AddrFrom4([4]byte(b[:4])).AppendTo(dst), nil
	}
	return netip.AddrFrom16(b).AppendTo(dst), nil
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
