package canal

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/towpath/towpath/checkpoint"
)

func TestCharsetsAgreeWithTheServerForEveryCode(t *testing.T) {
	onEachKind(t, func(t *testing.T, l *decodeLab) {
		for _, charset := range textCharsets() {
			if charset == "gb18030" && l.flavor == checkpoint.MariaDB {
				continue
			}
			transcode, ok := transcoderFor(charset)
			if !ok {
				t.Fatalf("no transcoder for %s", charset)
			}
			failures := 0
			for _, chunk := range chunks(everyCode(charset), 2000) {
				for i, want := range l.converted(charset, chunk) {
					// Bytes that are no character of the set cannot be stored: the
					// server refuses them, or converts them by halves.
					if utf8.RuneCount(want) != 1 || !utf8.Valid(want) {
						continue
					}
					if got := transcode(nil, chunk[i]); string(got) != string(want) {
						failures++
						if failures < 5 {
							t.Errorf("%s %x: got %q, the server gives %q", charset, chunk[i], got, want)
						}
					}
				}
			}
		}
	})
}

// converted asks the server for the conversion of each value; nil where it refuses.
func (l *decodeLab) converted(charset string, values [][]byte) [][]byte {
	l.t.Helper()
	var s strings.Builder
	s.WriteString("SELECT ")
	for i, v := range values {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, "HEX(CONVERT(CONVERT(X'%x' USING %s) USING utf8mb4))", v, charset)
	}
	row := l.show(s.String())[0]
	for i, v := range row {
		if len(v) == 0 {
			row[i] = nil
			continue
		}
		b, err := hex.DecodeString(string(v))
		if err != nil {
			l.t.Fatal(err)
		}
		row[i] = b
	}
	return row
}

// everyCode lists the codes of a character set, valid or not: all of one and
// two bytes, for the sets that have them those of three, and samples of what is
// longer.
func everyCode(charset string) [][]byte {
	var codes [][]byte
	add := func(code ...byte) { codes = append(codes, code) }
	wide := map[string]int{"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}[charset]
	if wide > 0 || strings.HasPrefix(charset, "utf8") {
		for r := rune(1); r <= 0x10ffff; r += 1 + r/200 {
			if wide == 0 {
				codes = append(codes, []byte(string(r)))
			} else if wide == 4 {
				add(byte(r>>24), byte(r>>16), byte(r>>8), byte(r))
			} else if r < 0x10000 {
				add(byte(r>>8), byte(r))
			} else if charset != "ucs2" {
				hi, lo := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
				add(byte(hi>>8), byte(hi), byte(lo>>8), byte(lo))
			}
		}
		if charset == "utf16le" {
			for _, c := range codes {
				for i := 0; i < len(c); i += 2 {
					c[i], c[i+1] = c[i+1], c[i]
				}
			}
		}
		return codes
	}
	for a := range 256 {
		add(byte(a))
	}
	if multiByte[charset] == nil {
		return codes
	}
	for a := 0x80; a < 256; a++ {
		for b := 0x40; b < 256; b++ {
			if code := []byte{byte(a), byte(b)}; multiByte[charset].length(code) == 2 {
				codes = append(codes, code)
			}
		}
	}
	switch charset {
	case "ujis", "eucjpms":
		for a := 0xa1; a < 256; a++ {
			for b := 0xa1; b < 256; b++ {
				add(0x8f, byte(a), byte(b))
			}
		}
	case "gb18030":
		for n := 0; n < 126*10*126*10; n += 1 + n/3000 {
			add(byte(0x81+n/12600), byte(0x30+n/1260%10), byte(0x81+n/10%126), byte(0x30+n%10))
		}
		add(0x84, 0x31, 0xa4, 0x37)
		for n := range 126 * 10 { // around the end of the basic plane
			add(0x84, 0x31, byte(0x81+n/10), byte(0x30+n%10))
		}
	}
	return codes
}

func chunks[T any](all []T, n int) [][]T {
	var out [][]T
	for ; len(all) > n; all = all[n:] {
		out = append(out, all[:n])
	}
	return append(out, all)
}
