package canal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// piece is an event of a size, told apart by its number.
func piece(n, size int) []byte {
	raw := make([]byte, size)
	binary.LittleEndian.PutUint32(raw, uint32(n))
	binary.LittleEndian.PutUint32(raw[9:], uint32(size))
	return raw
}

func pieces(t *testing.T, s *spool) []int {
	t.Helper()
	var got []int
	if err := s.each(func(raw []byte) error {
		got = append(got, int(binary.LittleEndian.Uint32(raw)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestASpoolGivesBackWhatItGotFromMemoryAndDisk(t *testing.T) {
	dir := t.TempDir()
	s := spool{limit: 2000, dir: dir}
	defer s.reset()
	for round := range 3 {
		var want []int
		for n := range 100 * round {
			if err := s.add(piece(n, 19+n)); err != nil {
				t.Fatal(err)
			}
			want = append(want, n)
		}
		if got := pieces(t, &s); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if onDisk := s.file != nil; onDisk != (round > 0) {
			t.Errorf("with %d events: on disk %t", 100*round, onDisk)
		}
		if s.size > s.limit {
			t.Errorf("%d bytes in memory, limit %d", s.size, s.limit)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("the spool has a name: a crash would leave %v", left)
		}
		s.reset()
		if !s.empty() || s.file != nil || len(openSpools(t)) > 0 {
			t.Error("reset keeps something")
		}
	}
}

// openSpools lists this process's open files that have lost their names.
func openSpools(t *testing.T) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, fd := range fds {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.Contains(name, "towpath-transaction") {
			list = append(list, name)
		}
	}
	return list
}

func TestASpoolForgetsWhatASavepointTakesBack(t *testing.T) {
	for _, limit := range []int64{1 << 20, 300, 0} { // all in memory, in both, all on disk
		s := spool{limit: limit, dir: t.TempDir()}
		add := func(from, to int) {
			for n := from; n <= to; n++ {
				if err := s.add(piece(n, 40)); err != nil {
					t.Fatal(err)
				}
			}
		}
		back := func(name string, want bool) {
			known, err := s.rollbackTo(name)
			if err != nil || known != want {
				t.Errorf("rollback to %s: known %t, %v", name, known, err)
			}
		}
		add(1, 2)
		s.save("a")
		add(3, 6)
		s.save("b")
		add(7, 8)
		back("b", true)
		add(9, 9)
		back("b", true)
		add(10, 10)
		back("a", true)
		back("b", false)
		add(11, 12)
		s.save("a")
		add(13, 13)
		back("a", true)
		add(14, 14)
		if got, want := pieces(t, &s), []int{1, 2, 11, 12, 14}; !slices.Equal(got, want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
		s.reset()
		back("a", false)
	}
}

func TestASpoolThatCannotWriteSaysWhere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	s := spool{dir: missing}
	if err := s.add(piece(1, 40)); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "spool_dir") {
		t.Errorf("without a folder: %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	s = spool{dir: "/full", file: full, writer: bufio.NewWriterSize(full, 64)}
	defer s.reset()
	if err := s.add(piece(1, 400)); err == nil || !strings.Contains(err.Error(), "/full") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("on a full disk: %v", err)
	}
}

func TestALargeTransactionIsReadInBoundedMemory(t *testing.T) {
	const rows = 200_000 // 8 MiB of rows, with 1 MiB of memory for them
	onEach(t, []variant{mariaFull}, func(t *testing.T, f *rig) {
		dir := t.TempDir()
		start := f.start()
		f.exec(fmt.Sprintf("INSERT INTO outbox SELECT seq, REPEAT('x',20), NULL FROM seq_1_to_%d", rows))
		s := f.source(func(o *Options) { o.TransactionBytes, o.SpoolDir = 1<<20, dir })
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		var peak uint64
		next, parts, largest := 1, 0, 0
		err := s.Stream(t.Context(), start, func(b Batch) error {
			for _, r := range b.Rows {
				if id := fmt.Sprint(next); string(r.Values[0]) != id {
					t.Fatalf("row %s came in the place of %s", r.Values[0], id)
				}
				next++
			}
			largest = max(largest, len(b.Rows))
			if parts++; parts%10 == 0 {
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
			}
			if len(b.Rows) > 0 && len(openSpools(t)) != 1 {
				t.Error("the transaction is not on disk")
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("the spool has a name")
			}
			if b.End != nil {
				return errEnough
			}
			return nil
		})
		if err != errEnough || next != rows+1 {
			t.Errorf("ended after %d rows: %v", next-1, err)
		}
		if grown := int64(peak) - int64(before.HeapAlloc); grown > 16<<20 {
			t.Errorf("the heap grew by %d MiB", grown>>20)
		}
		if largest > 2*partRows {
			t.Errorf("a part of %d rows", largest)
		}
		if len(openSpools(t)) > 0 {
			t.Error("the disk is not given back")
		}
	})
}

func TestARolledBackSpoolIsDropped(t *testing.T) {
	onEach(t, []variant{mysqlPlain, mariaFull}, func(t *testing.T, f *rig) {
		f.exec("CREATE TABLE flat (id INT) ENGINE=MyISAM")
		start := f.start()
		wide := string(bytes.Repeat([]byte("w"), 190))
		insert := func(first int) string {
			q := "INSERT INTO outbox VALUES "
			for i := range 200 {
				q += fmt.Sprintf("(%d,'%s','%s'),", first+i, wide, wide)
			}
			return strings.TrimSuffix(q, ",")
		}
		f.session("BEGIN", insert(1000), "INSERT INTO flat VALUES (1)", insert(2000), "ROLLBACK")
		f.session("BEGIN", insert(1), "SAVEPOINT s", "INSERT INTO flat VALUES (2)", insert(3000), "ROLLBACK TO s", "COMMIT")
		s := f.source(func(o *Options) { o.TransactionBytes, o.SpoolDir = 16<<10, t.TempDir() })
		wantIDs(t, f.read(s, start), numbers(1, 200)...)
		if len(openSpools(t)) > 0 {
			t.Error("the disk is not given back")
		}
	})
}
