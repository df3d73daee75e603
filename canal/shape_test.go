package canal

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

func TestAShapeSurvivesBeingStored(t *testing.T) {
	onEachKind(t, func(t *testing.T, l *decodeLab) {
		l.exec("%s", outboxTable)
		shape := l.shape("outbox")
		b, err := json.Marshal(shape)
		if err != nil {
			t.Fatal(err)
		}
		var again Shape
		if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(&again, shape) {
			t.Errorf("got %+v, %v, want %+v", again, err, shape)
		}
	})
}

func TestNamesOfAnEnumAreReadWithTheirEscapes(t *testing.T) {
	for list, want := range map[string][]string{
		`enum('a')`:                      {"a"},
		`enum('','a,b','c)d','''e''')`:   {"", "a,b", "c)d", "'e'"},
		`enum('a\\b','c\nd','\r','\0x')`: {`a\b`, "c\nd", "\r", "\x00x"},
		`enum('ü','中')`:                  {"ü", "中"},
		`enum('a'`:                       nil,
		`enum(a)`:                        nil,
		`enum('a',)`:                     nil,
		`enum('a''`:                      nil,
		`enum`:                           nil,
	} {
		c := ShapeColumn{DataType: "enum", ColumnType: list, Charset: "latin1"}
		got, ok := c.Names()
		if ok != (want != nil) || ok && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, %t, want %q", list, got, ok, want)
		}
	}
}

func TestEnumValuesThatTheSchemaCannotTellAreNotGuessed(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		l.exec("CREATE TABLE emoji (id INT PRIMARY KEY, v ENUM('a', '😀', '🦊') CHARACTER SET utf8mb4)")
		l.exec("INSERT INTO emoji VALUES (1, '😀'), (2, '🦊'), (3, 'a')")
		events := l.events()["emoji"]
		if l.full {
			l.compare("emoji", events)
			return
		}
		_, err := l.decodeAll(events, l.shape("emoji"), Interest{})
		if u := wantError[*UnsupportedError](t, err); u.Column != "v" || !strings.Contains(u.What, "binlog_row_metadata=FULL") {
			t.Errorf("got %v", err)
		}
		rows, err := l.decodeAll(events, l.shape("emoji"), Interest{Columns: func(string) bool { return false }})
		if err != nil || len(rows) != 3 {
			t.Errorf("an enum that nobody wants got %v", err)
		}
	})
}

// Old events meet a newer table: rows are never mapped to the wrong columns
// (P5). With full metadata the event's own names decide; without, what differs
// is found and refused.
func TestOldEventsAreNeverReadWithAnotherTablesColumns(t *testing.T) {
	for _, change := range []struct {
		name    string
		alter   string
		full    string // with names: what the row reads as, or "" for an error
		minimal bool   // without names: whether the event can still be read (as what it was)
	}{
		{"a column added last", "ADD z INT", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"a column added first", "ADD z INT FIRST", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"a column dropped", "DROP b", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"columns swapped", "MODIFY a BIGINT AFTER b", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"a column renamed", "RENAME COLUMN b TO bb", `id=1 a=7 b=x c=0042 d=1.5`, true},
		{"a zerofilled column renamed", "RENAME COLUMN c TO cc", "", true},
		{"a float renamed", "RENAME COLUMN d TO dd", "", true},
		{"a text made longer", "MODIFY b VARCHAR(200) CHARACTER SET latin1", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"an integer made larger", "MODIFY a BIGINT", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"another character set", "MODIFY b VARCHAR(5) CHARACTER SET utf8mb4", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"a column made mandatory", "MODIFY a INT NOT NULL", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"a number made unsigned", "MODIFY a INT UNSIGNED", `id=1 a=7 b=x c=0042 d=1.5`, false},
		{"another display width", "MODIFY c INT(6) ZEROFILL", `id=1 a=7 b=x c=000042 d=1.5`, true},
		{"an index more", "ADD KEY (a)", `id=1 a=7 b=x c=0042 d=1.5`, true},
	} {
		t.Run(change.name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, l *decodeLab) {
				l.exec("CREATE TABLE c (id INT PRIMARY KEY, a INT, b VARCHAR(20) CHARACTER SET latin1, c INT(4) ZEROFILL, d FLOAT)")
				l.exec("INSERT INTO c VALUES (1, 7, 'x', 42, 1.5)")
				l.exec("ALTER TABLE c %s", change.alter)
				rows, err := l.decodeAll(l.events()["c"], l.shape("c"), Interest{})
				if l.full {
					if change.full == "" {
						if !errors.Is(err, ErrShape) {
							t.Errorf("got %v, want an error of the shape", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if got := named(rows[0]); got != change.full {
						t.Errorf("got %s, want %s", got, change.full)
					}
					return
				}
				// MariaDB says nothing of signs and character sets without metadata.
				readable := change.minimal || l.flavor == checkpoint.MariaDB && (change.name == "a number made unsigned" || change.name == "another character set")
				if readable != (err == nil) || err != nil && !errors.Is(err, ErrShape) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// named writes a row with its columns' names.
func named(row Row) string {
	var s []string
	for i, c := range row.Table.Columns {
		s = append(s, fmt.Sprintf("%s=%s", c.Name, row.Values[i]))
	}
	return strings.Join(s, " ")
}

func TestABinaryThatMayBeAUUIDIsNotGuessed(t *testing.T) {
	onEachServer(t, func(t *testing.T, l *decodeLab) {
		if l.flavor != checkpoint.MariaDB || !l.full {
			return // MySQL has no such types, and without names the places decide
		}
		l.exec("CREATE TABLE u (id INT PRIMARY KEY, v UUID, w BINARY(16), x BINARY(5))")
		l.exec("INSERT INTO u VALUES (1, UUID(), 'a', 'b')")
		l.exec("ALTER TABLE u RENAME COLUMN v TO vv, RENAME COLUMN w TO ww, RENAME COLUMN x TO xx")
		events, shape := l.events()["u"], l.shape("u")
		for column, certain := range map[string]bool{"v": false, "w": false, "x": true} {
			_, err := l.decodeAll(events, shape, Interest{Columns: func(name string) bool { return name == column }})
			if certain != (err == nil) || err != nil && !errors.Is(err, ErrShape) {
				t.Errorf("%s: got %v", column, err)
			}
		}
	})
}
