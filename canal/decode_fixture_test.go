package canal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

var update = flag.Bool("update", false, "capture testdata/rows anew from the lab's servers")

// A fixture is a captured piece of a real binlog: a table's shape, events as
// they came, and what SELECT showed of the rows.
type fixture struct {
	Flavor checkpoint.Flavor
	Shape  *Shape
	Events [][]byte // format description, then table maps and rows
	Shown  [][][]byte
}

func fixtures(t testing.TB) map[string]fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/rows/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := map[string]fixture{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f fixture
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = f
	}
	return all
}

// events takes the fixture's write-rows events apart with the library.
func (f fixture) events() ([]rowsEvent, error) {
	var found []rowsEvent
	p := newFixtureParser(f.Flavor, func(e rowsEvent) { found = append(found, e) })
	for _, raw := range f.Events {
		if err := parseGuarded(p, raw); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func newFixtureParser(flavor checkpoint.Flavor, each func(rowsEvent)) *replication.BinlogParser {
	p := replication.NewBinlogParser()
	p.SetFlavor(string(flavor))
	p.SetRowsEventDecodeFunc(func(re *replication.RowsEvent, data []byte) error {
		pos, err := re.DecodeHeader(data)
		if err == nil && re.Type() == replication.EnumRowsEventTypeInsert {
			each(rowsEvent{re, data[pos:]})
		}
		return err
	})
	return p
}

// parseGuarded parses one event; the library panics on bad ones.
func parseGuarded(p *replication.BinlogParser, raw []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("parse event: %v", r)
		}
	}()
	_, err = p.Parse(raw)
	return err
}

func TestCapturedRowsAreDecodedAsSelectShowedThem(t *testing.T) {
	if *update {
		capture(t)
	}
	for name, f := range fixtures(t) {
		events, err := f.events()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := 0
		for _, e := range events {
			p, err := newPlan(e.re.Table, f.Shape, Interest{}, f.Flavor)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rows, err := p.decode(e.re, e.body)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, row := range rows {
				for j, v := range row.Values {
					if got, want := difference(v, f.Shown[n][j]); !sameValue(v, f.Shown[n][j]) {
						t.Errorf("%s row %d, %s %s: got %s, SELECT showed %s", name, n, f.Shape.Columns[j].Name, f.Shape.Columns[j].ColumnType, got, want)
					}
				}
				n++
			}
		}
		if n == 0 || n != len(f.Shown) {
			t.Errorf("%s: got %d rows, SELECT showed %d", name, n, len(f.Shown))
		}
	}
}

// capture writes the fixtures: for each server a table of many types, and one
// like those that the program is for.
func capture(t *testing.T) {
	if err := os.MkdirAll("testdata/rows", 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"mysql-minimal", "mysql-full", "mariadb-none", "mariadb-full"}
	for i, s := range decodeServers {
		l := newDecodeLab(t, s.flavor, s.opts)
		r := rand.New(rand.NewPCG(4, uint64(i)))
		all := slices.DeleteFunc(columnTypes(), func(c columnType) bool {
			return c.only != "" && c.only != l.flavor || strings.Contains(c.definition, "m63") || strings.Contains(c.definition, "value 299")
		})
		var definitions string
		for k, c := range all {
			definitions += fmt.Sprintf(", c%d %s", k, c.definition)
		}
		l.exec("CREATE TABLE types (id INT PRIMARY KEY AUTO_INCREMENT%s)", definitions)
		l.fill(r, "types", all, 4)
		l.exec(outboxTable)
		for range 3 {
			l.exec("INSERT INTO outbox (event_id, aggregate_id, event_type, payload, status) VALUES (X'0123456789abcdef0123456789abcd00', 'order-4711', 'OrderPlaced', %s, 'PENDING')", quoted(outboxBody))
		}
		for _, table := range []string{"types", "outbox"} {
			f := fixture{Flavor: l.flavor, Shape: l.shape(table), Shown: l.show("SELECT * FROM " + table + " ORDER BY id")}
			f.Events = l.rawEvents(table)
			b, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join("testdata/rows", names[i]+"-"+table+".json"), append(b, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const outboxTable = `CREATE TABLE outbox (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, event_id BINARY(16) NOT NULL,
 aggregate_id VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL, event_type VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL, payload JSON NOT NULL,
 status ENUM('PENDING','SENT','FAILED') CHARACTER SET utf8mb4 NOT NULL, created_at DATETIME(6) NOT NULL DEFAULT '2024-05-06 07:08:09.123456', sent_at DATETIME(6) NULL)`

// outboxBody is a JSON body of about 300 bytes.
const outboxBody = `{"order": 4711, "customer": {"id": 815, "name": "Zoë Smith", "email": "zoe@example.org"}, "total": 129.95, "currency": "EUR", "lines": [{"sku": "A-100", "qty": 2, "price": 49.5}, {"sku": "B-200", "qty": 1, "price": 30.95}], "placed": "2024-05-06T07:08:09.123456Z", "express": true, "note": null}`

func TestBytesThatAreNoRowsAreAnErrorAndNotAPanic(t *testing.T) {
	for name, f := range fixtures(t) {
		events, err := f.events()
		if err != nil {
			t.Fatal(err)
		}
		e := events[0]
		p, err := newPlan(e.re.Table, f.Shape, Interest{}, f.Flavor)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.decode(e.re, e.body); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for cut := range len(e.body) {
			rows, err := p.decode(e.re, e.body[:cut])
			switch {
			case err == nil && len(rows) >= len(f.Shown):
				t.Errorf("%s: %d of %d bytes gave all rows", name, cut, len(e.body))
			case err == nil:
				whole++ // cut between two rows
			case !errors.Is(err, ErrRows):
				t.Errorf("%s: got %v", name, err)
			}
		}
		if whole > len(f.Shown) {
			t.Errorf("%s: %d cuts of an event were taken for whole", name, whole)
		}
	}
}

// FuzzDecodeRows feeds a table map and rows of any form to the planner and the
// decoder. The library's own panics are caught, ours are not.
func FuzzDecodeRows(f *testing.F) {
	all := fixtures(f)
	names := slices.Sorted(maps.Keys(all))
	for n, name := range names {
		events := all[name].Events
		for i := 1; i+1 < len(events); i++ {
			f.Add(n, events[i], events[i+1], true)
			f.Add(n, events[i], events[i+1], false)
		}
	}
	f.Fuzz(func(t *testing.T, which int, tableMap, rows []byte, withShape bool) {
		fix := all[names[uint(which)%uint(len(names))]]
		if !withShape {
			fix.Shape = nil
		}
		tableMap, rows = asEvent(tableMap, replication.TABLE_MAP_EVENT), asEvent(rows, replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2, replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1)
		if vetTableMap(tableMap[replication.EventHeaderSize:len(tableMap)-4]) != nil {
			return
		}
		fix.Events = [][]byte{fix.Events[0], tableMap, rows}
		events, err := fix.events()
		if err != nil {
			return
		}
		for _, e := range events {
			plan, err := newPlan(e.re.Table, fix.Shape, Interest{}, fix.Flavor)
			if err != nil {
				if !errors.Is(err, ErrShape) && !errors.Is(err, ErrUnsupported) {
					t.Errorf("got %v", err)
				}
				continue
			}
			got, err := plan.decode(e.re, e.body)
			if err != nil && !errors.Is(err, ErrRows) {
				t.Errorf("got %v", err)
			}
			for _, row := range got[:min(len(got), 3)] {
				if again, err := ParseImage(row.AppendImage(nil)); err != nil || !reflect.DeepEqual(again, row) {
					t.Errorf("a row does not survive being stored: %v", err)
				}
			}
		}
	})
}

// asEvent makes raw bytes an event of one of these types, with a header that
// tells its size.
func asEvent(raw []byte, kinds ...replication.EventType) []byte {
	raw = append([]byte{}, raw...)
	for len(raw) < replication.EventHeaderSize+4 {
		raw = append(raw, 0)
	}
	if !slices.Contains(kinds, replication.EventType(raw[4])) {
		raw[4] = byte(kinds[int(raw[4])%len(kinds)])
	}
	binary.LittleEndian.PutUint32(raw[9:], uint32(len(raw)))
	return raw
}

// FuzzJSON feeds documents of any form to the JSON writer.
func FuzzJSON(f *testing.F) {
	for _, fix := range fixtures(f) {
		events, err := fix.events()
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range events {
			for _, doc := range jsonDocuments(f, e, fix) {
				f.Add(doc)
			}
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		out, err := appendJSON(nil, doc)
		if err != nil {
			return
		}
		if len(out) > 128+20*len(doc) {
			t.Errorf("%d bytes became %d", len(doc), len(out))
		}
	})
}

// jsonDocuments gives the binary documents in an event.
func jsonDocuments(t testing.TB, e rowsEvent, fix fixture) [][]byte {
	p, err := newPlan(e.re.Table, fix.Shape, Interest{}, fix.Flavor)
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	for i, kind := range e.re.Table.ColumnType {
		if kind == typeJSON {
			p.columns[i].render = func(dst, v []byte, _ *format) ([]byte, error) {
				docs = append(docs, slices.Clone(v))
				return dst, nil
			}
		}
	}
	if _, err := p.decode(e.re, e.body); err != nil {
		t.Fatal(err)
	}
	return docs
}

func TestATableMapThatClaimsMoreValuesThanItHasIsRefusedBeforeItIsParsed(t *testing.T) {
	for name, f := range fixtures(t) {
		events, err := f.events()
		if err != nil || len(events) == 0 {
			t.Fatal(err)
		}
		tableMap := f.Events[1][replication.EventHeaderSize : len(f.Events[1])-4]
		if err := vetTableMap(tableMap); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, kind := range []byte{replication.TABLE_MAP_OPT_META_SET_STR_VALUE, replication.TABLE_MAP_OPT_META_ENUM_STR_VALUE} {
			claim := append(slices.Clone(tableMap), kind, 9, 0xfe, 0, 0, 0, 0, 0, 0, 1, 0) // 2^48 values
			if vetTableMap(claim) == nil {
				t.Errorf("%s: a list of 2^48 values in no bytes was accepted", name)
			}
		}
		if vetTableMap(tableMap[:20]) == nil {
			t.Errorf("%s: 20 bytes of a table map were accepted", name)
		}
	}
}

func FuzzParseImage(f *testing.F) {
	row := Row{Table: &Table{TableName: TableName{"s", "t"}, Columns: []Column{{Name: "id", Type: "bigint", Integer: true}, {Name: "b", Type: "blob", Binary: true}, {Name: "n", Type: "text"}}, Primary: []int{0}}, Values: [][]byte{[]byte("1"), {}, nil}}
	f.Add(row.AppendImage(nil))
	row.Incomplete = true
	f.Add(row.AppendImage(nil))
	f.Fuzz(func(t *testing.T, image []byte) {
		row, err := ParseImage(image)
		if err != nil {
			if !errors.Is(err, ErrImage) {
				t.Errorf("got %v", err)
			}
			return
		}
		again, err := ParseImage(row.AppendImage(nil))
		if err != nil || !reflect.DeepEqual(again, row) {
			t.Errorf("a row changes when it is stored again: %v", err)
		}
	})
}

// BenchmarkDecode decodes single-row events of an outbox table with a JSON body
// of 300 bytes.
func BenchmarkDecode(b *testing.B) {
	for name, f := range fixtures(b) {
		if !strings.HasSuffix(name, "-outbox") {
			continue
		}
		b.Run(strings.TrimSuffix(name, "-outbox"), func(b *testing.B) {
			events, err := f.events()
			if err != nil {
				b.Fatal(err)
			}
			p, err := newPlan(events[0].re.Table, f.Shape, Interest{}, f.Flavor)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(events[0].body)))
			for b.Loop() {
				if _, err := p.decode(events[0].re, events[0].body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	f := fixtures(b)["mysql-full-outbox"]
	events, err := f.events()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := newPlan(events[0].re.Table, f.Shape, Interest{}, f.Flavor); err != nil {
			b.Fatal(err)
		}
	}
}
