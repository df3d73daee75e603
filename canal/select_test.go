package canal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

var keyTypes = []string{"BIT(12)", "BIT(64)", "YEAR", "DATE", "ENUM('ä', 'ß', 'x') CHARACTER SET latin1", "SET('ä', 'ß', 'x') CHARACTER SET latin1",
	"TINYINT", "BIGINT", "BIGINT UNSIGNED", "INT(7) ZEROFILL", "DECIMAL(10,0)", "DECIMAL(38,12)", "DECIMAL(65,30)", "DECIMAL(5,2) UNSIGNED ZEROFILL",
	"DOUBLE", "DOUBLE(12,4)", "DATETIME(6)", "TIMESTAMP(3)", "TIME(2)", "BINARY(16)", "VARBINARY(255)", "CHAR(12) CHARACTER SET latin1",
	"VARCHAR(100) CHARACTER SET utf8mb4", "VARCHAR(100) CHARACTER SET gbk", "VARCHAR(100) CHARACTER SET utf16", "UUID", "INET4", "INET6"}

func TestARowIsFoundByItsPrimaryKeyOfAnyType(t *testing.T) {
	onEachKind(t, func(t *testing.T, l *decodeLab) {
		r := rand.New(rand.NewPCG(5, 5))
		tried := 0
		for i, c := range columnTypes() {
			if c.only != "" && c.only != l.flavor || !slices.Contains(keyTypes, strings.TrimSuffix(c.definition, " NULL")) {
				continue
			}
			tried++
			table := fmt.Sprintf("k%d", i)
			l.exec("CREATE TABLE %s (v %s NOT NULL, n INT NOT NULL, PRIMARY KEY (v, n))", table, strings.TrimSuffix(c.definition, " NULL"))
			l.exec("BEGIN")
			for n := range 8 {
				l.exec("INSERT IGNORE INTO %s VALUES (%s, %d)", table, c.literal(r), n)
			}
			l.exec("COMMIT")
			shape := l.shape(table)
			rows, err := SelectRows(t.Context(), l.db, shape, Interest{}, "")
			if err != nil || len(rows) != 8 {
				t.Fatalf("%s: %d rows, %v", c.definition, len(rows), err)
			}
			for _, row := range rows {
				found, ok, err := SelectByKey(t.Context(), l.db, shape, Interest{}, row.Values, ShareLock(l.flavor))
				if err != nil || !ok || !reflect.DeepEqual(found.Values, row.Values) {
					t.Errorf("%s %q: found %t %q, %v", c.definition, row.Values, ok, found.Values, err)
					break
				}
			}
			l.exec("DELETE FROM %s", table)
			if _, ok, err := SelectByKey(t.Context(), l.db, shape, Interest{}, rows[0].Values, ShareLock(l.flavor)); ok || err != nil {
				t.Errorf("%s: a deleted row was found: %t, %v", c.definition, ok, err)
			}
		}
		if tried < len(keyTypes)-3 {
			t.Errorf("tried %d types of %d", tried, len(keyTypes))
		}
	})
}

func TestAKeyThatCannotBeFoundExactlyIsRefused(t *testing.T) {
	name := TableName{"s", "t"}
	text := []ShapeColumn{{Name: "a", DataType: "varchar"}}
	for what, c := range map[string]struct {
		shape Shape
		key   [][]byte
	}{
		"no primary key":                {Shape{Table: name, Columns: text}, [][]byte{}},
		"too few values":                {Shape{Table: name, Columns: text, Primary: []string{"a"}}, [][]byte{}},
		"a value that the image lacked": {Shape{Table: name, Columns: text, Primary: []string{"a"}}, [][]byte{nil}},
		"a FLOAT":                       {Shape{Table: name, Columns: []ShapeColumn{{Name: "a", DataType: "float"}}, Primary: []string{"a"}}, [][]byte{[]byte("1.5")}},
		"no number":                     {Shape{Table: name, Columns: []ShapeColumn{{Name: "a", DataType: "int"}}, Primary: []string{"a"}}, [][]byte{[]byte("x")}},
	} {
		if where, _, err := c.shape.KeyCondition(c.key); err == nil {
			t.Errorf("%s: got condition %q", what, where)
		}
	}
}

func TestIdentifiersAreQuoted(t *testing.T) {
	if got := (TableName{"a`b", "c.d"}).Quote(); got != "`a``b`.`c.d`" {
		t.Errorf("got %s", got)
	}
}

func TestARowFromSQLHasTheTableOfARowFromTheBinlog(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		l.exec("%s", outboxTable)
		l.exec("INSERT INTO outbox (event_id, aggregate_id, event_type, payload, status) VALUES (X'00', 'a', 'b', '{}', 'SENT')")
		wanted := Interest{Columns: func(name string) bool { return name == "payload" || name == "event_id" }}
		shape := l.shape("outbox")
		decoded, err := l.decodeAll(l.events()["outbox"], shape, wanted)
		if err != nil {
			t.Fatal(err)
		}
		selected, err := SelectRows(t.Context(), l.db, shape, wanted, "WHERE status = ? LIMIT 1", "SENT")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(decoded, selected) {
			t.Errorf("the binlog gives %+v of %+v, SQL %+v of %+v", decoded, decoded[0].Table, selected, selected[0].Table)
		}
		if got := written(decoded)[0]; got != `["1" "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" NULL NULL "{}" NULL NULL NULL]` {
			t.Errorf("got %s", got)
		}
		body := "json"
		if l.flavor == checkpoint.MariaDB {
			body = "longtext"
		}
		want := []Column{{Name: "id", Type: "bigint", Integer: true}, {Name: "event_id", Type: "binary", Binary: true}, {Name: "aggregate_id", Type: "varchar"},
			{Name: "event_type", Type: "varchar"}, {Name: "payload", Type: body}, {Name: "status", Type: "enum"}, {Name: "created_at", Type: "datetime"}, {Name: "sent_at", Type: "datetime"}}
		if got := decoded[0].Table.Columns; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAnEmptyValueIsNotNULL(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		l.exec("CREATE TABLE nothing (a VARCHAR(9) PRIMARY KEY, b TEXT, c TEXT)")
		l.exec("INSERT INTO nothing VALUES ('', '', NULL)")
		l.compare("nothing", l.events()["nothing"])
	})
}

func TestATableThatIsNotThereHasNoShape(t *testing.T) {
	onEachKind(t, func(t *testing.T, l *decodeLab) {
		if _, err := LoadShape(t.Context(), l.db, TableName{l.schema, "absent"}); !errors.Is(err, ErrNoTable) {
			t.Errorf("got %v", err)
		}
	})
}
