package canal

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// variant is one kind of server that a test runs on.
type variant struct {
	name string
	opts lab.MySQLOptions
}

// A server that starts clears its folder for temporary tables, also of those of
// another server that still runs: each gets one of its own, the data folder.
const ownTemporaries = "--tmpdir=."

var (
	mysqlGTID    = variant{"MySQL with GTIDs", lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"}}
	mysqlPlain   = variant{"MySQL without GTIDs", lab.MySQLOptions{Kind: lab.MySQL97, Args: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}}
	mariaFull    = variant{"MariaDB", lab.MySQLOptions{Kind: lab.MariaDB1011, RowMetadata: "FULL", Args: []string{ownTemporaries}}}
	mariaDefault = variant{"MariaDB without metadata", lab.MySQLOptions{Kind: lab.MariaDB1011, Args: []string{ownTemporaries}}}

	allVariants = []variant{mysqlGTID, mysqlPlain, mariaFull, mariaDefault}
)

// onEach runs a test on a clean database of each kind of server, with the
// outbox table in it.
func onEach(t *testing.T, variants []variant, test func(t *testing.T, f *rig)) {
	t.Helper()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			f := newRig(t, labtest.MySQL(t, v.opts))
			f.mixes = !v.opts.GTID
			test(t, f)
		})
	}
}

// rig is a database with an outbox table, and sources that read it.
type rig struct {
	*testing.T
	srv    *lab.MySQLServer
	schema string
	db     *sql.DB
	outbox TableName
	mixes  bool // the server lets a transaction change tables of both kinds
}

const createOutbox = "CREATE TABLE outbox (id BIGINT NOT NULL PRIMARY KEY, payload VARCHAR(200), note VARCHAR(200)) ENGINE=InnoDB"

func newRig(t *testing.T, srv *lab.MySQLServer) *rig {
	t.Helper()
	f := &rig{T: t, srv: srv}
	f.schema, f.db = labtest.DB(t, srv)
	f.outbox = TableName{f.schema, "outbox"}
	f.exec(createOutbox, "CREATE TABLE other (id BIGINT NOT NULL PRIMARY KEY, payload VARCHAR(200)) ENGINE=InnoDB")
	return f
}

func (f *rig) exec(statements ...string) {
	f.Helper()
	for _, s := range statements {
		if _, err := f.db.ExecContext(f.Context(), s); err != nil {
			f.Fatalf("%s: %v", s, err)
		}
	}
}

// session runs statements on one connection.
func (f *rig) session(statements ...string) {
	f.Helper()
	conn, err := f.db.Conn(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Close()
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) // its settings die with it
	for _, s := range statements {
		if _, err := conn.ExecContext(f.Context(), s); err != nil {
			f.Fatalf("%s: %v", s, err)
		}
	}
}

func (f *rig) insert(first, last int) {
	f.Helper()
	for id := first; id <= last; id++ {
		f.exec(fmt.Sprintf("INSERT INTO outbox VALUES (%d, 'payload %d', NULL)", id, id))
	}
}

// here is the server's current position.
func (f *rig) here() checkpoint.Position {
	f.Helper()
	p, err := CurrentPosition(f.Context(), f.db)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// purge removes all binlog files but the last. A file that a stream of an
// earlier test still holds could not be, so those are ended first.
func (f *rig) purge() {
	f.Helper()
	for range 500 {
		f.exec("PURGE BINARY LOGS TO '" + f.here().File + "'")
		logs, err := binaryLogs(f.Context(), f.db)
		if err != nil {
			f.Fatal(err)
		}
		if len(logs) == 1 {
			return
		}
		err = records(f.Context(), f.db, "SHOW PROCESSLIST", func(get func(string) string) error {
			if strings.HasPrefix(get("Command"), "Binlog Dump") {
				f.db.ExecContext(f.Context(), "KILL "+get("Id")) // it may end by itself meanwhile
			}
			return nil
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Fatal("the server keeps its binlog files")
}

// start is a place to begin at: the current position and shape.
func (f *rig) start() Start {
	f.Helper()
	shape, err := LoadShape(f.Context(), f.db, f.outbox)
	if err != nil {
		f.Fatal(err)
	}
	return Start{Position: f.here(), Shapes: Shapes{f.outbox: shape}}
}

func (f *rig) options() Options {
	return Options{
		Address:  f.srv.Addr(),
		User:     f.srv.RootUser(),
		Password: func() (string, error) { return f.srv.RootPassword(), nil },
		Tables:   func(t TableName) (Interest, bool) { return Interest{}, t == f.outbox },
		Existing: []TableName{f.outbox},
		DB:       f.db,
	}
}

func (f *rig) source(change ...func(*Options)) *Source {
	o := f.options()
	for _, c := range change {
		c(&o)
	}
	return NewSource(o)
}

var errEnough = errors.New("read far enough")

// read streams from start up to the server's current position.
func (f *rig) read(s *Source, start Start) []Batch {
	f.Helper()
	batches, err := f.tryRead(s, start)
	if !errors.Is(err, errEnough) {
		f.Fatalf("stream: %v", err)
	}
	return batches
}

// tryRead is read that also returns why the stream ended.
func (f *rig) tryRead(s *Source, start Start) (batches []Batch, err error) {
	f.Helper()
	end := f.here()
	ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
	defer cancel()
	at := start.Position.Clone()
	if at.File == end.File && at.Offset == end.Offset {
		return nil, errEnough
	}
	err = s.Stream(ctx, start, func(b Batch) error {
		batches = append(batches, b)
		if b.End != nil {
			at.Advance(*b.End)
			if at.Reached(end.File, end.Offset) {
				return errEnough
			}
		}
		return nil
	})
	return batches, err
}

// refusal streams from start and returns why that failed.
func (f *rig) refusal(s *Source, start Start) error {
	f.Helper()
	end := f.here()
	ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
	defer cancel()
	return s.Stream(ctx, start, func(b Batch) error {
		if b.End != nil && b.End.File == end.File && b.End.Offset >= end.Offset {
			return errEnough
		}
		return nil
	})
}

// ids lists the first column of all rows.
func ids(batches []Batch) []string {
	var list []string
	for _, b := range batches {
		for _, r := range b.Rows {
			list = append(list, string(r.Values[0]))
		}
	}
	return list
}

func wantIDs(t testing.TB, batches []Batch, want ...string) {
	t.Helper()
	if got := ids(batches); !slices.Equal(got, want) {
		t.Errorf("got rows %v, want %v", strings.Join(got, " "), strings.Join(want, " "))
	}
}

func numbers(first, last int) []string {
	var list []string
	for i := first; i <= last; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

// swept lists the tables that the batches ask to sweep.
func swept(batches []Batch) []TableName {
	var list []TableName
	for _, b := range batches {
		list = append(list, b.Sweep...)
	}
	return list
}
