package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func parkedRow(n int) Parked {
	return Parked{RowKey: RowKey{"shop", "bill", []byte{0, byte(n), 255}}, Sequence: 1<<40 + uint64(n), Label: "bills", Ordering: []byte{'k', byte('0' + n%2)},
		Place: Place{Number: uint64(n), Ahead: true}, MessageID: fmt.Sprint("m", n), Exchange: "shop", RoutingKey: "bills", Size: 100,
		Attempt: Attempt{State: ParkedWaiting, Class: "destination", Code: 312, Reason: "NO_ROUTE", Refusals: 1, ByItself: true, Wait: time.Minute}}
}

func sequences(rows []Parked) (all []uint64) {
	for _, p := range rows {
		all = append(all, p.Sequence-1<<40)
	}
	return all
}

func TestParkedRowsKeepTheirOrderImageAndFirstFailureAndTheirEndsAreFinal(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		write := b.lead(s, "a")
		image := bytes.Repeat([]byte{0, 1, 254, 255}, 1<<18) // more than one statement takes of such
		rows := []Parked{parkedRow(3), parkedRow(1), parkedRow(2)}
		rows[0].Image, rows[1].Image, rows[1].Ordering, rows[1].MessageID = image, []byte{}, nil, ""
		write(func(ctx context.Context, tx *Tx) error { return tx.Park(ctx, rows) })
		read := func() []Parked {
			t.Helper()
			page, err := s.Parked(t.Context(), "shop", 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			return page
		}
		page := read()
		if got := sequences(page); !slices.Equal(got, []uint64{1, 2, 3}) {
			t.Fatalf("read in the order %v", got)
		}
		if p := page[0]; p.Ordering != nil || p.MessageID != "" || !p.Place.Ahead || p.Place.Number != 1 || p.Wait > time.Minute || p.Wait < 50*time.Second {
			t.Errorf("read %+v", p)
		}
		images, err := s.ParkedImages(t.Context(), "shop", []uint64{1<<40 + 1, 1<<40 + 2, 1<<40 + 3})
		if err != nil || len(images) != 2 || !bytes.Equal(images[1<<40+3], image) {
			t.Errorf("%d images, %v", len(images), err)
		}
		first := b.value("SELECT first_failed_at FROM {schema}.parked WHERE message_id='m2'")

		again := parkedRow(2)
		again.Sequence, again.Place, again.State, again.Refusals, again.Attempts, again.ByItself = 99<<40, Place{}, ParkedFailed, 2, 1, false
		write(func(ctx context.Context, tx *Tx) error { return tx.Park(ctx, []Parked{again}) })
		p := read()[1]
		if p.Sequence != 1<<40+2 || !p.Place.Ahead || p.State != ParkedFailed || p.Refusals != 2 || p.Attempts != 1 || p.ByItself {
			t.Errorf("after a second refusal it is %+v", p)
		}
		if got := b.value("SELECT first_failed_at FROM {schema}.parked WHERE message_id='m2'"); got != first {
			t.Errorf("its first failure moved from %s to %s", first, got)
		}

		write(func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.ReviveParked(ctx, again.RowKey), tx.EndParked(ctx, rows[0].RowKey, ParkedDiscarded))
		})
		if p := read()[1]; p.State != ParkedWaiting || p.Attempts != 0 || !p.ByItself || p.Wait > 0 {
			t.Errorf("revived it is %+v", p)
		}
		write(func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.Park(ctx, rows[:1]), tx.ReviveParked(ctx, rows[0].RowKey), tx.EndParked(ctx, rows[0].RowKey, ParkedSent))
		})
		if p := read()[2]; p.State != ParkedDiscarded {
			t.Errorf("what was discarded is %s", p.State)
		}
	})
}

func TestAnEndedRowIsForgottenOnlyWhenThePositionHasPassedIt(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		write := b.lead(s, "a")
		var rows []Parked
		for n := 1; n <= 4; n++ {
			rows = append(rows, parkedRow(n))
		}
		rows[0].Sequence = 1 // of an earlier leader, far ahead in a window of its own
		rows[0].Place.Number = 1000
		write(func(ctx context.Context, tx *Tx) error { return tx.Park(ctx, rows) })
		forget := func() {
			t.Helper()
			write(func(ctx context.Context, tx *Tx) (err error) {
				for _, p := range rows {
					err = errors.Join(err, tx.ForgetParked(ctx, p.RowKey, false))
				}
				return err
			})
		}
		left := func(want string) {
			t.Helper()
			forget()
			if got := b.value("SELECT GROUP_CONCAT(message_id ORDER BY message_id) FROM {schema}.parked"); got != want {
				t.Errorf("left are %s, want %s", got, want)
			}
		}
		write(func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.EndParked(ctx, rows[0].RowKey, ParkedSent), tx.EndParked(ctx, rows[1].RowKey, ParkedSent), tx.EndParked(ctx, rows[3].RowKey, ParkedSent))
		})
		left("m1,m2,m3,m4")
		write(func(ctx context.Context, tx *Tx) error { return tx.PassParked(ctx, 1<<40, 4, false) })
		left("m1,m3,m4")
		write(func(ctx context.Context, tx *Tx) error { return tx.PassParked(ctx, 1<<40, 4, true) })
		left("m3,m4")
		write(func(ctx context.Context, tx *Tx) error { return tx.ForgetParked(ctx, rows[3].RowKey, true) })
		left("m3")
	})
}

func TestAFilterChoosesParkedRows(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		write := b.lead(s, "a")
		rows := []Parked{parkedRow(1), parkedRow(2), parkedRow(3), parkedRow(4)}
		rows[1].Class, rows[2].Label, rows[3].State = "poison", "other", ParkedFailed
		write(func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.Park(ctx, rows), tx.EndParked(ctx, rows[0].RowKey, ParkedSent))
		})
		b.exec("UPDATE {schema}.parked SET first_failed_at=UTC_TIMESTAMP(6) - INTERVAL 1 HOUR WHERE message_id='m4'")
		for want, f := range map[string]ParkedFilter{
			"m2 m3 m4":  {},
			"m2 m4":     {Tables: []string{"bills"}},
			"m2 m3 m4 ": {Tables: []string{"shop.bill"}},
			"m3":        {Keys: []string{"k1"}},
			"m2":        {Classes: []string{"poison"}},
			"m4":        {OlderThan: time.Minute},
			"m4 ":       {States: []ParkedState{ParkedFailed}},
			"m1":        {States: []ParkedState{ParkedSent}},
			"m2 m3":     {IDs: []string{"m1", "m2", "m3"}},
			"":          {IDs: []string{"m2"}, Keys: []string{"k1"}},
		} {
			page, err := s.ParkedRows(t.Context(), "shop", f, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range page {
				got = append(got, p.MessageID)
			}
			if strings.Join(got, " ") != strings.TrimSpace(want) {
				t.Errorf("%+v chooses %v, want %s", f, got, want)
			}
			n, last, err := s.CountParked(t.Context(), "shop", f)
			if err != nil || int(n) != len(page) || len(page) > 0 && last != page[len(page)-1].Sequence {
				t.Errorf("%+v: counted %d up to %d, %v", f, n, last, err)
			}
		}
		if page, err := s.ParkedRows(t.Context(), "another", ParkedFilter{}, 0, 10); err != nil || len(page) != 0 {
			t.Errorf("another stream has %d rows, %v", len(page), err)
		}
	})
}

func TestARequestCanBeTakenBackUntilALeaderHasIt(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		l := b.lease(s)
		f := b.take(l, "a").Fence
		ask := func() uint64 {
			t.Helper()
			id, err := s.Ask(t.Context(), "shop", Request{Kind: "k", Args: []byte("{}"), Operator: "ann", Reason: "r"})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		waits := func(want bool) {
			t.Helper()
			if wait, err := s.RequestsWait(t.Context(), f); err != nil || wait != want {
				t.Errorf("requests wait: %v, %v", wait, err)
			}
		}
		waits(false)
		id := ask()
		waits(true)
		if back, err := s.TakeBack(t.Context(), id); err != nil || !back {
			t.Fatalf("taken back: %v, %v", back, err)
		}
		waits(false)
		id = ask()
		err := s.Fenced(t.Context(), f, func(ctx context.Context, tx *Tx) error {
			_, err := tx.TakeRequests(ctx, 1)
			return errors.Join(err, tx.RequestProgress(ctx, id, []byte(`{"progress": 1}`)))
		})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := s.TakeBack(t.Context(), id); err != nil || back {
			t.Errorf("a request that a leader has was taken back: %v, %v", back, err)
		}
		if r, err := s.Asked(t.Context(), id); err != nil || r.State != RequestTaken || string(r.Result) != `{"progress": 1}` {
			t.Errorf("got %+v, %v", r, err)
		}
		waits(false)
		f.Term++ // a later leader begins it again
		waits(true)
	})
}
