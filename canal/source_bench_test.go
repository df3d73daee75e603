package canal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

// BenchmarkForeignStream reads a binlog of which 99 groups in 100 are of a table
// that is not wanted, as fast as it comes, and compares with what the server's
// own tool needs to fetch the same files without looking into them, in turns: the
// ratio is the median of the pairs.
func BenchmarkForeignStream(b *testing.B) {
	srv, err := lab.StartMySQL(b.Context(), lab.MySQLOptions{Kind: lab.MySQL97, Args: []string{
		"--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"}})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	db := srv.RootDB()
	run := func(s string) {
		if _, err := db.ExecContext(b.Context(), s); err != nil {
			b.Fatalf("%s: %v", s, err)
		}
	}
	const groups = 200_000
	run("CREATE DATABASE shop")
	run("CREATE TABLE shop.bill (id BIGINT AUTO_INCREMENT PRIMARY KEY, body VARCHAR(400))")
	run("CREATE TABLE shop.outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, body JSON)")
	run("CREATE PROCEDURE shop.fill(n INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < n DO START TRANSACTION;" +
		" INSERT INTO shop.bill (body) VALUES (REPEAT('b',200)), (REPEAT('c',200));" +
		" IF i % 100 = 0 THEN INSERT INTO shop.outbox (body) VALUES (JSON_OBJECT('a', i, 'text', REPEAT('t',250))); END IF;" +
		" COMMIT; SET i = i + 1; END WHILE; END")
	from, err := CurrentPosition(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	run(fmt.Sprintf("CALL shop.fill(%d)", groups))
	to, err := CurrentPosition(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	tool := binlogTool(b)
	dir := b.TempDir()
	host, port := "127.0.0.1", srv.Addr()[len("127.0.0.1:"):]
	outbox := TableName{"shop", "outbox"}

	var ours, cpu time.Duration
	var ratios []float64
	for b.Loop() {
		rows, at := 0, from
		s := NewSource(Options{
			Address: srv.Addr(), User: srv.RootUser(), DB: db,
			Tables: func(t TableName) (Interest, bool) { return Interest{}, t == outbox }, Existing: []TableName{outbox},
		})
		began, used := time.Now(), cpuTime(b)
		err := s.Stream(b.Context(), Start{Position: from.Clone()}, func(batch Batch) error {
			rows += len(batch.Rows)
			if at.File, at.Offset = batch.End.File, batch.End.Offset; at.Reached(to.File, to.Offset) {
				return errEnough
			}
			return nil
		})
		mine := time.Since(began)
		ours += mine
		cpu += cpuTime(b) - used
		if !errors.Is(err, errEnough) || rows != groups/100 {
			b.Fatalf("read %d rows: %v", rows, err)
		}
		began = time.Now()
		fetch := exec.Command(tool, "--no-defaults", "--read-from-remote-server", "--raw", "--to-last-log", "--host="+host, "--port="+port,
			"--user="+srv.RootUser(), "--result-file="+dir+"/", from.File)
		if out, err := fetch.CombinedOutput(); err != nil {
			b.Fatalf("mysqlbinlog: %v: %s", err, out)
		}
		ratios = append(ratios, time.Since(began).Seconds()/mine.Seconds())
	}
	n := float64(b.N)
	b.ReportMetric(float64(to.Offset-from.Offset)/1e6*n/ours.Seconds(), "MB/s")
	b.ReportMetric(float64(groups)*n/ours.Seconds(), "groups/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/n/groups, "cpu-ns/group")
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "of-mysqlbinlog")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// binlogTool is mysqlbinlog, from PATH or the lab.
func binlogTool(b *testing.B) string {
	if path, err := exec.LookPath("mysqlbinlog"); err == nil {
		return path
	}
	cache, err := lab.CacheDir()
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(cache, string(lab.MySQL97), "usr/bin/mysqlbinlog")
	if _, err := os.Stat(path); err != nil {
		b.Fatalf("find mysqlbinlog: %v", err)
	}
	return path
}

// BenchmarkTransactionOfAMillionRows reads one transaction of 1,000,000 rows,
// spooled past 8 MiB, and reports the heap that it takes at most.
func BenchmarkTransactionOfAMillionRows(b *testing.B) {
	srv, err := lab.StartMySQL(b.Context(), lab.MySQLOptions{Kind: lab.MariaDB1011, Args: []string{ownTemporaries}})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	db := srv.RootDB()
	run := func(s string) {
		if _, err := db.ExecContext(b.Context(), s); err != nil {
			b.Fatalf("%s: %v", s, err)
		}
	}
	const rows = 1_000_000
	run("CREATE DATABASE shop")
	run("CREATE TABLE shop.outbox (id BIGINT PRIMARY KEY, body VARCHAR(200))")
	from, err := CurrentPosition(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	run(fmt.Sprintf("INSERT INTO shop.outbox SELECT seq, REPEAT('x',100) FROM shop.seq_1_to_%d", rows))
	var peak uint64
	for b.Loop() {
		s := NewSource(Options{
			Address: srv.Addr(), User: srv.RootUser(), DB: db, SpoolDir: b.TempDir(),
			Tables: func(t TableName) (Interest, bool) { return Interest{}, t == shopOutbox }, Existing: []TableName{shopOutbox},
		})
		read, parts := 0, 0
		err := s.Stream(b.Context(), Start{Position: from.Clone()}, func(batch Batch) error {
			if read += len(batch.Rows); batch.End != nil {
				return errEnough
			}
			if parts++; parts%100 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
			return nil
		})
		if !errors.Is(err, errEnough) || read != rows {
			b.Fatalf("read %d rows: %v", read, err)
		}
	}
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(0, "ns/op")
}
