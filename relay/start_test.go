package relay

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// insertMany inserts n bills.
func (s *shop) insertMany(table string, n int) {
	s.Helper()
	for n > 0 {
		batch := min(n, 1000)
		s.exec("INSERT INTO " + table + " (payload) VALUES ('{}')" + strings.Repeat(", ('{}')", batch-1))
		n -= batch
	}
}

func TestAFirstStartSendsWhatIsThereAndThenStreams(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills+keepNotes+deleteSlips, createBill, createNote, createSlip)
		s.insertMany("bill", 3000)
		s.insertMany("note", 1500)
		s.insertMany("slip", 1500)
		s.exec("UPDATE bill SET status='SENT' WHERE id % 3 = 0")
		stop := s.run()
		s.waitFor(5000)
		s.insertMany("bill", 100)
		s.insertMany("note", 100)
		s.waitFor(5200)
		s.wait("everything is marked", func() bool {
			return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" && s.value("SELECT COUNT(*) FROM slip") == "0"
		})
		stop()
		if twice := s.twice(); len(twice) > 0 {
			t.Errorf("%d ids came twice, as %.100v", len(twice), twice)
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='swept'"); n != "3" {
			t.Errorf("%s sweeps are in the audit, want 3", n)
		}
		if n := s.value("SELECT COUNT(*) FROM {state}.checkpoint_table WHERE sweep LIKE '%cursor%'"); n != "0" {
			t.Errorf("%s sweeps are left in the checkpoint", n)
		}
		for i := 1; i <= 3100; i++ {
			if id := fmt.Sprint(i); (s.times[id] == 1) != (i > 3000 || i%3 != 0) {
				t.Fatalf("bill %s arrived %d times", id, s.times[id])
			}
		}
	})
}

// A semi-synchronous commit hangs between the binlog and the engine: its row is
// before P and not visible. Without the write of its own that a start commits
// and waits for, the sweep would miss it and the stream would not bring it.
func TestAStartWaitsUntilRowsBeforeItsPositionAreVisible(t *testing.T) {
	t.Parallel()
	server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL",
		Args: []string{"--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-timeout=1500"}})
	s := newShop(t, server, keepNotes, createNote)
	c, err := configs.Parse("test.yaml", []byte(s.config()), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	s.exec("INSERT INTO " + s.state + ".lease (stream, term, holder, acquired_at, renewed_at, expires_at) VALUES ('shop', 1, 'me', NOW(6), NOW(6), '2099-01-01')")
	r := New(c, prometheus.NewRegistry(), zap.NewNop())
	here, err := canal.Inspect(t.Context(), s.db)
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{relay: r, term: &Term{Takeover: checkpoint.Takeover{Server: here.Identity, Fence: checkpoint.Fence{Stream: "shop", Term: 1, Holder: "me"}}}, log: zap.NewNop(), tables: newTables(c, r.metrics)}
	if err := l.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer l.db.Close()
	before, err := l.server.CurrentPlace(t.Context(), l.db)
	if err != nil {
		t.Fatal(err)
	}
	s.exec("SET GLOBAL rpl_semi_sync_source_enabled=1")
	inserted := make(chan struct{})
	go func() {
		defer close(inserted)
		if _, err := s.db.Exec("INSERT INTO note (id) VALUES (1)"); err != nil {
			t.Error(err)
		}
	}()
	s.wait("the row is in the binlog", func() bool {
		now, err := l.server.CurrentPlace(t.Context(), l.db)
		return err == nil && now.After(before)
	})
	if n := s.value("SELECT COUNT(*) FROM note"); n != "0" {
		t.Fatal("the commit did not hang")
	}
	if err := l.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.value("SELECT COUNT(*) FROM note"); !l.start.Position.After(before) || n != "1" {
		t.Errorf("the start is at %s behind %s, and shows %s rows", l.start.Position, before, n)
	}
	<-inserted
}

func TestAFirstStartUnderLoadMissesNoRow(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, keepNotes+markBills, createNote, createBill)
		var wg sync.WaitGroup
		halfway := make(chan struct{})
		for w := range 8 {
			wg.Go(func() {
				for i := range 100 {
					for _, table := range []string{"note", "bill"} {
						if _, err := s.db.Exec("INSERT INTO " + table + " (payload) VALUES ('{}')"); err != nil {
							t.Error(err)
							return
						}
					}
					if w == 0 && i == 30 {
						close(halfway)
					}
				}
			})
		}
		<-halfway
		stop := s.run()
		wg.Wait()
		s.waitFor(1600)
		s.wait("everything is marked", func() bool { return s.value("SELECT COUNT(*) FROM bill WHERE status='PENDING'") == "0" })
		stop()
		for id, n := range s.times {
			if n > 1 && !strings.HasPrefix(id, "n") {
				t.Errorf("bill %s came %d times: the stream did not see that the sweep had sent it", id, n)
			}
		}
	})
}

func TestASweepThatIsCutOffGoesOnWhereItWas(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, keepNotes+deleteSlips, createNote, createSlip)
		s.adjust = func(c *configs.Config) { c.DrainTimeout = time.Millisecond } // as good as a kill
		rows := 20000
		if os.Getenv("TOWPATH_LONG") != "" {
			rows = 5_000_000
		}
		s.insertMany("note", rows)
		s.insertMany("slip", 3000)
		for cut := 1; cut <= 3; cut++ {
			stop := s.run()
			s.waitLog("publishing")
			s.waitFor(rows * cut / 4)
			s.wait("the cursor is saved", func() bool {
				at := s.value(`SELECT COALESCE(MAX(JSON_EXTRACT(sweep, '$.sweep.found')), 0) FROM {state}.checkpoint_table WHERE table_name='note'`)
				n, _ := strconv.Atoi(at)
				return n > 0 || s.value("SELECT COUNT(*) FROM {state}.audit WHERE action='swept'") != "0"
			})
			stop()
		}
		stop := s.run()
		s.waitFor(rows + 3000)
		s.exec("INSERT INTO note (payload) VALUES ('{}')")
		s.waitFor(rows + 3001)
		stop()
		if extra := len(s.arrived) - rows - 3001; extra > rows {
			t.Errorf("%d messages came again after three cuts: the sweep began anew", extra)
		}
	})
}

func TestATableThatIsAddedLaterBeginsByItsOwnStart(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, markBills, createBill, createNote, createSlip)
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO bill (id) VALUES (1)")
		s.waitFor(1)
		stop()
		s.insertMany("note", 3)
		s.insertMany("slip", 3)
		s.exec("INSERT INTO bill (id) VALUES (2)")
		s.tables = markBills + strings.Replace(keepNotes, "start: all", "start: now", 1) + strings.Replace(deleteSlips, "after_publish", "start: now\n    after_publish", 1)
		stop = s.run()
		s.begun()
		s.insertMany("note", 1)
		s.insertMany("slip", 1)
		s.waitFor(4)
		quiet := s.session() // the fallback leaves what was there alone, and finds what comes
		quiet("SET SESSION sql_log_bin=0")
		quiet("INSERT INTO slip (id) VALUES (10)")
		s.waitFor(5)
		stop()
		if got := fmt.Sprint(s.times); got != fmt.Sprint(map[string]int{"1": 1, "2": 1, "n4": 1, "s4": 1, "s10": 1}) {
			t.Errorf("arrived %s", got)
		}
	})
}

func TestATableThatAppearsLaterIsStreamedFromItsFirstRow(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newShop(t, server, strings.Replace(strings.Replace(keepNotes, ".note", ".note_*", 1), "start: all", "start: now", 1), strings.Replace(createNote, "note", "note_a", 1))
		stop := s.run()
		s.begun()
		s.exec("INSERT INTO note_a (id) VALUES (1)")
		s.waitFor(1)
		stop() // it appears while nobody reads
		s.exec(strings.Replace(createNote, "note", "note_b", 1))
		s.exec("INSERT INTO note_b (id) VALUES (2)")
		stop = s.run()
		s.waitFor(2)
		stop()
	})
}
