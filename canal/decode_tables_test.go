package canal

import (
	"fmt"
	"testing"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

func TestTablesOfAnyMakeAreDecoded(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		tables := map[string][]string{
			"computed": {"CREATE TABLE computed (id INT PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a + 1) VIRTUAL, w VARCHAR(20) AS (CONCAT('x', a)) STORED, z INT)",
				"INSERT INTO computed (id, a, z) VALUES (1, 2, 3), (2, NULL, 4)"},
			"composite": {"CREATE TABLE composite (a INT, b VARCHAR(20), c BINARY(4), PRIMARY KEY (c, a))",
				"INSERT INTO composite VALUES (1, 'x', 'ab'), (2, NULL, '')"},
			"keyless": {"CREATE TABLE keyless (a INT, b VARCHAR(20))", "INSERT INTO keyless VALUES (1, 'x'), (2, NULL)"},
			"prefixed": {"CREATE TABLE prefixed (a VARCHAR(300) CHARACTER SET utf8mb4, b TEXT, PRIMARY KEY (a(10), b(5)))",
				"INSERT INTO prefixed VALUES ('aaaaaaaaaaaaaaaa', 'x'), ('b', 'y')"},
			"lastnull": {"CREATE TABLE lastnull (a INT PRIMARY KEY, b INT, c INT, d INT, e INT, f INT, g INT, h INT, i INT)",
				"INSERT INTO lastnull VALUES (1, 2, 3, 4, 5, 6, 7, 8, NULL), (2, NULL, 3, NULL, 5, 6, 7, NULL, 9)"},
			"partitioned": {"CREATE TABLE partitioned (a INT PRIMARY KEY, b INT) PARTITION BY HASH (a) PARTITIONS 3",
				"INSERT INTO partitioned VALUES (1, 2), (2, 3), (3, 4)"},
			"invisible": {"CREATE TABLE invisible (a INT PRIMARY KEY, b INT INVISIBLE DEFAULT 7, c INT)", "INSERT INTO invisible (a, c) VALUES (1, 2)"},
			"odd `name": {"CREATE TABLE `odd ``name` (`a``b` INT PRIMARY KEY, `ü ?` TEXT, `select` INT)", "INSERT INTO `odd ``name` VALUES (1, 'x', 3)"},
			"wide":      {wideTable(200), "INSERT INTO wide (c0, c1, c199) VALUES (1, 2, 3)"},
			"myisam":    {"CREATE TABLE myisam (a INT PRIMARY KEY, b BIT(5), c BIT(9)) ENGINE=MyISAM", "INSERT INTO myisam VALUES (1, 3, 300)"},
		}
		if l.flavor == checkpoint.MySQL {
			tables["functional"] = []string{"CREATE TABLE functional (a INT PRIMARY KEY, b VARCHAR(20), c INT, KEY ((LOWER(b))), KEY ((c * 2), b, (c + 1)))",
				"INSERT INTO functional VALUES (1, 'X', 3), (2, 'Y', NULL)"}
			tables["multivalued"] = []string{"CREATE TABLE multivalued (a INT PRIMARY KEY, j JSON, c INT, KEY ((CAST(j->'$.n' AS UNSIGNED ARRAY))), KEY ((CAST(j->'$.x' AS CHAR(30) ARRAY))))",
				"INSERT INTO multivalued VALUES (1, '{\"n\": [1, 2]}', 3), (2, '{\"x\": [\"a\", \"b\"]}', NULL), (3, NULL, 1)"}
			tables["gipk"] = []string{"CREATE TABLE gipk (b VARCHAR(20)) /* its key is made below */", "ALTER TABLE gipk ADD my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY INVISIBLE FIRST", "INSERT INTO gipk (b) VALUES ('x')"}
		} else {
			tables["hashed"] = []string{"CREATE TABLE hashed (a INT PRIMARY KEY, b TEXT UNIQUE, c INT)", "INSERT INTO hashed VALUES (1, 'x', 3), (2, 'y', 4)"}
			tables["versioned"] = []string{"CREATE TABLE versioned (a INT PRIMARY KEY, b INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING", "INSERT INTO versioned (a, b) VALUES (1, 2)"}
			tables["checked"] = []string{"CREATE TABLE checked (a INT PRIMARY KEY, j JSON, c INT)", "INSERT INTO checked VALUES (1, '{\"a\":[1,2]}', 3)"}
		}
		for _, statements := range tables {
			for _, s := range statements {
				l.exec("%s", s)
			}
		}
		events := l.events()
		for table := range tables {
			l.compare(table, events[table])
		}
	})
}

func wideTable(n int) string {
	s := "CREATE TABLE wide (c0 INT PRIMARY KEY"
	for i := 1; i < n; i++ {
		s += fmt.Sprintf(", c%d INT", i)
	}
	return s + ")"
}

func TestAnImageThatLacksColumnsGivesAnIncompleteRowWithItsKey(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		l.exec("CREATE TABLE m (id INT PRIMARY KEY AUTO_INCREMENT, a INT NULL, b TEXT, c VARCHAR(9) DEFAULT 'x')")
		l.exec("SET SESSION binlog_row_image = MINIMAL")
		l.exec("INSERT INTO m (a, b) VALUES (7, 'b'), (8, NULL)")
		l.exec("INSERT INTO m (id) VALUES (9)")
		l.exec("INSERT INTO m (a, b, c) VALUES (10, 'b', 'c')")
		l.exec("SET SESSION binlog_row_image = NOBLOB")
		l.exec("INSERT INTO m (a) VALUES (11)")
		events := l.events()["m"]
		shape := l.shape("m")
		rows, err := l.decodeAll(events, shape, Interest{})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{`["1" NULL NULL NULL] incomplete`, `["2" NULL NULL NULL] incomplete`, `["9" NULL NULL NULL] incomplete`, `["10" "10" "b" "c"]`, `["11" NULL NULL NULL] incomplete`}
		if got := fmt.Sprint(written(rows)); got != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		// What nobody asked for may be missing.
		rows, err = l.decodeAll(events, shape, Interest{Columns: func(name string) bool { return name == "a" }})
		if err != nil {
			t.Fatal(err)
		}
		want = []string{`["1" "7" NULL NULL]`, `["2" "8" NULL NULL]`, `["9" NULL NULL NULL] incomplete`, `["10" "10" NULL NULL]`, `["11" "11" NULL NULL]`}
		if got := fmt.Sprint(written(rows)); got != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// written writes rows for comparison.
func written(rows []Row) []string {
	var out []string
	for _, row := range rows {
		s := "["
		for i, v := range row.Values {
			if i > 0 {
				s += " "
			}
			if v == nil {
				s += "NULL"
			} else {
				s += fmt.Sprintf("%q", v)
			}
		}
		s += "]"
		if row.Incomplete {
			s += " incomplete"
		}
		out = append(out, s)
	}
	return out
}

func TestCompressedColumnsAreRefusedOnlyWhenTheyAreWanted(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		if l.flavor != checkpoint.MariaDB {
			return // MySQL has no such columns
		}
		for i, columns := range []string{
			"z TEXT COMPRESSED, a BIT(9), b DECIMAL(9,3) UNSIGNED, c DATETIME(3), d VARCHAR(300), e CHAR(5), f ENUM('a','b'), g FLOAT, h SMALLINT UNSIGNED ZEROFILL",
			"a BIT(9), z VARCHAR(700) COMPRESSED, b DECIMAL(9,3), c TIME(6), y VARBINARY(50) COMPRESSED, d TEXT, e BINARY(5), f SET('a','b'), g DOUBLE, h INT",
			"a INT, b INT, c INT, d INT, e INT, f INT, g INT, h INT, z LONGBLOB COMPRESSED",
		} {
			table := fmt.Sprintf("packed%d", i)
			l.exec("CREATE TABLE %s (id INT PRIMARY KEY, %s)", table, columns)
			l.exec("INSERT INTO %s (id, a, b, c, d, e, f, g, h, z) VALUES (1, 5, 1, 2, 3, 4, 1, 0.5, 7, REPEAT('xyz', 200)), (2, 6, NULL, 5, '', 'x', 2, 1.5, 8, 'short')", table)
		}
		events := l.events()
		for i := range 3 {
			table := fmt.Sprintf("packed%d", i)
			shape := l.shape(table)
			_, err := l.decodeAll(events[table], shape, Interest{})
			if u := wantError[*UnsupportedError](t, err); u.Column != "z" || u.Table.Name != table {
				t.Errorf("got an error about %s.%s", u.Table, u.Column)
			}
			plain := Interest{Columns: func(name string) bool { return name != "z" && name != "y" }}
			decoded, err := l.decodeAll(events[table], shape, plain)
			if err != nil {
				t.Errorf("%s: %v", table, err)
				continue
			}
			selected, err := SelectRows(t.Context(), l.db, shape, plain, "ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprint(written(decoded)), fmt.Sprint(written(selected)); got != want {
				t.Errorf("%s: the binlog gives %s, SELECT %s", table, got, want)
			}
		}
	})
}

func TestOldTypesWithoutFractionsAreDecoded(t *testing.T) {
	l := newDecodeLab(t, checkpoint.MariaDB, lab.MySQLOptions{Kind: lab.MariaDB1011, Args: []string{"--mysql56-temporal-format=OFF"}})
	l.exec("CREATE TABLE old (id INT PRIMARY KEY AUTO_INCREMENT, a TIME, b DATETIME, c TIMESTAMP NULL, d DATE, e INT)")
	l.exec("INSERT INTO old VALUES (NULL, '-838:59:59', '9999-12-31 23:59:59', '2038-01-19 03:14:07', '2024-02-29', 1), (NULL, '00:00:01', '0000-00-00 00:00:00', '0000-00-00', '0000-00-00', 2), (NULL, '-00:00:01', '1000-01-01', '1970-01-01 00:00:01', NULL, NULL), (NULL, NULL, NULL, NULL, NULL, 3), (NULL, '12:13:14', '2000-00-00 01:02:03', NOW(), '2000-00-00', 3)")
	l.exec("CREATE TABLE older (id INT PRIMARY KEY AUTO_INCREMENT, a TIME(3), b INT)")
	l.exec("INSERT INTO older VALUES (NULL, '12:13:14.567', 5)")
	events := l.events()
	l.compare("old", events["old"])
	_, err := l.decodeAll(events["older"], l.shape("older"), Interest{})
	wantError[*ShapeError](t, err)
}
