package canal

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

func TestJSONIsWrittenAsTheServerWritesIt(t *testing.T) {
	for _, s := range decodeServers {
		if s.flavor != checkpoint.MySQL {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := newDecodeLab(t, s.flavor, s.opts)
			r := rand.New(rand.NewPCG(3, uint64(l.offset)))
			l.exec("CREATE TABLE j (id INT PRIMARY KEY AUTO_INCREMENT, v JSON)")
			document := columnType{literal: func(r *rand.Rand) string { return "JSON_EXTRACT(JSON_ARRAY(" + randomJSON(r, 4) + "), '$[0]')" }}
			l.fill(r, "j", []columnType{document}, 1500)
			// Beyond 64 KiB containers count in four bytes.
			for _, v := range []string{
				"(SELECT JSON_ARRAYAGG(n) FROM (WITH RECURSIVE c AS (SELECT 1 n UNION ALL SELECT n + 1 FROM c WHERE n < 1000) SELECT n * a.m n FROM c, (SELECT 1 m UNION SELECT 70000 UNION SELECT -5 UNION SELECT 1e10 UNION SELECT 40000 UNION SELECT -40000 UNION SELECT 0.5e0) a) x)",
				"JSON_OBJECT('a', REPEAT('x', 70000), 'b', 1, 'c', 70000, 'd', -70000, 'e', NULL, 'f', TRUE, 'g', JSON_ARRAY(1, 2), 'hh', 5000000000)",
				"JSON_ARRAY(REPEAT('é', 40000), JSON_OBJECT('k', JSON_ARRAY(REPEAT('\\n', 70000))))",
				nested(100),
				"'null'", "'[]'", "'{}'", "'\"\"'", "'0'", "'-0'", "'-0.0'", "'1.0'", "'18446744073709551615'", "'18446744073709551616'", "'-9223372036854775808'",
				"JSON_OBJECT('', '', 'a b', 1, '\"', 2, '\\\\', 3, 'é', 4, '\\n', 5)",
			} {
				l.exec("INSERT INTO j VALUES (NULL, %s)", v)
			}
			// An empty document: what INSERT IGNORE stores for a NULL.
			l.exec("CREATE TABLE e (id INT PRIMARY KEY AUTO_INCREMENT, v JSON NOT NULL)")
			l.exec("INSERT IGNORE INTO e (v) SELECT NULL FROM dual UNION ALL SELECT '[1]'")
			events := l.events()
			l.compare("j", events["j"])
			l.compare("e", events["e"])
		})
	}
}

func nested(depth int) string {
	return quoted(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

// randomJSON makes an SQL expression of a JSON document.
func randomJSON(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(3) > 0 {
		n := r.IntN(6)
		parts := make([]string, n)
		object := r.IntN(2) == 0
		for i := range parts {
			parts[i] = randomJSON(r, depth-1)
			if object {
				parts[i] = quoted(randomJSONText(r)+strconv.Itoa(r.IntN(5))) + "," + parts[i]
			}
		}
		if object {
			return "JSON_OBJECT(" + strings.Join(parts, ",") + ")"
		}
		return "JSON_ARRAY(" + strings.Join(parts, ",") + ")"
	}
	number := func(s string) string { return "CAST('" + s + "' AS JSON)" }
	switch r.IntN(16) {
	case 0:
		return number(pick(r, "true", "false", "null", "[]", "{}"))
	case 1:
		return number(signedLiteral(64)(r))
	case 2:
		return number(unsignedLiteral(64)(r))
	case 3:
		return number(signedLiteral(16)(r))
	case 4:
		return number(realLiteral(false)(r))
	case 5:
		for {
			if d := math.Float64frombits(r.Uint64()); !math.IsNaN(d) && !math.IsInf(d, 0) {
				return number(strconv.FormatFloat(d, 'g', -1, 64))
			}
		}
	case 6:
		p := 1 + r.IntN(65)
		s := r.IntN(min(p, 30) + 1)
		return fmt.Sprintf("CAST(CAST('%s' AS DECIMAL(%d,%d)) AS JSON)", decimalLiteral(p, s, true)(r), p, s)
	case 7:
		return fmt.Sprintf("CAST(CAST(%s AS DATE) AS JSON)", quoted(pick(r, "2020-01-01", "0000-00-00", "9999-12-31", "0001-02-03")))
	case 8:
		return fmt.Sprintf("CAST(CAST('%s%s' AS TIME(%d)) AS JSON)", pick(r, "", "-"), randomClock(r, 839), r.IntN(7))
	case 9:
		return fmt.Sprintf("CAST(CAST('%s %s' AS DATETIME(%d)) AS JSON)", randomDate(r), randomClock(r, 24), r.IntN(7))
	case 10:
		return "CAST(FROM_UNIXTIME(" + strconv.Itoa(1+r.IntN(math.MaxInt32)) + ".25) AS JSON)"
	case 11:
		return fmt.Sprintf("CAST(CAST(%s AS BINARY) AS JSON)", bytesLiteral(pickInt(r, 5, 57, 58, 400))(r))
	case 12:
		return pick(r, "CAST(b'1011' AS JSON)", "CAST(CAST(2020 AS YEAR) AS JSON)", "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)", "TRUE", "NULL", "1.50", "0.10e0", "X'00ff'")
	}
	return quoted(randomJSONText(r))
}

func pickInt(r *rand.Rand, from ...int) int { return from[r.IntN(len(from))] }

func randomJSONText(r *rand.Rand) string {
	pool := []rune("ab \"\\/\b\f\n\r\t\x01\x1f\x7f<>&'é€\u2028😀")
	n := r.IntN(12)
	if r.IntN(20) == 0 {
		n = 120 + r.IntN(20) // the length takes two bytes from 128 on
	}
	runes := make([]rune, n)
	for i := range runes {
		runes[i] = pool[r.IntN(len(pool))]
	}
	return string(runes)
}

func TestAHostileJSONDocumentIsAnErrorAndNotAFlood(t *testing.T) {
	// Each array holds its one child many times over: the text would be 2^60.
	bomb := []byte{jsonSmallArray}
	for range 60 {
		// two elements that both begin at offset 10: the next array
		bomb = append(bomb, 2, 0, 0, 0, jsonSmallArray, 10, 0, jsonSmallArray, 10, 0)
	}
	bomb = append(bomb, 0, 0, 4, 0)
	for at, size := 1, len(bomb)-1; at+4 <= len(bomb); at, size = at+10, size-10 {
		bomb[at+2], bomb[at+3] = byte(size), byte(size>>8)
	}
	// Arrays in arrays, one deeper than MySQL goes.
	deep := []byte{0, 0, 4, 0}
	for range maxJSONDepth {
		size := len(deep) + 7
		deep = append([]byte{1, 0, byte(size), byte(size >> 8), jsonSmallArray, 7, 0}, deep...)
	}
	for name, doc := range map[string][]byte{
		"a document too deep":              append([]byte{jsonSmallArray}, deep...),
		"a document that refers to itself": bomb,
		"an unknown type":                  {0x0d},
		"a literal that ends":              {jsonLiteral},
		"an unknown literal":               {jsonLiteral, 3},
		"an array without a size":          {jsonSmallArray, 1, 0},
		"an array larger than its bytes":   {jsonSmallArray, 1, 0, 200, 0},
		"an array without its entries":     {jsonSmallArray, 9, 0, 4, 0},
		"a key outside":                    {jsonSmallObject, 1, 0, 11, 0, 200, 0, 5, 0, jsonLiteral, 0, 0},
		"a value outside":                  {jsonSmallArray, 1, 0, 7, 0, jsonString, 200, 0},
		"a string that ends":               {jsonString, 5, 'a'},
		"a length without an end":          {jsonString, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80},
		"not a number":                     {jsonDouble, 1, 0, 0, 0, 0, 0, 0xf8, 0x7f},
		"a decimal without its digits":     {jsonOpaque, typeNewDecimal, 3, 10, 2, 0x80},
		"a time of two bytes":              {jsonOpaque, typeTime, 2, 0, 0},
	} {
		out, err := appendJSON([]byte("kept"), doc)
		if !errors.Is(err, errJSON) {
			t.Errorf("%s: got %v, want an error", name, err)
		}
		if string(out) != "kept" {
			t.Errorf("%s: left %q", name, out)
		}
	}
}
