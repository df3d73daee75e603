package canal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

// corpus is a binlog file of a real server, in testdata.
type corpus struct {
	name   string
	flavor checkpoint.Flavor
	server variant
	before []string // settings of the session that wrote it
}

var corpora = []corpus{
	{"mysql97", checkpoint.MySQL, mysqlPlain, nil},
	{"mysql97-gtid", checkpoint.MySQL, mysqlGTID, []string{"SET gtid_next='AUTOMATIC:app'"}},
	{"mysql97-compressed", checkpoint.MySQL, mysqlGTID, []string{"SET binlog_transaction_compression=ON"}},
	{"mariadb1011", checkpoint.MariaDB, mariaDefault, nil},
	{"mariadb1011-compressed", checkpoint.MariaDB,
		variant{"MariaDB", lab.MySQLOptions{Kind: lab.MariaDB1011, Compression: true, RowMetadata: "FULL", Args: []string{ownTemporaries}}}, []string{"SET GLOBAL log_bin_compress_min_len=10"}},
}

// corpusStatements write something of all that frames a group, around the rows
// 1 to 8 that are committed and the row 9 that waits for a verdict.
var corpusStatements = []string{
	createOutbox, "CREATE TABLE other (id INT PRIMARY KEY, payload TEXT)", "CREATE TABLE flat (id INT) ENGINE=MyISAM",
	"INSERT INTO other VALUES (1, REPEAT('foreign ', 30))",
	"INSERT INTO outbox VALUES (1,'one',NULL)",
	"BEGIN", "INSERT INTO outbox VALUES (2,REPEAT('two ',40),NULL),(3,'three','')", "INSERT INTO other VALUES (2,'x')", "SAVEPOINT s", "INSERT INTO outbox VALUES (4,'four',NULL)", "COMMIT",
	"BEGIN", "INSERT INTO outbox VALUES (100,'no',NULL)", "ROLLBACK",
	"INSERT INTO flat VALUES (1)",
	"XA START 'a'", "INSERT INTO outbox VALUES (5,'five',NULL)", "XA END 'a'", "XA COMMIT 'a' ONE PHASE",
	"UPDATE outbox SET note='again' WHERE id<3", "DELETE FROM outbox WHERE id=3",
	"SET binlog_format=STATEMENT", "INSERT INTO outbox VALUES (200,'by statement',NULL)", "SET binlog_format=ROW",
	"SET binlog_row_image=MINIMAL", "INSERT INTO outbox (id) VALUES (6)", "SET binlog_row_image=FULL",
	"INSERT INTO outbox VALUES (7,'seven',NULL)", "TRUNCATE TABLE other", "INSERT INTO outbox VALUES (8,'eight',NULL)",
	"XA START 'b','c',5", "INSERT INTO outbox VALUES (9,'nine',NULL)", "XA END 'b','c',5", "XA PREPARE 'b','c',5", "XA COMMIT 'b','c',5",
}

func (c corpus) file() string { return filepath.Join("testdata", c.name+".binlog") }

// record has a server write the file.
func (c corpus) record(t *testing.T) {
	srv, err := lab.StartMySQL(t.Context(), c.server.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	conn, err := srv.RootDB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	statements := slices.Concat([]string{"FLUSH BINARY LOGS", "CREATE DATABASE shop", "USE shop"}, c.before, corpusStatements)
	for _, s := range statements {
		if strings.HasPrefix(s, "XA COMMIT 'b'") { // its session may not end the transaction on MariaDB
			conn.ExecContext(t.Context(), "SELECT 1")
		}
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	logs, err := binaryLogs(t.Context(), srv.RootDB())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "FLUSH BINARY LOGS"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(srv.Dir(), "data", logs[len(logs)-1].Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.file(), data, 0o644); err != nil {
		t.Fatal(err)
	}
	shape, err := LoadShape(t.Context(), srv.RootDB(), shopOutbox)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(shape, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(strings.TrimSuffix(c.file(), ".binlog")+".json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

var shopOutbox = TableName{"shop", "outbox"}

// fileEvents cuts a binlog file into its events.
func fileEvents(data []byte) (events [][]byte) {
	data = bytes.TrimPrefix(data, []byte("\xfebin"))
	for len(data) >= headerLen {
		size := binary.LittleEndian.Uint32(data[9:])
		if size < headerLen || uint64(size) > uint64(len(data)) {
			size = uint32(len(data))
		}
		events = append(events, bytes.Clone(data[:size]))
		data = data[size:]
	}
	return events
}

// offline is a reader without a server: definitions are what shape says.
func offline(flavor checkpoint.Flavor, shape *Shape, dir string, emit func(Batch) error) *reader {
	f := newFilter(func(t TableName) (Interest, bool) { return Interest{}, t == shopOutbox }, []TableName{shopOutbox})
	rows := newRowReader(flavor, f, nil, func(TableName, checkpoint.Mark) (*Shape, bool, error) {
		if shape == nil {
			return nil, false, ErrNoTable
		}
		return shape, true, nil
	})
	r := newReader(flavor, checkpoint.Position{}, "", f, rows, emit)
	r.group.received = spool{limit: 2000, dir: dir}
	r.place = place{file: "binlog.000001", offset: 4}
	return r
}

func (c corpus) shape(t testing.TB) *Shape {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(c.file(), ".binlog") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var s Shape
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestBinlogFilesOfRealServersAreReadWhole(t *testing.T) {
	for _, c := range corpora {
		t.Run(c.name, func(t *testing.T) {
			if *update {
				c.record(t)
			}
			data, err := os.ReadFile(c.file())
			if err != nil {
				t.Fatal(err)
			}
			var batches []Batch
			r := offline(c.flavor, c.shape(t), t.TempDir(), func(b Batch) error { batches = append(batches, b); return nil })
			defer r.close()
			for _, raw := range fileEvents(data) {
				if err := r.read(raw); err != nil {
					t.Fatal(err)
				}
			}
			wantIDs(t, batches, numbers(1, 9)...)
			if !slices.Equal(swept(batches), []TableName{shopOutbox}) {
				t.Errorf("sweeps of %v", swept(batches))
			}
			last := batches[len(batches)-1]
			if last.End.File == "binlog.000001" && int(last.End.Offset) > len(data) {
				t.Errorf("the last mark is at %d of %d bytes", last.End.Offset, len(data))
			}
			kinds := ""
			for _, b := range batches {
				kinds += fmt.Sprint(b.Kind)
			}
			if !strings.Contains(kinds, "12") {
				t.Errorf("kinds of groups are %s, want a prepare and its verdict", kinds)
			}
		})
	}
}

// FuzzReader feeds whatever comes as a binlog file: any error is fine, a panic,
// a hang or a row before its group's end is not.
func FuzzReader(f *testing.F) {
	shapes := map[checkpoint.Flavor]*Shape{}
	for _, c := range corpora {
		data, err := os.ReadFile(c.file())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, c.flavor == checkpoint.MariaDB)
		shapes[c.flavor] = c.shape(f)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, maria bool) {
		flavor := checkpoint.MySQL
		if maria {
			flavor = checkpoint.MariaDB
		}
		r := offline(flavor, shapes[flavor], dir, func(b Batch) error {
			if b.End == nil && len(b.Rows) == 0 {
				t.Fatal("a part of a group without rows")
			}
			return nil
		})
		defer r.close()
		for _, raw := range fileEvents(data) {
			if r.read(raw) != nil {
				return
			}
		}
	})
}
