package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

func position(t testing.TB, offset uint64) Position {
	return Position{Flavor: MySQL, Server: sidA.String(), File: "binlog.000001", Offset: offset, Created: 7,
		GTIDs: mustParse(t, MySQL, sidA.String()+":1-5"), Last: GTID{SID: sidA, Seq: 5}}
}

func TestWithoutStateTablesOpenSaysWhatToRun(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		for _, schema := range []string{b.schema, "no_such_schema"} {
			if _, err := Open(t.Context(), b.db, schema); err == nil || !strings.Contains(err.Error(), "run towpath init") {
				t.Errorf("%s: got %v", schema, err)
			}
		}
	})
}

func TestInitTwiceAndAtOnceMakesTheTablesOnce(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		var group sync.WaitGroup
		fresh := make(chan int, 8)
		for range 4 {
			group.Go(func() {
				from, to, err := Init(t.Context(), b.db, b.schema)
				if err != nil || to != Version {
					t.Errorf("from %d to %d: %v", from, to, err)
				}
				fresh <- from
			})
		}
		group.Wait()
		close(fresh)
		n := 0
		for from := range fresh {
			if from == 0 {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d of 4 found nothing there", n)
		}
		if got := b.value("SELECT COUNT(*) FROM {schema}.version"); got != strconv.Itoa(Version) {
			t.Errorf("%s versions recorded", got)
		}
		if got := b.value("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=? AND engine='InnoDB'", b.schema); got != "9" {
			t.Errorf("%s InnoDB tables", got)
		}
	})
}

func TestAnUpgradeAddsAndCanBeginAgainAfterACrash(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		next := fstest.MapFS{fmt.Sprintf("schema/%d.sql", Version+1): {Data: []byte(
			"ALTER TABLE {schema}.lease ADD COLUMN colour VARCHAR(8) NOT NULL DEFAULT '';\nALTER TABLE {schema}.audit ADD KEY audit_action (action);\n")}}
		b.exec("ALTER TABLE {schema}.lease ADD COLUMN colour VARCHAR(8) NOT NULL DEFAULT ''") // as far as the crashed one got
		if from, to, err := upgrade(t.Context(), b.db, b.schema, next, Version+1); err != nil || from != Version || to != Version+1 {
			t.Fatalf("from %d to %d: %v", from, to, err)
		}
		if _, err := Open(t.Context(), b.db, b.schema); err != nil {
			t.Errorf("this version does not run beside the next: %v", err)
		}
		b.take(b.lease(s), "still works")
		if from, to, err := Init(t.Context(), b.db, b.schema); err != nil || from != Version+1 || to != Version+1 {
			t.Errorf("an older init went from %d to %d: %v", from, to, err)
		}
		b.exec(fmt.Sprintf("INSERT INTO {schema}.version VALUES (%d, UTC_TIMESTAMP(6))", Version+2))
		if _, err := Open(t.Context(), b.db, b.schema); err == nil || !strings.Contains(err.Error(), "later program") {
			t.Errorf("version %d: %v", Version+2, err)
		}
		b.exec("DELETE FROM {schema}.version")
		if _, err := Open(t.Context(), b.db, b.schema); err == nil || !strings.Contains(err.Error(), "run towpath init") {
			t.Errorf("version 0: %v", err)
		}
	})
}

func TestThePrintedDDLIsWhatInitDoes(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		for statement := range strings.SplitSeq(DDL(b.schema), ";\n") {
			if strings.TrimSpace(statement) != "" {
				b.exec(statement)
			}
		}
		if from, to, err := Init(t.Context(), b.db, b.schema); err != nil || from != Version || to != Version {
			t.Fatalf("init after the script went from %d to %d: %v", from, to, err)
		}
		for _, table := range stateTables {
			b.exec("SELECT 1 FROM {schema}." + table.name)
		}
	})
}

func TestWhatWasSavedIsWhatTheNextLeaderStartsFrom(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		l := b.lease(s)
		first := b.take(l, "a")
		if !first.Checkpoint.Position.IsZero() || first.Fence.Term != 1 || first.Old.Holder != "" || first.Server != l.Server() {
			t.Fatalf("a new stream begins with %+v", first)
		}
		for _, offset := range []uint64{500, 1 << 40} {
			err := s.Fenced(t.Context(), first.Fence, func(ctx context.Context, tx *Tx) error {
				return errors.Join(tx.SavePosition(ctx, position(t, offset)),
					tx.SaveSweep(ctx, "shop", "b", json.RawMessage(`"é😀"`)),
					tx.CoverTable(ctx, "shop", "b", json.RawMessage(`{"v": 1}`)), // leaves the sweep alone
					tx.CoverTable(ctx, "shop", "a", nil),
					tx.CoverTable(ctx, "shop", "gone", nil),
					tx.UncoverTable(ctx, "shop", "gone"))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Resign(t.Context(), first.Fence); err != nil {
			t.Fatal(err)
		}
		second := b.take(l, "b")
		c := second.Checkpoint
		if second.Fence.Term != 2 || c.Position.Compare(position(t, 1<<40)) != 0 || c.Position.GTIDs.String() != sidA.String()+":1-5" {
			t.Errorf("got %+v", second)
		}
		if len(c.Tables) != 2 || c.Tables[0].Name != "a" || c.Tables[0].Shape != nil || string(c.Tables[1].Shape) != `{"v": 1}` || string(c.Tables[1].Sweep) != `"é😀"` {
			t.Errorf("got tables %+v", c.Tables)
		}
		if seen, err := s.Checkpoint(t.Context(), "shop"); err != nil || seen.Position.String() != c.Position.String() || len(seen.Tables) != 2 {
			t.Errorf("those who look see %+v, %v", seen, err)
		}
	})
}

func TestNothingIsWrittenUnderAnOlderTermOrAnotherHolder(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		l := b.lease(s)
		old := b.take(l, "a").Fence
		save := func(f Fence, offset uint64) error {
			return s.Fenced(t.Context(), f, func(ctx context.Context, tx *Tx) error { return tx.SavePosition(ctx, position(t, offset)) })
		}
		if err := save(old, 100); err != nil {
			t.Fatal(err)
		}
		if err := l.Resign(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		fresh := b.take(l, "b").Fence
		before := b.value("SELECT position FROM {schema}.checkpoint")
		for _, f := range []Fence{old, {Stream: "shop", Term: 1, Holder: "b"}, {Stream: "shop", Term: 2, Holder: "a"}, {Stream: "other", Term: 2, Holder: "b"}} {
			if err := save(f, 200); !errors.Is(err, ErrFenced) {
				t.Errorf("%s: %v", f, err)
			}
			for what, err := range map[string]error{
				"renew": l.Renew(t.Context(), f, time.Minute), "resign": l.Resign(t.Context(), f),
				"lock": l.RecordLock(t.Context(), f, true), "broker": l.RecordBroker(t.Context(), f, Broker{Cluster: "x"}),
			} {
				if !errors.Is(err, ErrFenced) {
					t.Errorf("%s by %s: %v", what, f, err)
				}
			}
		}
		if after := b.value("SELECT position FROM {schema}.checkpoint"); after != before {
			t.Errorf("the position moved to %s", after)
		}
		if err := save(fresh, 300); err != nil {
			t.Errorf("the leader itself: %v", err)
		}
	})
}

// The lease row is locked last, so the old leader's writes are there, unsaved,
// when a takeover comes between. The takeover must not read them, and they
// must not be committed.
func TestATakeoverDuringATransactionMakesItFail(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		l := b.lease(s)
		old := b.take(l, "a").Fence
		b.exec("CREATE TABLE {schema}.shop_rows (id INT PRIMARY KEY, status INT)")
		b.exec("INSERT INTO {schema}.shop_rows VALUES (1, 0)")
		var next Takeover
		err := s.Fenced(t.Context(), old, func(ctx context.Context, tx *Tx) error {
			if _, err := tx.Exec(ctx, in(b.schema, "UPDATE {schema}.shop_rows SET status=1 WHERE id=1 AND status=0")); err != nil {
				return err
			}
			if err := tx.SavePosition(ctx, position(t, 900)); err != nil {
				return err
			}
			b.exec("UPDATE {schema}.lease SET expires_at=UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
			next = b.take(l, "b")
			return nil
		})
		if !errors.Is(err, ErrFenced) {
			t.Fatalf("got %v", err)
		}
		if !next.Checkpoint.Position.IsZero() || next.Fence.Term != 2 {
			t.Errorf("the successor starts from %+v", next)
		}
		if got := b.value("SELECT status FROM {schema}.shop_rows"); got != "0" {
			t.Errorf("row state %s was written", got)
		}
		if got := b.value("SELECT COUNT(*) FROM {schema}.checkpoint"); got != "0" {
			t.Errorf("a position was saved")
		}
	})
}

// The other order: the old leader has locked the lease row and is about to
// commit. The takeover waits and reads what was committed.
func TestATakeoverReadsWhatTheOldLeaderCommittedJustBefore(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		l, successor := b.lease(s), b.lease(s)
		old := b.take(l, "a").Fence
		b.exec("UPDATE {schema}.lease SET expires_at=UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		tx := &Tx{store: s, conn: conn, fence: old}
		if _, err := conn.ExecContext(t.Context(), "START TRANSACTION"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tx.SavePosition(t.Context(), position(t, 900)), s.lockLease(t.Context(), conn, old)); err != nil {
			t.Fatal(err)
		}
		taken := make(chan Takeover, 1)
		go func() {
			got, err := successor.Take(context.Background(), Claim{Stream: "shop", Holder: "b", TTL: time.Minute})
			if err != nil {
				t.Error(err)
			}
			taken <- got
		}()
		b.waitFor("the takeover to wait for the lease row", func(ctx context.Context) bool {
			return b.value("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE ? AND info NOT LIKE '%processlist%'", "%"+b.schema+"%FOR UPDATE%") != "0"
		})
		if err := commit(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if got := <-taken; got.Checkpoint.Position.Offset != 900 {
			t.Errorf("the successor starts from %s", got.Checkpoint.Position)
		}
	})
}

func TestALostConnectionAtCommitIsUnknown(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		fence := b.take(b.lease(s), "a").Fence
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var id string
		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		tx := &Tx{store: s, conn: conn, fence: fence}
		if _, err := conn.ExecContext(t.Context(), "START TRANSACTION"); err != nil {
			t.Fatal(err)
		}
		if err := tx.SavePosition(t.Context(), position(t, 900)); err != nil {
			t.Fatal(err)
		}
		b.exec("KILL " + id)
		if err := commit(t.Context(), conn); !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v", err)
		}
		if err := s.Fenced(t.Context(), fence, func(ctx context.Context, tx *Tx) error { return tx.SavePosition(ctx, position(t, 901)) }); err != nil {
			t.Errorf("the next transaction: %v", err)
		}
	})
}

func TestAFailedTransactionLeavesNothingAndItsSessionIsUsable(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		fence := b.take(b.lease(s), "a").Fence
		b.db.SetMaxOpenConns(1 + b.db.Stats().InUse)
		failed := errors.New("failed")
		for range 3 {
			err := s.Fenced(t.Context(), fence, func(ctx context.Context, tx *Tx) error {
				return errors.Join(tx.SavePosition(ctx, position(t, 900)), failed)
			})
			if !errors.Is(err, failed) {
				t.Fatalf("got %v", err)
			}
		}
		if got := b.value("SELECT COUNT(*) FROM {schema}.checkpoint"); got != "0" {
			t.Error("a position was saved")
		}
	})
}

func TestErrorsDoNotQuoteRowData(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		fence := b.take(b.lease(s), "a").Fence
		b.exec("CREATE TABLE {schema}.shop_rows (id VARCHAR(32) PRIMARY KEY, n INT, j JSON, at DATETIME)")
		b.exec("INSERT INTO {schema}.shop_rows VALUES ('sesame', 0, NULL, NULL)")
		for _, statement := range []string{
			"INSERT INTO {schema}.shop_rows VALUES ('sesame', 0, NULL, NULL)",
			"INSERT INTO {schema}.shop_rows VALUES ('b', 'sesame', NULL, NULL)",
			"INSERT INTO {schema}.shop_rows VALUES ('b', 0, 'sesame', NULL)",
			"INSERT INTO {schema}.shop_rows VALUES ('b', 0, NULL, 'sesame')",
			"INSERT INTO {schema}.shop_rows VALUES ('b', 0, NULL, 'sesame'",
		} {
			err := s.Fenced(t.Context(), fence, func(ctx context.Context, tx *Tx) error {
				_, err := tx.Exec(ctx, in(b.schema, statement))
				return err
			})
			if err == nil || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
}
