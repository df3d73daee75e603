package canal

import (
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// binaryCharset is the character set of byte strings.
const binaryCharset = "binary"

// A transcoder appends text of one character set to dst as utf8mb4, character
// by character as the servers' own conversion does it: what cannot be mapped
// becomes '?', one for each character. It never fails.
type transcoder func(dst, src []byte) []byte

// transcoderFor gives the conversion from a character set; false for one that
// is not known. utf8mb3 is accepted under its old name too.
func transcoderFor(charset string) (transcoder, bool) {
	switch charset {
	case "utf8mb4", "utf8mb3", "utf8", binaryCharset:
		return func(dst, src []byte) []byte { return append(dst, src...) }, true
	case "ascii":
		return appendASCII, true
	case "ucs2":
		return appendUCS2, true
	case "utf16":
		return func(dst, src []byte) []byte { return appendUTF16(dst, src, 0) }, true
	case "utf16le":
		return func(dst, src []byte) []byte { return appendUTF16(dst, src, 1) }, true
	case "utf32":
		return appendUTF32, true
	}
	if table, ok := singleByte[charset]; ok {
		return singleByteTranscoder(table), true
	}
	if t, ok := multiByte[charset]; ok {
		return t.append, true
	}
	return nil, false
}

func appendASCII(dst, src []byte) []byte {
	for _, c := range src {
		if c >= utf8.RuneSelf {
			c = '?'
		}
		dst = append(dst, c)
	}
	return dst
}

func appendUCS2(dst, src []byte) []byte {
	for ; len(src) >= 2; src = src[2:] {
		dst = appendRune(dst, rune(src[0])<<8|rune(src[1]))
	}
	if len(src) > 0 {
		dst = append(dst, '?')
	}
	return dst
}

// appendUTF16 takes the byte order as the index of the high byte.
func appendUTF16(dst, src []byte, high int) []byte {
	for len(src) >= 2 {
		r := rune(src[high])<<8 | rune(src[1-high])
		src = src[2:]
		if utf16.IsSurrogate(r) && len(src) >= 2 {
			if pair := utf16.DecodeRune(r, rune(src[high])<<8|rune(src[1-high])); pair != utf8.RuneError {
				r, src = pair, src[2:]
			}
		}
		dst = appendRune(dst, r)
	}
	if len(src) > 0 {
		dst = append(dst, '?')
	}
	return dst
}

func appendUTF32(dst, src []byte) []byte {
	for ; len(src) >= 4; src = src[4:] {
		dst = appendRune(dst, rune(src[0])<<24|rune(src[1])<<16|rune(src[2])<<8|rune(src[3]))
	}
	if len(src) > 0 {
		dst = append(dst, '?')
	}
	return dst
}

// appendRune appends a character, or '?' for what is none.
func appendRune(dst []byte, r rune) []byte {
	if !utf8.ValidRune(r) {
		return append(dst, '?')
	}
	return utf8.AppendRune(dst, r)
}

func singleByteTranscoder(table string) transcoder {
	runes := []rune(table)
	return func(dst, src []byte) []byte {
		for _, c := range src {
			dst = utf8.AppendRune(dst, runes[c])
		}
		return dst
	}
}

// A codeRun says that the n codes from code on become the n characters from to
// on; all of them become '?' when to is '?'.
type codeRun struct {
	code uint32
	to   rune
	n    int
}

// multiByteCharset is a character set whose characters are one to four bytes.
// Its table is built on first use: x/text's mapping, corrected to the servers'.
type multiByteCharset struct {
	name string
	base encoding.Encoding
	// length is the length of the character that begins with these bytes.
	length func(src []byte) int

	once  sync.Once
	table map[uint32]rune // by code; x/text is asked for codes of four bytes that are not in it
}

var multiByte = func() map[string]*multiByteCharset {
	all := map[string]*multiByteCharset{}
	for _, c := range []*multiByteCharset{
		{name: "gbk", base: simplifiedchinese.GBK, length: twoBytes},
		{name: "gb2312", base: simplifiedchinese.GBK, length: twoBytes},
		{name: "gb18030", base: simplifiedchinese.GB18030, length: gb18030Length},
		{name: "big5", base: traditionalchinese.Big5, length: twoBytes},
		{name: "euckr", base: korean.EUCKR, length: twoBytes},
		{name: "sjis", base: japanese.ShiftJIS, length: sjisLength},
		{name: "cp932", base: japanese.ShiftJIS, length: sjisLength},
		{name: "ujis", base: japanese.EUCJP, length: ujisLength},
		{name: "eucjpms", base: japanese.EUCJP, length: ujisLength},
	} {
		all[c.name] = c
	}
	return all
}()

func twoBytes(src []byte) int {
	if src[0] < 0x80 {
		return 1
	}
	return 2
}

func gb18030Length(src []byte) int {
	switch {
	case src[0] < 0x80:
		return 1
	case len(src) > 1 && src[1] >= 0x30 && src[1] <= 0x39:
		return 4
	}
	return 2
}

func sjisLength(src []byte) int {
	if c := src[0]; c < 0x81 || c == 0xa0 || c >= 0xa1 && c <= 0xdf {
		return 1 // ASCII and half-width katakana
	}
	return 2
}

func ujisLength(src []byte) int {
	switch c := src[0]; {
	case c == 0x8f:
		return 3
	case c == 0x8e || c >= 0xa1:
		return 2
	}
	return 1
}

func (m *multiByteCharset) append(dst, src []byte) []byte {
	m.once.Do(m.build)
	for len(src) > 0 {
		if src[0] < utf8.RuneSelf {
			dst, src = append(dst, src[0]), src[1:]
			continue
		}
		n := m.length(src)
		if n > len(src) {
			return append(dst, '?')
		}
		r, ok := m.table[uint32(bigEndian(src[:n]))]
		switch {
		case ok:
		case n == 4:
			r = m.ask(src[:4])
		default:
			r = '?'
		}
		dst, src = utf8.AppendRune(dst, r), src[n:]
	}
	return dst
}

// ask gives x/text's character for one code, '?' for none.
func (m *multiByteCharset) ask(code []byte) rune {
	out, err := m.base.NewDecoder().Bytes(code)
	if err != nil {
		return '?'
	}
	r, size := utf8.DecodeRune(out)
	if r == utf8.RuneError || size != len(out) {
		return '?'
	}
	return r
}

func (m *multiByteCharset) build() {
	m.table = make(map[uint32]rune, 25000)
	add := func(code ...byte) {
		if m.length(code) != len(code) {
			return
		}
		if r := m.ask(code); r != '?' {
			m.table[uint32(bigEndian(code))] = r
		}
	}
	for a := 0x80; a < 0x100; a++ {
		add(byte(a))
		for b := 0x40; b < 0x100; b++ {
			add(byte(a), byte(b))
		}
	}
	for a := 0xa1; a < 0x100; a++ {
		for b := 0xa1; b < 0x100; b++ {
			add(0x8f, byte(a), byte(b))
		}
	}
	for _, run := range multiByteDiffs[m.name] {
		for i := range run.n {
			to := run.to
			if to != '?' {
				to += rune(i)
			}
			m.table[run.code+uint32(i)] = to
		}
	}
}
