package canal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

// rowsPerType is how many random values each column type is compared with on
// each server.
const rowsPerType = 500

// columnType is one column definition with a source of SQL literals for it.
type columnType struct {
	definition string
	literal    func(r *rand.Rand) string
	only       checkpoint.Flavor // empty: both
}

func columnTypes() []columnType {
	types := []columnType{
		{definition: "BIT(1)", literal: unsignedLiteral(1)},
		{definition: "BIT(12)", literal: unsignedLiteral(12)},
		{definition: "BIT(64)", literal: unsignedLiteral(64)},
		{definition: "YEAR", literal: func(r *rand.Rand) string { return pick(r, "0", "1901", "2155", fmt.Sprint(1901+r.IntN(255))) }},
		{definition: "DATE", literal: func(r *rand.Rand) string { return quoted(randomDate(r)) }},
		{definition: "ENUM('', 'a', 'b''c', 'd\\\\e', 'f\\ng', 'h,i', 'ö€') CHARACTER SET utf8mb4", literal: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(8)) }},
		{definition: "ENUM('ä', 'ß', 'x') CHARACTER SET latin1", literal: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(4)) }},
		{definition: bigEnum(300), literal: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(301)) }},
		{definition: "SET('a', 'b c', 'ü', 'd''e', 'ф') CHARACTER SET utf8mb4", literal: unsignedLiteral(5)},
		{definition: "SET('ä', 'ß', 'x') CHARACTER SET latin1", literal: unsignedLiteral(3)},
		{definition: bigSet(20), literal: unsignedLiteral(20)},
		{definition: bigSet(64), literal: unsignedLiteral(64)},
		{definition: "GEOMETRY", literal: randomGeometry},
		{definition: "POINT", literal: func(r *rand.Rand) string {
			return fmt.Sprintf("ST_GeomFromText('POINT(%g %g)')", r.Float64(), r.Float64())
		}},
		{definition: "VECTOR(7)", only: checkpoint.MySQL, literal: func(r *rand.Rand) string {
			return fmt.Sprintf("STRING_TO_VECTOR('[%g,%g,%g]')", r.Float32(), -r.Float32(), r.Float32()*1e20)
		}},
		{definition: "JSON", only: checkpoint.MariaDB, literal: func(r *rand.Rand) string {
			return quoted(fmt.Sprintf(`{"a":%d, "b" : ["ü\n"]}`, r.Int()))
		}},
		{definition: "UUID", only: checkpoint.MariaDB, literal: randomUUID},
		{definition: "INET4", only: checkpoint.MariaDB, literal: func(r *rand.Rand) string {
			return quoted(fmt.Sprintf("%d.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(3), r.IntN(2)))
		}},
		{definition: "INET6", only: checkpoint.MariaDB, literal: randomInet6},
	}
	for _, bits := range []struct {
		name string
		n    int
	}{{"TINYINT", 8}, {"SMALLINT", 16}, {"MEDIUMINT", 24}, {"INT", 32}, {"BIGINT", 64}} {
		types = append(types,
			columnType{definition: bits.name, literal: signedLiteral(bits.n)},
			columnType{definition: bits.name + " UNSIGNED", literal: unsignedLiteral(bits.n)},
			columnType{definition: bits.name + "(7) ZEROFILL", literal: unsignedLiteral(bits.n)},
			columnType{definition: bits.name + " ZEROFILL", literal: unsignedLiteral(bits.n)})
	}
	for _, d := range []struct{ precision, scale int }{{1, 0}, {1, 1}, {5, 2}, {9, 9}, {10, 0}, {18, 9}, {19, 10}, {30, 30}, {38, 12}, {65, 0}, {65, 30}} {
		types = append(types,
			columnType{definition: fmt.Sprintf("DECIMAL(%d,%d)", d.precision, d.scale), literal: decimalLiteral(d.precision, d.scale, true)},
			columnType{definition: fmt.Sprintf("DECIMAL(%d,%d) UNSIGNED ZEROFILL", d.precision, d.scale), literal: decimalLiteral(d.precision, d.scale, false)})
	}
	for _, real := range []string{"FLOAT", "FLOAT(7,3)", "FLOAT(20,10)", "DOUBLE", "DOUBLE(12,4)", "DOUBLE(40,20)", "FLOAT ZEROFILL", "FLOAT(9,2) ZEROFILL", "DOUBLE ZEROFILL", "DOUBLE(30,2) ZEROFILL"} {
		types = append(types, columnType{definition: real, literal: realLiteral(strings.HasPrefix(real, "FLOAT"))})
	}
	for fsp := 0; fsp <= 6; fsp++ {
		types = append(types,
			columnType{definition: fmt.Sprintf("DATETIME(%d)", fsp), literal: func(r *rand.Rand) string { return quoted(randomDate(r) + " " + randomClock(r, 24)) }},
			columnType{definition: fmt.Sprintf("TIMESTAMP(%d) NULL", fsp), literal: randomTimestamp},
			columnType{definition: fmt.Sprintf("TIME(%d)", fsp), literal: func(r *rand.Rand) string { return quoted(pick(r, "", "-") + randomClock(r, 839)) }})
	}
	for _, length := range []int{1, 16, 255} {
		types = append(types,
			columnType{definition: fmt.Sprintf("BINARY(%d)", length), literal: bytesLiteral(length)},
			columnType{definition: fmt.Sprintf("VARBINARY(%d)", length), literal: bytesLiteral(length)})
	}
	types = append(types, columnType{definition: "VARBINARY(256)", literal: bytesLiteral(256)}, columnType{definition: "VARBINARY(3000)", literal: bytesLiteral(600)})
	for _, size := range []string{"TINY", "", "MEDIUM", "LONG"} {
		types = append(types,
			columnType{definition: size + "BLOB", literal: bytesLiteral(255)},
			columnType{definition: size + "TEXT CHARACTER SET utf8mb4", literal: textLiteral("utf8mb4", 60)},
			columnType{definition: size + "TEXT CHARACTER SET latin1", literal: textLiteral("latin1", 60)},
			columnType{definition: size + "TEXT CHARACTER SET utf16", literal: textLiteral("utf16", 60)})
	}
	for _, charset := range textCharsets() {
		only := checkpoint.Flavor("")
		if charset == "gb18030" {
			only = checkpoint.MySQL
		}
		types = append(types,
			columnType{definition: "CHAR(12) CHARACTER SET " + charset, literal: textLiteral(charset, 12), only: only},
			columnType{definition: "VARCHAR(100) CHARACTER SET " + charset, literal: textLiteral(charset, 100), only: only})
	}
	types = append(types, columnType{definition: "CHAR(255) CHARACTER SET utf8mb4", literal: textLiteral("utf8mb4", 255)})
	return types
}

// Types that lie side by side must not disturb each other either: they are
// dealt into tables at random, anew on each server.
func TestEveryTypeIsDecodedAsSelectShowsIt(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		r := rand.New(rand.NewPCG(1, uint64(l.offset)))
		all := slices.DeleteFunc(columnTypes(), func(c columnType) bool { return c.only != "" && c.only != l.flavor })
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var tables []string
		for _, columns := range chunks(all, 12) {
			var definitions strings.Builder
			for i, c := range columns {
				fmt.Fprintf(&definitions, ", c%d %s", i, c.definition)
			}
			table := fmt.Sprintf("t%d", len(tables))
			tables = append(tables, table)
			l.exec("CREATE TABLE %s (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT%s)", table, definitions.String())
			l.fill(r, table, columns, rowsPerType)
		}
		events := l.events()
		for _, table := range tables {
			l.compare(table, events[table])
		}
	})
}

// fill inserts rows of random values, one in ten of them NULL.
func (l *decodeLab) fill(r *rand.Rand, table string, columns []columnType, n int) {
	l.t.Helper()
	l.exec("BEGIN")
	defer l.exec("COMMIT")
	for n > 0 {
		batch := min(n, 250)
		n -= batch
		var s strings.Builder
		fmt.Fprintf(&s, "INSERT IGNORE INTO %s VALUES ", table)
		for i := range batch {
			if i > 0 {
				s.WriteByte(',')
			}
			s.WriteString("(NULL")
			for _, c := range columns {
				s.WriteByte(',')
				if r.IntN(10) == 0 {
					s.WriteString("NULL")
				} else {
					s.WriteString(c.literal(r))
				}
			}
			s.WriteByte(')')
		}
		l.exec("%s", s.String())
	}
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func quoted(s string) string {
	return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'", "\x00", "\\0").Replace(s) + "'"
}

func unsignedLiteral(bits int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		most := uint64(math.MaxUint64) >> (64 - bits)
		return pick(r, "0", "1", fmt.Sprint(most), fmt.Sprint(most>>1), fmt.Sprint(most>>1+1), fmt.Sprint(r.Uint64()&most), fmt.Sprint(r.Uint64()&most>>r.IntN(bits)))
	}
}

func signedLiteral(bits int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		most := int64(math.MaxInt64) >> (64 - bits)
		return pick(r, "0", "-1", "1", fmt.Sprint(most), fmt.Sprint(-most-1), fmt.Sprint(int64(r.Uint64())>>(64-bits)), fmt.Sprint(int64(r.Uint64())>>(64-bits)>>r.IntN(bits)))
	}
}

func digits(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + r.IntN(10))
	}
	return string(b)
}

func decimalLiteral(precision, scale int, signed bool) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		s := "0" + digits(r, r.IntN(precision-scale+1))
		if r.IntN(8) == 0 {
			s = "0" + strings.Repeat("9", precision-scale)
		}
		if scale > 0 {
			s += "." + pick(r, digits(r, r.IntN(scale)+1), strings.Repeat("0", scale), strings.Repeat("9", scale), strings.Repeat("0", scale-1)+"1")
		}
		if signed {
			s = pick(r, "", "-") + s
		}
		return s
	}
}

func realLiteral(single bool) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		switch r.IntN(6) {
		case 0:
			return pick(r, "0", "-0.0", "1", "-1", "0.1", "100000", "1000000", "10000000", "123456", "1234567", "999999.5", "0.0001", "0.00001", "1e14", "1e15", "1e16", "123456789012345", "1234567890123456", "12345678901234567", "1e-14", "1e-15", "1e-16", "1.5e-14", "1.25e-15", "3.40282e38", "1.17549e-38", "1e-45")
		case 1:
			return fmt.Sprintf("%de%d", r.IntN(100000), r.IntN(60)-30)
		case 2:
			return fmt.Sprintf("%.*f", r.IntN(8), (r.Float64()-0.5)*math.Pow10(r.IntN(20)))
		case 3:
			return strconv.FormatInt(int64(r.Uint64())>>r.IntN(63), 10)
		}
		for {
			d := math.Float64frombits(r.Uint64())
			if single {
				d = float64(math.Float32frombits(r.Uint32()))
			}
			if !math.IsNaN(d) && !math.IsInf(d, 0) {
				return strconv.FormatFloat(d, 'e', 17, 64)
			}
		}
	}
}

func randomDate(r *rand.Rand) string {
	return pick(r, "0000-00-00", "2020-00-00", "2020-02-00", "0000-01-01", "0001-01-01", "1000-01-01", "9999-12-31", "2024-02-29",
		fmt.Sprintf("%04d-%02d-%02d", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28)))
}

func randomClock(r *rand.Rand, hours int) string {
	return pick(r, "00:00:00", fmt.Sprintf("%02d:59:59.999999", hours-1), "00:00:00.000001", "00:00:00.5", "00:00:01",
		fmt.Sprintf("%02d:%02d:%02d.%s", r.IntN(hours), r.IntN(60), r.IntN(60), digits(r, 1+r.IntN(6))))
}

func randomTimestamp(r *rand.Rand) string {
	return quoted(pick(r, "0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2000-01-01 12:13:14.000001",
		fmt.Sprintf("%04d-%02d-%02d %s", 1971+r.IntN(66), 1+r.IntN(12), 1+r.IntN(28), randomClock(r, 24))))
}

func bytesLiteral(most int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		switch r.IntN(6) {
		case 0:
			clear(b)
		case 1:
			clear(b[len(b)/2:])
		case 2:
			for i := len(b) / 2; i < len(b); i++ {
				b[i] = ' '
			}
		}
		if len(b) == 0 {
			return "''"
		}
		return fmt.Sprintf("X'%x'", b)
	}
}

func textCharsets() []string {
	all := []string{"utf8mb4", "utf8mb3", "ascii", "ucs2", "utf16", "utf16le", "utf32"}
	for name := range singleByte {
		all = append(all, name)
	}
	for name := range multiByte {
		all = append(all, name)
	}
	return all
}

// textLiteral makes text of characters that the set is likely to have, some
// with spaces at the end.
func textLiteral(charset string, most int) func(*rand.Rand) string {
	pool := []rune("abz AZ09 \t\n\\'\"%<>&~\u007f")
	switch charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		pool = append(pool, []rune("éß€Ġ\u0120\u2020\u2000 \u3000中文\U0001F600\U00020020\U0010FFFF\uFFFD\uE000")...)
	case "utf8mb3", "ucs2":
		pool = append(pool, []rune("éß€Ġ\u0120\u2020\u2000 \u3000中文\uFFFD\uE000")...)
	default:
		if table, ok := singleByte[charset]; ok {
			pool = append(pool, []rune(table)...)
		} else if m, ok := multiByte[charset]; ok {
			m.once.Do(m.build)
			for code, r := range m.table {
				if code%37 == 0 {
					pool = append(pool, r)
				}
			}
		}
	}
	return func(r *rand.Rand) string {
		n := r.IntN(most + 1)
		runes := make([]rune, n)
		for i := range runes {
			runes[i] = pool[r.IntN(len(pool))]
		}
		if n > 2 && r.IntN(3) == 0 {
			runes[n-1], runes[n-2] = ' ', ' '
		}
		return quoted(string(runes))
	}
}

func bigEnum(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("'value %d'", i)
	}
	return "ENUM(" + strings.Join(names, ",") + ")"
}

func bigSet(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("'m%d'", i)
	}
	return "SET(" + strings.Join(names, ",") + ")"
}

func randomGeometry(r *rand.Rand) string {
	return pick(r,
		fmt.Sprintf("ST_GeomFromText('POINT(%g %g)')", r.Float64()*90, r.Float64()*90),
		fmt.Sprintf("ST_GeomFromText('POINT(%g %g)', 4326)", r.Float64()*90, r.Float64()*90),
		fmt.Sprintf("ST_GeomFromText('LINESTRING(0 0, %d %d)')", r.IntN(100)+1, r.IntN(100)+1),
		"ST_GeomFromText('POLYGON((0 0,10 0,10 10,0 10,0 0))')",
		"ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')")
}

func randomUUID(r *rand.Rand) string {
	b := make([]byte, 16)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	b[6] = b[6]&15 | byte(r.IntN(16))<<4
	switch r.IntN(4) {
	case 0:
		clear(b[10:])
	case 1:
		clear(b[:10])
	}
	return quoted(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

func randomInet6(r *rand.Rand) string {
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = pick(r, "0", "0", "0", fmt.Sprintf("%x", r.IntN(65536)), "1")
	}
	return quoted(pick(r, "::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "64:ff9b::1.2.3.4", "fe80::", "::ffff:0:0", "::5:6", strings.Join(groups, ":"), strings.Join(groups, ":"), strings.Join(groups, ":")))
}
