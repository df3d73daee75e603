package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// decodeServers are the servers that every decoder is compared on.
var decodeServers = []struct {
	name   string
	flavor checkpoint.Flavor
	opts   lab.MySQLOptions
}{
	{"MySQL 9.7 with minimal metadata", checkpoint.MySQL, lab.MySQLOptions{Kind: lab.MySQL97, RowMetadata: "MINIMAL"}},
	{"MySQL 9.7 with full metadata", checkpoint.MySQL, lab.MySQLOptions{Kind: lab.MySQL97, RowMetadata: "FULL"}},
	{"MariaDB 10.11 without metadata", checkpoint.MariaDB, lab.MySQLOptions{Kind: lab.MariaDB1011, RowMetadata: "NO_LOG"}},
	{"MariaDB 10.11 with full metadata", checkpoint.MariaDB, lab.MySQLOptions{Kind: lab.MariaDB1011, RowMetadata: "FULL", Compression: true}},
}

// decodeLab is one server with a database of the test's own.
type decodeLab struct {
	t      *testing.T
	srv    *lab.MySQLServer
	flavor checkpoint.Flavor
	full   bool // binlog_row_metadata=FULL
	schema string
	db     *sql.DB      // with sessions as the program's
	raw    *client.Conn // shows what the server sends, byte for byte
	file   string       // where the binlog stood at the start
	offset uint32
	fences int // tables made to find the end of the binlog
}

// onEachServer runs a test on each of the servers, side by side.
func onEachServer(t *testing.T, test func(t *testing.T, l *decodeLab)) {
	for _, s := range decodeServers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, newDecodeLab(t, s.flavor, s.opts))
		})
	}
}

// onEachKind is onEachServer for what does not depend on the binlog's metadata.
func onEachKind(t *testing.T, test func(t *testing.T, l *decodeLab)) {
	for _, s := range []int{1, 3} {
		s := decodeServers[s]
		t.Run(string(s.opts.Kind), func(t *testing.T) {
			t.Parallel()
			test(t, newDecodeLab(t, s.flavor, s.opts))
		})
	}
}

func newDecodeLab(t *testing.T, flavor checkpoint.Flavor, opts lab.MySQLOptions) *decodeLab {
	t.Helper()
	l := &decodeLab{t: t, srv: labtest.MySQL(t, opts), flavor: flavor, full: opts.RowMetadata == "FULL"}
	l.schema = labtest.Database(t, l.srv)
	cfg, err := mysql.ParseDSN(l.srv.DSN(l.schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := ConfigureSession(cfg); err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.db = sql.OpenDB(connector)
	t.Cleanup(func() { l.db.Close() })
	l.raw, err = client.Connect(l.srv.Addr(), l.srv.RootUser(), l.srv.RootPassword(), l.schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.raw.Close() })
	l.exec("SET NAMES utf8mb4")
	l.exec("SET time_zone = '+00:00', sql_mode = ''")
	status := "SHOW BINARY LOG STATUS"
	if flavor == checkpoint.MariaDB {
		status = "SHOW MASTER STATUS"
	}
	at := l.show(status)[0]
	l.file = string(at[0])
	fmt.Sscanf(string(at[1]), "%d", &l.offset)
	return l
}

// exec runs a statement in the raw session, which accepts zero dates and cuts
// off what is too long.
func (l *decodeLab) exec(format string, args ...any) {
	l.t.Helper()
	statement := format
	if len(args) > 0 {
		statement = fmt.Sprintf(format, args...)
	}
	if _, err := l.raw.Execute(statement); err != nil {
		l.t.Fatalf("%.300s: %v", statement, err)
	}
}

// show gives what SELECT shows, as the server sends it.
func (l *decodeLab) show(query string) [][][]byte {
	l.t.Helper()
	r, err := l.raw.Execute(query)
	if err != nil {
		l.t.Fatalf("%s: %v", query, err)
	}
	var out [][][]byte
	for _, data := range r.RowDatas {
		row := make([][]byte, len(r.Fields))
		for i := range row {
			v, null, n, err := gomysql.LengthEncodedString(data)
			if err != nil {
				l.t.Fatal(err)
			}
			if data = data[n:]; !null {
				row[i] = append([]byte{}, v...)
			}
		}
		out = append(out, row)
	}
	return out
}

func (l *decodeLab) shape(table string) *Shape {
	l.t.Helper()
	s, err := LoadShape(l.t.Context(), l.db, TableName{l.schema, table})
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// rowsEvent is one event as the library hands it out, table map included.
type rowsEvent struct {
	re   *replication.RowsEvent
	body []byte
}

// events reads the binlog from the start of the test to its present end and
// gives the write-rows events of the test's tables, by table.
func (l *decodeLab) events() map[string][]rowsEvent {
	l.t.Helper()
	found := map[string][]rowsEvent{}
	l.read(func(re *replication.RowsEvent, data []byte) error {
		pos, err := re.DecodeHeader(data)
		if err != nil {
			return err
		}
		if string(re.Table.Schema) == l.schema && re.Type() == replication.EnumRowsEventTypeInsert {
			table := string(re.Table.Table)
			found[table] = append(found[table], rowsEvent{re, data[pos:]})
		}
		return nil
	}, func(*replication.BinlogEvent) {})
	return found
}

// rawEvents gives the format description and then the table maps and
// write-rows events of one table as they come.
func (l *decodeLab) rawEvents(table string) [][]byte {
	l.t.Helper()
	var raw [][]byte
	l.read(nil, func(e *replication.BinlogEvent) {
		var of *replication.TableMapEvent
		switch v := e.Event.(type) {
		case *replication.FormatDescriptionEvent:
			raw = [][]byte{e.RawData}
		case *replication.TableMapEvent:
			of = v
		case *replication.RowsEvent:
			of = v.Table
		}
		if of != nil && string(of.Schema) == l.schema && string(of.Table) == table {
			raw = append(raw, e.RawData)
		}
	})
	return raw
}

// read reads the binlog from the start of the test to its present end.
func (l *decodeLab) read(rows func(*replication.RowsEvent, []byte) error, each func(*replication.BinlogEvent)) {
	l.t.Helper()
	if rows == nil {
		rows = func(re *replication.RowsEvent, data []byte) error { _, err := re.DecodeHeader(data); return err }
	}
	l.fences++
	fence := fmt.Sprintf("decode_fence_%d", l.fences)
	l.exec("CREATE TABLE %s (id INT)", fence)
	l.exec("INSERT INTO %s VALUES (1)", fence)
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: uint32(70000 + labReaders.Add(1)), Flavor: string(l.flavor),
		Host: "127.0.0.1", Port: port(l.srv.Addr()), User: l.srv.RootUser(), Password: l.srv.RootPassword(),
		DisableRetrySync: true, VerifyChecksum: true, Logger: slog.New(slog.DiscardHandler),
		RowsEventDecodeFunc: rows,
	})
	defer syncer.Close()
	stream, err := syncer.StartSync(gomysql.Position{Name: l.file, Pos: l.offset})
	if err != nil {
		l.t.Fatal(err)
	}
	for {
		e, err := stream.GetEvent(ctx)
		if err != nil {
			l.t.Fatal(err)
		}
		if re, ok := e.Event.(*replication.RowsEvent); ok && string(re.Table.Schema) == l.schema && string(re.Table.Table) == fence {
			return
		}
		each(e)
	}
}

// labReaders numbers the readers of all servers: each needs an id of its own.
var labReaders atomic.Int32

func port(addr string) uint16 {
	var p uint16
	fmt.Sscanf(addr[strings.LastIndexByte(addr, ':')+1:], "%d", &p)
	return p
}

// decodeAll decodes a table's events with its present shape.
func (l *decodeLab) decodeAll(events []rowsEvent, shape *Shape, interest Interest) ([]Row, error) {
	l.t.Helper()
	var p *plan
	var of *replication.TableMapEvent
	var rows []Row
	for _, e := range events {
		if of != e.re.Table {
			of = e.re.Table
			var err error
			if p, err = newPlan(e.re.Table, shape, interest, l.flavor); err != nil {
				return rows, err
			}
		}
		got, err := p.decode(e.re, e.body)
		if err != nil {
			return rows, err
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

// compare checks that the rows decoded from the binlog, the rows read by
// SelectRows and what the server sends for a SELECT are the same, byte for byte.
// The table's first column is its integer primary key, and order.
func (l *decodeLab) compare(table string, events []rowsEvent) {
	l.t.Helper()
	shape := l.shape(table)
	decoded, err := l.decodeAll(events, shape, Interest{})
	if err != nil {
		l.t.Errorf("%s: %v", table, err)
		return
	}
	var list []string
	for _, c := range shape.Columns {
		list = append(list, Quote(c.Name))
	}
	order := " ORDER BY " + list[0]
	want := l.show("SELECT " + strings.Join(list, ",") + " FROM " + Quote(table) + order)
	selected, err := SelectRows(l.t.Context(), l.db, shape, Interest{}, order)
	if err != nil {
		l.t.Errorf("%s: %v", table, err)
		return
	}
	if len(want) == 0 || len(decoded) != len(want) || len(selected) != len(want) {
		l.t.Errorf("%s: %d rows decoded, %d selected, want %d", table, len(decoded), len(selected), len(want))
		return
	}
	failures := 0
	for i := range want {
		for j := range want[i] {
			for how, row := range map[string]Row{"the binlog": decoded[i], "SelectRows": selected[i]} {
				if row.Incomplete {
					l.t.Errorf("%s: row %d from %s is incomplete", table, i, how)
					failures++
				} else if v := row.Values[j]; !sameValue(v, want[i][j]) {
					got, wanted := difference(v, want[i][j])
					l.t.Errorf("%s.%s %s, row %d: %s gives %s, SELECT %s", table, list[j], shape.Columns[j].ColumnType, i, how, got, wanted)
					failures++
				}
			}
			if failures > 8 {
				l.t.Errorf("%s: and so on", table)
				return
			}
		}
	}
}

func sameValue(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }

// difference shows two values from where they differ.
func difference(a, b []byte) (string, string) {
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	from = max(0, from-20)
	show := func(v []byte) string {
		switch {
		case v == nil:
			return "NULL"
		case from == 0 && len(v) <= 80:
			return fmt.Sprintf("%q", v)
		}
		return fmt.Sprintf("...%q... (%d bytes)", v[from:min(len(v), from+80)], len(v))
	}
	return show(a), show(b)
}

func wantError[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a %T", err, e)
	}
	return e
}
