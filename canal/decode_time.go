package canal

import (
	"encoding/binary"
	"time"
)

func renderYear(dst, v []byte, _ *format) ([]byte, error) {
	if v[0] == 0 {
		return append(dst, "0000"...), nil
	}
	return appendDigits(dst, 1900+int(v[0]), 4), nil
}

func renderDate(dst, v []byte, _ *format) ([]byte, error) {
	n := littleEndian(v)
	return appendDate(dst, n>>9, n>>5&15, n&31), nil
}

// renderDatetime2 reads 40 bits, big-endian and offset: 17 bits year*13+month,
// 5 bits day, 5 bits hour, 6 bits minute, 6 bits second; then the fraction.
func renderDatetime2(dst, v []byte, f *format) ([]byte, error) {
	packed := int64(bigEndian(v[:5])) - 1<<39
	if packed < 0 {
		return dst, errValue
	}
	return appendFraction(appendDatetime(dst, packed), v[5:], f.fraction), nil
}

// appendDatetime appends a packed date and time without fraction.
func appendDatetime(dst []byte, packed int64) []byte {
	date, clock := packed>>17, packed&(1<<17-1)
	dst = appendDate(dst, int(date>>5/13), int(date>>5%13), int(date&31))
	return appendClock(append(dst, ' '), int(clock>>12), int(clock>>6&63), int(clock&63))
}

func renderTimestamp2(dst, v []byte, f *format) ([]byte, error) {
	return appendFraction(appendUnix(dst, binary.BigEndian.Uint32(v)), v[4:], f.fraction), nil
}

// appendUnix appends Unix seconds in UTC. Zero is the zero date: a TIMESTAMP
// begins one second later.
func appendUnix(dst []byte, seconds uint32) []byte {
	if seconds == 0 {
		return append(dst, "0000-00-00 00:00:00"...)
	}
	t := time.Unix(int64(seconds), 0).UTC()
	dst = appendDate(dst, t.Year(), int(t.Month()), t.Day())
	return appendClock(append(dst, ' '), t.Hour(), t.Minute(), t.Second())
}

// renderTime2 reads 24 bits, big-endian and offset: a sign, an unused bit, 10
// bits hour, 6 bits minute, 6 bits second; then the fraction. A negative time
// is the negative of the whole, fraction included.
func renderTime2(dst, v []byte, f *format) ([]byte, error) {
	bits := 8 * len(v)
	packed := int64(bigEndian(v)) - 1<<(bits-1)
	if packed < 0 {
		dst, packed = append(dst, '-'), -packed
	}
	fractionBits := bits - 24
	clock := packed >> fractionBits
	dst = appendClock(dst, int(clock>>12&1023), int(clock>>6&63), int(clock&63))
	fraction := packed & (1<<fractionBits - 1)
	return appendPoint(dst, int(fraction), fractionBits/4, f.fraction), nil
}

// The types without a fraction that tables of old servers still hold.

func renderOldTimestamp(dst, v []byte, _ *format) ([]byte, error) {
	return appendUnix(dst, binary.LittleEndian.Uint32(v)), nil
}

func renderOldDatetime(dst, v []byte, _ *format) ([]byte, error) {
	n := binary.LittleEndian.Uint64(v)
	if n > 99991231235959 {
		return dst, errValue
	}
	date, clock := int(n/1e6), int(n%1e6)
	dst = appendDate(dst, date/1e4, date/100%100, date%100)
	return appendClock(append(dst, ' '), clock/1e4, clock/100%100, clock%100), nil
}

func renderOldTime(dst, v []byte, _ *format) ([]byte, error) {
	n := int(int32(uint32(littleEndian(v))<<8) >> 8)
	if n < 0 {
		dst, n = append(dst, '-'), -n
	}
	return appendClock(dst, n/1e4, n/100%100, n%100), nil
}

func bigEndian(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

func appendDate(dst []byte, year, month, day int) []byte {
	dst = append(appendDigits(dst, year, 4), '-')
	dst = append(appendDigits(dst, month, 2), '-')
	return appendDigits(dst, day, 2)
}

func appendClock(dst []byte, hour, minute, second int) []byte {
	dst = append(appendDigits(dst, hour, 2), ':')
	dst = append(appendDigits(dst, minute, 2), ':')
	return appendDigits(dst, second, 2)
}

// appendFraction appends the stored fraction of a second, two digits a byte.
func appendFraction(dst, stored []byte, digits int) []byte {
	return appendPoint(dst, int(bigEndian(stored)), 2*len(stored), digits)
}

// appendPoint appends the first digits of a fraction that has width digits.
func appendPoint(dst []byte, fraction, width, digits int) []byte {
	if digits == 0 {
		return dst
	}
	for ; width > digits; width-- {
		fraction /= 10
	}
	return appendDigits(append(dst, '.'), fraction, digits)
}

// appendDigits appends at least width digits.
func appendDigits(dst []byte, n, width int) []byte {
	var buf [20]byte
	i := len(buf)
	for n > 0 || width > 0 {
		i--
		buf[i] = byte('0' + n%10)
		n /= 10
		width--
	}
	return append(dst, buf[i:]...)
}
