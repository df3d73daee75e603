package canal

import (
	"bytes"
	"math"
	"strconv"
)

// Significant digits that the servers show of a FLOAT and of a DOUBLE (the
// shortest that reads back as the same number, which never takes more).
const (
	floatDigits  = 6
	doubleDigits = 17
)

// appendReal appends a number as both servers do for FLOAT, DOUBLE and JSON:
// the fewest digits that read back as the number, but no more than digits; with
// an exponent if the point would lie more than 15 places away from the digits.
func appendReal(dst []byte, d float64, digits int) []byte {
	if abs := math.Abs(d); digits == doubleDigits && abs >= 1e-15 && abs < 1e15 {
		return strconv.AppendFloat(dst, d, 'f', -1, 64)
	}
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], d, 'e', -1, 64)
	if digits < doubleDigits && significant(text) > digits {
		text = strconv.AppendFloat(buf[:0], d, 'e', digits-1, 64)
	}
	if text[0] == '-' {
		dst, text = append(dst, '-'), text[1:]
	}
	e := bytes.IndexByte(text, 'e')
	exponent, _ := strconv.Atoi(string(text[e+1:]))
	mantissa := text[:1]
	if e > 1 { // drop the point
		mantissa = text[:1+copy(text[1:], text[2:e])]
	}
	mantissa = bytes.TrimRight(mantissa, "0")
	if len(mantissa) == 0 {
		return append(dst, '0')
	}
	// point is the number of digits before the decimal point.
	n, point := len(mantissa), exponent+1
	switch {
	case point < -14 || point > 15 && n <= point:
		dst = append(dst, mantissa[0])
		if n > 1 {
			dst = append(append(dst, '.'), mantissa[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), int64(exponent), 10)
	case point <= 0:
		dst = append(dst, "0."...)
		for range -point {
			dst = append(dst, '0')
		}
		return append(dst, mantissa...)
	case n > point:
		dst = append(append(dst, mantissa[:point]...), '.')
		return append(dst, mantissa[point:]...)
	}
	dst = append(dst, mantissa...)
	for range point - n {
		dst = append(dst, '0')
	}
	return dst
}

// significant counts the digits before the exponent.
func significant(text []byte) int {
	n := 0
	for _, c := range text {
		if c == 'e' {
			break
		}
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}

// appendFixed appends a number with exactly so many decimals: the shortest
// digits that read back as the number if they suffice, else rounded.
func appendFixed(dst []byte, d float64, decimals int) []byte {
	start := len(dst)
	dst = strconv.AppendFloat(dst, d, 'f', -1, 64)
	have := 0
	if i := bytes.IndexByte(dst[start:], '.'); i >= 0 {
		have = len(dst) - start - i - 1
	}
	if have > decimals {
		return strconv.AppendFloat(dst[:start], d, 'f', decimals, 64)
	}
	if have == 0 && decimals > 0 {
		dst = append(dst, '.')
	}
	for range decimals - have {
		dst = append(dst, '0')
	}
	return dst
}

// decimalBytes is how many bytes so many decimal digits take.
func decimalBytes(digits int) int {
	return digits/9*4 + [9]int{0, 1, 1, 2, 2, 3, 3, 4, 4}[digits%9]
}

// decimalSize is the size of a DECIMAL(precision, scale).
func decimalSize(precision, scale int) int {
	return decimalBytes(precision-scale) + decimalBytes(scale)
}

// appendDecimal appends a DECIMAL from its binary form: groups of nine digits
// as four bytes, big-endian, the odd digits of the integer part first and those
// of the fraction last; the first bit flipped; all bits flipped when negative.
// The value has decimalSize bytes.
func appendDecimal(dst, v []byte, precision, scale, width int) ([]byte, error) {
	if precision < 1 || scale < 0 || scale > precision || len(v) != decimalSize(precision, scale) {
		return dst, errValue
	}
	start := len(dst)
	var mask byte
	if v[0]&0x80 == 0 {
		mask = 0xff
		dst = append(dst, '-')
	}
	flip := mask ^ 0x80 // for the first byte
	integer := precision - scale
	digitsFrom := len(dst)
	group := func(digits int) bool {
		n := decimalBytes(digits)
		var g uint32
		for _, c := range v[:n] {
			g = g<<8 | uint32(c^flip)
			flip = mask
		}
		v = v[n:]
		before := len(dst)
		dst = appendDigits(dst, int(g), digits)
		return len(dst)-before == digits
	}
	sound := true
	if integer%9 > 0 {
		sound = group(integer % 9)
	}
	for range integer / 9 {
		sound = group(9) && sound
	}
	// Leading zeros are not shown, but one digit is.
	shown := bytes.TrimLeft(dst[digitsFrom:], "0")
	dst = append(dst[:digitsFrom], shown...)
	if len(shown) == 0 {
		dst = append(dst, '0')
	}
	if scale > 0 {
		dst = append(dst, '.')
		for range scale / 9 {
			sound = group(9) && sound
		}
		if scale%9 > 0 {
			sound = group(scale%9) && sound
		}
	}
	if !sound {
		return dst[:start], errValue
	}
	return zerofill(dst, start, width), nil
}
