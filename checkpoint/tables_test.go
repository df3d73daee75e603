package checkpoint

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// lead begins a leadership and returns how it writes.
func (b *bench) lead(s *Store, holder string) func(work func(ctx context.Context, tx *Tx) error) {
	b.Helper()
	l := b.lease(s)
	b.exec("UPDATE {schema}.lease SET expires_at=UTC_TIMESTAMP(6)")
	f := b.take(l, holder).Fence
	return func(work func(ctx context.Context, tx *Tx) error) {
		b.Helper()
		if err := s.Fenced(b.Context(), f, work); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPreparedRowsComeBackInOrderAndByteForByte(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		write := b.lead(s, "a")
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		xid, other := all[:140], []byte("x")
		chunks := [][]byte{all, {}, bytes.Repeat(all, 4096)}
		write(func(ctx context.Context, tx *Tx) error {
			for _, i := range []int{2, 0, 1, 0} { // in any order, and one again
				if err := tx.HoldPrepared(ctx, PreparedRows{XID: xid, Chunk: i, File: "binlog.000003", Place: 1 << 33, Rows: chunks[i]}); err != nil {
					return err
				}
			}
			return tx.HoldPrepared(ctx, PreparedRows{XID: other, Rows: []byte("y")})
		})
		listed, err := s.Prepared(t.Context(), "shop")
		if err != nil || len(listed) != 2 {
			t.Fatalf("got %d, %v", len(listed), err)
		}
		for _, p := range listed {
			if bytes.Equal(p.XID, xid) && (p.File != "binlog.000003" || p.Place != 1<<33) {
				t.Errorf("got %+v", p)
			}
		}
		var got [][]byte
		n, err := s.EachPrepared(t.Context(), "shop", xid, func(rows []byte) error { got = append(got, rows); return nil })
		if err != nil || n != 3 || !bytes.Equal(bytes.Join(got, []byte("|")), bytes.Join(chunks, []byte("|"))) {
			t.Errorf("got %d chunks, %v", n, err)
		}
		if n, err := s.EachPrepared(t.Context(), "another", xid, nil); n != 0 || err != nil {
			t.Errorf("another stream has %d chunks, %v", n, err)
		}
		enough := errors.New("enough")
		if _, err := s.EachPrepared(t.Context(), "shop", xid, func([]byte) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("got %v", err)
		}
		write(func(ctx context.Context, tx *Tx) error { return tx.DropPrepared(ctx, xid) })
		if listed, err := s.Prepared(t.Context(), "shop"); err != nil || len(listed) != 1 || string(listed[0].XID) != "x" {
			t.Errorf("after the verdict: %+v, %v", listed, err)
		}
	})
}

func TestARequestIsTakenOnceALeadershipAndAgainByTheNext(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		var ids []uint64
		for _, kind := range []string{"retry", "replay", "resume"} {
			id, err := s.Ask(t.Context(), "shop", Request{Kind: kind, Args: json.RawMessage(`{"n": 1}`), Operator: "ann", Reason: "überfällig"})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if _, err := s.Ask(t.Context(), "another", Request{Kind: "retry", Args: json.RawMessage("{}")}); err != nil {
			t.Fatal(err)
		}
		take := func(write func(func(context.Context, *Tx) error), limit int) (taken []Request) {
			t.Helper()
			write(func(ctx context.Context, tx *Tx) (err error) { taken, err = tx.TakeRequests(ctx, limit); return err })
			return taken
		}
		first := b.lead(s, "a")
		taken := take(first, 2)
		if len(taken) != 2 || taken[0].Kind != "retry" || string(taken[0].Args) != `{"n": 1}` || taken[0].Operator != "ann" || taken[0].Reason != "überfällig" {
			t.Fatalf("got %+v", taken)
		}
		if rest := take(first, 2); len(rest) != 1 || rest[0].Kind != "resume" {
			t.Errorf("got %+v", rest)
		}
		first(func(ctx context.Context, tx *Tx) error {
			return tx.FinishRequest(ctx, ids[0], RequestDone, json.RawMessage(`{"sent": 3}`))
		})
		second := b.lead(s, "b")
		again := take(second, 9)
		if len(again) != 2 || again[0].ID != ids[1] || again[1].ID != ids[2] {
			t.Errorf("the next leader takes %+v", again)
		}
		if done, err := s.Asked(t.Context(), ids[0]); err != nil || done.State != RequestDone || string(done.Result) != `{"sent": 3}` {
			t.Errorf("got %+v, %v", done, err)
		}
		if _, err := s.Asked(t.Context(), 999); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheAuditNamesTheLeadershipThatActed(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		write := b.lead(s, "a")
		write(func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.Audit(ctx, Audit{Action: "gap", Detail: json.RawMessage(`{"found": 2}`)}),
				tx.Audit(ctx, Audit{Action: "replay", Operator: "ann", Reason: strings.Repeat("é", 2000)}))
		})
		got, err := s.Audits(t.Context(), "shop", AuditFilter{}, 10)
		if err != nil || len(got) != 2 || got[0].Action != "replay" || got[0].Operator != "ann" || len([]rune(got[0].Reason)) != 1024 ||
			got[1].Holder != "a" || got[1].Term != 1 || string(got[1].Detail) != `{"found": 2}` || len(got[1].At) != 26 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestTheAuditIsFoundByActionOperatorAndTime(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		b.lead(s, "a")(func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.Audit(ctx, Audit{Action: "gap"}), tx.Audit(ctx, Audit{Action: "replay", Operator: "ann"}),
				tx.Audit(ctx, Audit{Action: "replay", Operator: "bob"}))
		})
		b.exec("UPDATE {schema}.audit SET at='2020-01-02 03:04:05.5' WHERE operator='bob'")
		then := time.Date(2020, 1, 2, 3, 4, 5, 500_000_000, time.UTC)
		for _, c := range []struct {
			filter AuditFilter
			want   int
		}{
			{AuditFilter{}, 3}, {AuditFilter{Action: "replay"}, 2}, {AuditFilter{Operator: "ann"}, 1},
			{AuditFilter{Action: "gap", Operator: "ann"}, 0}, {AuditFilter{Since: then.Add(time.Microsecond)}, 2},
			{AuditFilter{Since: then, Until: then.Add(time.Second)}, 1}, {AuditFilter{Until: then}, 0},
		} {
			if got, err := s.Audits(t.Context(), "shop", c.filter, 10); err != nil || len(got) != c.want {
				t.Errorf("%+v: %d entries, want %d: %v", c.filter, len(got), c.want, err)
			}
		}
	})
}

func TestMembersComeAndGoAndTheKilledAreForgottenByOthers(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		for _, m := range []Member{{Holder: "a", Version: "1", Config: "x", HTTP: "127.0.0.1:1"}, {Holder: "b"}, {Holder: "killed"}, {Holder: "a", Version: "1"}} {
			if err := s.Appear(t.Context(), "shop", m); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Appear(t.Context(), "other", Member{Holder: "b"}); err != nil {
			t.Fatal(err)
		}
		b.exec("UPDATE {schema}.member SET seen_at=seen_at - INTERVAL 25 HOUR WHERE holder='killed'")
		if err := s.Disappear(t.Context(), "shop", "b"); err != nil {
			t.Fatal(err)
		}
		got, err := s.Members(t.Context(), "shop")
		if err != nil || len(got) != 1 || got[0].Holder != "a" || got[0].Config != "x" || got[0].HTTP != "127.0.0.1:1" || got[0].Seen < 0 || got[0].Seen > time.Minute {
			t.Errorf("got %+v, %v", got, err)
		}
		if other, err := s.Members(t.Context(), "other"); err != nil || len(other) != 1 {
			t.Errorf("another stream's: %+v, %v", other, err)
		}
	})
}

func TestAnOperatorDeposesALeaderWhoThenWritesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		old := b.take(b.lease(s), "leader")
		l := b.lease(s)
		if _, err := l.Take(t.Context(), Claim{Stream: "shop", Holder: "ann", TTL: time.Minute}); !errors.Is(err, ErrHeld) {
			t.Fatalf("got %v", err)
		}
		taken, err := l.Take(t.Context(), Claim{Stream: "shop", Holder: "ann", TTL: time.Minute, Depose: true})
		if err != nil || taken.Fence.Term != old.Fence.Term+1 || taken.Old.Holder != "leader" {
			t.Fatalf("got %+v, %v", taken, err)
		}
		err = s.Fenced(t.Context(), old.Fence, func(ctx context.Context, tx *Tx) error { return tx.SavePosition(ctx, position(t, 99)) })
		if !errors.Is(err, ErrFenced) {
			t.Errorf("the deposed leader's save: %v", err)
		}
	})
}
