package canal

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func TestCommittedRowsArriveInCommitOrderWithTheEndOfTheirGroup(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 3)
		f.exec("INSERT INTO other VALUES (1, 'foreign')", "INSERT INTO outbox VALUES (4,'a',NULL),(5,'b','c')")
		batches := f.read(f.source(), start)
		wantIDs(t, batches, numbers(1, 5)...)
		at := start.Position.Clone()
		for _, b := range batches {
			if b.End == nil {
				t.Fatalf("a small group came in parts")
			}
			at.Advance(*b.End)
		}
		here := f.here()
		if fmt.Sprint(at) != fmt.Sprint(here) {
			t.Errorf("the marks lead to %v, the server is at %v", at, here)
		}
	})
}

func TestEachMarkIsAPlaceToBeginAt(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		for i := 1; i <= 6; i++ {
			f.session("BEGIN", fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", 2*i-1), "INSERT INTO other VALUES ("+fmt.Sprint(i)+",'y')",
				fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", 2*i), "COMMIT")
			if i == 3 {
				f.exec("FLUSH BINARY LOGS")
			}
		}
		all := f.read(f.source(), start)
		wantIDs(t, all, numbers(1, 12)...)
		at, seen := start.Position.Clone(), 0
		for _, b := range all {
			at.Advance(*b.End)
			seen += len(b.Rows)
			rest := f.read(f.source(), Start{Position: at.Clone(), Shapes: start.Shapes})
			wantIDs(t, rest, numbers(seen+1, 12)...)
		}
	})
}

func TestRowsOfManyMegabytesArriveWhole(t *testing.T) {
	big := lab.MySQLOptions{Kind: lab.MySQL97, Args: []string{"--max-allowed-packet=64M"}}
	bigMaria := lab.MySQLOptions{Kind: lab.MariaDB1011, Args: []string{"--max-allowed-packet=64M", ownTemporaries}}
	onOwn(t, []variant{{"MySQL", big}, {"MariaDB", bigMaria}}, func(t *testing.T, f *rig) {
		f.exec("ALTER TABLE outbox MODIFY payload LONGTEXT")
		start := f.start()
		// The protocol splits what has 16 MiB or more; one lies at the edge.
		sizes := []int{20 << 20, 1<<24 - 100, 1<<24 - 60, 1 << 24, 10}
		for i, size := range sizes {
			f.exec(fmt.Sprintf("INSERT INTO outbox VALUES (%d, REPEAT('%d', %d), 'n')", i, i, size))
		}
		s := f.source(func(o *Options) { o.TransactionBytes, o.SpoolDir = 1<<20, t.TempDir() })
		batches := f.read(s, start)
		wantIDs(t, batches, numbers(0, len(sizes)-1)...)
		for i, payload := range columnsOf(t, batches, "payload") {
			if payload != strings.Repeat(fmt.Sprint(i), sizes[i]) {
				t.Errorf("row %d: got %d bytes, want %d", i, len(payload), sizes[i])
			}
		}
	})
}

func TestChecksumsMayBeOffAndChange(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		g := f.follow(f.source(), start)
		for i, sum := range []string{"NONE", "CRC32", "NONE"} {
			f.exec("SET GLOBAL binlog_checksum="+sum, fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", i))
			g.awaitRow(t, fmt.Sprint(i)) // the change rotates the file under the stream
		}
		wantIDs(t, f.read(f.source(), start), numbers(0, 2)...)
		f.exec("SET GLOBAL binlog_checksum=CRC32")
		wantIDs(t, f.read(f.source(), start), numbers(0, 2)...)
	})
}

func TestFilesThatArePurgedBehindTheStreamDoNotStopIt(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mysqlPlain, mariaFull}, func(t *testing.T, f *rig) {
		f.purge() // ends streams of other tests, which would hold files
		first := f.here().File
		g := f.follow(f.source(), f.start())
		for i := range 5 {
			f.exec("FLUSH BINARY LOGS")
			f.insert(i, i)
			g.awaitRow(t, fmt.Sprint(i))
			f.exec("PURGE BINARY LOGS TO '" + f.here().File + "'")
		}
		if logs, err := binaryLogs(t.Context(), f.db); err != nil || logs[0].Name == first {
			t.Errorf("nothing was purged: %v, %v", logs, err)
		}
	})
}

func TestAnIdleStreamReachesTheServersPositionAfterARotation(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.insert(1, 1)
		start := f.start()
		f.exec("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
		// No group follows: the marks between groups lead there.
		if batches := f.read(f.source(), start); len(batches) == 0 {
			t.Error("no marks came")
		}
		g := f.follow(f.source(), f.start())
		f.insert(2, 2)
		g.awaitRow(t, "2")
	})
}

func TestProgressTellsHowFarTheStreamHasRead(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		s := f.source()
		if p := s.Progress(); !p.Heard.IsZero() || p.File != "" {
			t.Errorf("before the first connection: %+v", p)
		}
		start := f.start()
		f.insert(1, 1)
		f.read(s, start)
		here, p := f.here(), s.Progress()
		if p.File != here.File || p.Offset != here.Offset || time.Since(p.Event) > time.Minute || time.Since(p.Heard) > time.Minute {
			t.Errorf("progress %+v, the server is at %v", p, here)
		}
	})
}

func TestAnErrorOfTheReceiverEndsTheStreamWithIt(t *testing.T) {
	onEach(t, []variant{mysqlGTID}, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 1)
		refused := errors.New("no room")
		if err := f.source().Stream(t.Context(), start, func(Batch) error { return refused }); err != refused {
			t.Errorf("ended with %v", err)
		}
		opened := f.source(func(o *Options) { o.Opened = func(Session) error { return refused } })
		if err := opened.Stream(t.Context(), start, func(Batch) error { return nil }); err != refused {
			t.Errorf("ended with %v", err)
		}
	})
}
