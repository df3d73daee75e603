package relay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/towpath/towpath/checkpoint"
)

func markAt(n uint64) checkpoint.Mark {
	return checkpoint.Mark{File: "binlog.000001", Offset: n, GTID: checkpoint.GTID{SID: [16]byte{1}, Seq: n}}
}

func TestLowWaterStopsAtTheFirstRowThatIsNotSettled(t *testing.T) {
	w := newWindow()
	var low checkpoint.Position
	a := w.add()
	w.end(markAt(1), true)
	b := w.add()
	w.end(markAt(2), true)
	w.end(markAt(3), false)

	w.settle(b)
	if moved, _ := w.advance(&low); moved {
		t.Fatalf("moved to %s over a row that is not settled", low)
	}
	w.settle(a)
	if moved, rows := w.advance(&low); !moved || !rows || low.Offset != 3 {
		t.Fatalf("low-water %s, moved %v, rows %v; want offset 3", low, moved, rows)
	}
	if want := "01000000-0000-0000-0000-000000000000:1-3"; low.GTIDs.String() != want {
		t.Fatalf("GTIDs %s, want %s", low.GTIDs, want)
	}
}

func TestForeignGroupsBehindAStuckRowTakeNoRoom(t *testing.T) {
	w := newWindow()
	stuck := w.add()
	w.end(markAt(1), true)
	for n := uint64(2); n <= 100_000; n++ {
		w.end(markAt(n), false)
	}
	if len(w.marks) != 1 {
		t.Fatalf("%d marks are kept, want 1", len(w.marks))
	}
	var low checkpoint.Position
	w.settle(stuck)
	if _, rows := w.advance(&low); !rows || low.Offset != 100_000 || low.GTIDs.String() != "01000000-0000-0000-0000-000000000000:1-100000" {
		t.Fatalf("low-water %s", low)
	}
}

// Else status says that a stream is up to date while a row waits for an hour.
func TestForeignGroupsDoNotHideSinceWhenARowWaits(t *testing.T) {
	w := newWindow()
	var low checkpoint.Position
	began := time.Unix(1_800_000_000, 0)
	if !w.unsettledSince().IsZero() {
		t.Error("nothing waits")
	}
	at := func(n uint64) checkpoint.Mark {
		m := markAt(n)
		m.Time = began.Add(time.Duration(n) * time.Second)
		return m
	}
	stuck := w.add()
	for n := uint64(1); n <= 100; n++ {
		w.end(at(n), n == 1)
	}
	w.add()
	w.end(at(101), true)
	if got := w.unsettledSince().Sub(began); got != time.Second {
		t.Errorf("a row waits since %s, want 1s", got)
	}
	w.settle(stuck)
	w.advance(&low)
	if got := w.unsettledSince().Sub(began); got != 101*time.Second {
		t.Errorf("a row waits since %s, want 1m41s", got)
	}
}

func TestSettlingTwiceOrWhatWasNeverAddedIsNoticed(t *testing.T) {
	w := newWindow()
	first, second := w.add(), w.add()
	if !w.settle(second) || w.settle(second) || !w.settle(first) || w.settle(first) || w.settle(7) {
		t.Fatal("settle must be true once for each row that was added")
	}
}

// The window is held against a model that keeps everything: rows and marks in
// one list, settled in random order.
func TestWindowAgreesWithANaiveModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWindow()
		var low checkpoint.Position
		type item struct {
			row     uint64
			mark    uint64
			settled bool
		}
		var model []item
		var open []int // indexes of rows that are not settled
		next := uint64(1)
		for range 400 {
			switch n := r.IntN(10); {
			case n < 4:
				open = append(open, len(model))
				model = append(model, item{row: w.add()})
			case n < 7:
				w.end(markAt(next), r.IntN(2) == 0)
				model = append(model, item{mark: next})
				next++
			case len(open) > 0:
				i := r.IntN(len(open))
				model[open[i]].settled = true
				w.settle(model[open[i]].row)
				open = append(open[:i], open[i+1:]...)
			}
			if r.IntN(50) == 0 {
				w.thin()
			}
			w.advance(&low)
			var want uint64
			for _, it := range model {
				if it.mark == 0 && !it.settled {
					break
				}
				want = max(want, it.mark)
			}
			if low.Offset > want {
				t.Fatalf("seed %d: low-water %d is past an unsettled row, at most %d is right", seed, low.Offset, want)
			}
			if len(open) == 0 && low.Offset != want {
				t.Fatalf("seed %d: everything is settled up to %d, low-water is %d", seed, want, low.Offset)
			}
		}
	}
}
