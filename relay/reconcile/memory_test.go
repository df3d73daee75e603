package reconcile_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay"
	"github.com/towpath/towpath/relay/reconcile"
)

// TOWPATH_LONG=1 takes the size that the promise is about.
func TestMemoryDoesNotGrowWithTheTables(t *testing.T) {
	t.Parallel()
	rows, at := 30_000, 1_000
	if os.Getenv("TOWPATH_LONG") != "" {
		rows, at = 10_000_000, 1_000_000
	}
	r := newRig(t, lab.MySQL97, lab.MariaDB1011, orders, "practice-b-orders.sql")
	began := time.Now()
	r.exec(r.db, "CREATE TABLE digit (d INT PRIMARY KEY); INSERT INTO digit VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
	r.exec(r.inbox, "CREATE TABLE digit (d INT PRIMARY KEY); INSERT INTO digit VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
	// A message id is 8 digits behind a hash of all but three, so that ids are in another order than
	// rows. Message 5 of each 1000 is missing, 7 is different, and one is unknown.
	const numbers = "SELECT ? + a.d*10000 + b.d*1000 + c.d*100 + e.d*10 + f.d AS n FROM digit a, digit b, digit c, digit e, digit f"
	const id = "CONCAT(LEFT(SHA2(n DIV 1000, 256), 6), '-', LPAD(n, 8, '0'))"
	const body = `'{"id": 1}'`
	for from := 0; from < rows; from += 100_000 {
		r.exec(r.db, "INSERT INTO biz_outbox (msg_id, biz_type, biz_id, payload, status, created_at) SELECT "+id+", 'x', '1', "+body+
			", 1, ? FROM ("+numbers+") AS numbers WHERE n < ?", r.ago(time.Hour), from, rows)
		r.exec(r.inbox, "INSERT INTO towpath_inbox SELECT 'stock', "+id+", UNHEX(SHA2(CONCAT(CHAR(1), 'x', "+body+
			", IF(n%1000=7, 'other', '')), 256)), ? FROM ("+numbers+") AS numbers WHERE n < ? AND n%1000 <> 5", r.ago(time.Hour), from, rows)
	}
	r.exec(r.inbox, "INSERT INTO towpath_inbox SELECT 'stock', 'nobody wrote it', content, processed_at FROM towpath_inbox LIMIT 1")
	loaded := time.Since(began)

	// The heap after a collection, at its highest; sampled once in so many rows.
	var early, peak uint64
	sampled := map[string]int64{}
	r.options.Progress = func(step string, n int64) {
		if n < sampled[step]+int64(at) {
			return
		}
		sampled[step] = n
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
		if n < 2*int64(at) {
			early = max(early, m.HeapAlloc)
		}
	}
	found := map[reconcile.Class]int{}
	sent, err := relay.OpenSent(t.Context(), r.config, r.source, r.table, "")
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	s, err := reconcile.Run(t.Context(), sent, r.records, r.options, func(d reconcile.Difference) error { found[d.Class]++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	each := rows / 1000
	if s.Sent != int64(rows) || s.Processed != int64(rows-2*each) || found[reconcile.Missing] != each || found[reconcile.Different] != each || found[reconcile.Unknown] != 1 {
		t.Errorf("summary %+v, found %v", s, found)
	}
	if peak == 0 || peak > 160<<20 {
		t.Errorf("%d rows took a heap of %d MiB", rows, peak>>20)
	}
	t.Logf("%d rows: loaded in %v, compared in %v (%.0f rows/s), highest heap %d MiB (%d MiB after the first %d rows), process at its highest %d MiB",
		rows, loaded.Round(time.Second), took.Round(time.Millisecond), float64(rows)/took.Seconds(), peak>>20, early>>20, 2*at, highWater(t))
}

// highWater is the most memory that this process has had, in MiB.
func highWater(t *testing.T) (mib int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib >> 10
		}
	}
	t.Fatal("/proc/self/status has no VmHWM")
	return 0
}
