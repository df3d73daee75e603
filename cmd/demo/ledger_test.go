package main

import (
	"fmt"
	"slices"
	"testing"
	"testing/quick"
	"time"
)

var epoch = time.Unix(1_700_000_000, 0)

func rowsOf(key string, ids ...uint64) []row {
	var rows []row
	for _, id := range ids {
		rows = append(rows, row{id, key})
	}
	return rows
}

func deliverAll(l *ledger, ids ...uint64) {
	for _, id := range ids {
		l.deliver(fmt.Sprint(id), epoch.Add(time.Millisecond))
	}
}

// effectsOf are those of a consumer that applies each committed row that it gets, once.
func effectsOf(l *ledger) map[uint64]int {
	effects := map[uint64]int{}
	for id, f := range l.fates {
		if f == arrived {
			effects[uint64(id)] = 1
		}
	}
	return effects
}

// figures are a ledger's in one line.
func figures(l *ledger) string {
	w := l.waiting()
	return fmt.Sprintf("committed %d, undone %d, delivered %d, ghosts %d, disordered %d, waiting %d, overtaken %d, lost %v",
		l.committed, l.rolledBack, l.delivered, l.ghosts, l.disordered, w.rows, w.overtaken, l.audit(effectsOf(l)).lost)
}

func TestTheLedgerTellsWhatBecameOfEveryRow(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*ledger)
		want string
	}{
		{"a committed row that arrives is delivered", func(l *ledger) {
			l.open(rowsOf("k", 1))
			l.commit(rowsOf("k", 1), epoch)
			deliverAll(l, 1)
		}, "committed 1, undone 0, delivered 1, ghosts 0, disordered 0, waiting 0, overtaken 0, lost []"},
		{"a message may arrive before COMMIT has returned", func(l *ledger) {
			l.open(rowsOf("k", 1))
			deliverAll(l, 1)
			l.commit(rowsOf("k", 1), epoch)
		}, "committed 1, undone 0, delivered 1, ghosts 0, disordered 0, waiting 0, overtaken 0, lost []"},
		{"a committed row that never arrives is lost", func(l *ledger) {
			l.open(rowsOf("", 1, 2))
			l.commit(rowsOf("", 1, 2), epoch)
			deliverAll(l, 2)
		}, "committed 2, undone 0, delivered 1, ghosts 0, disordered 0, waiting 1, overtaken 0, lost [1]"},
		{"a row of an open transaction is neither lost nor a ghost", func(l *ledger) {
			l.open(rowsOf("", 1))
		}, "committed 0, undone 0, delivered 0, ghosts 0, disordered 0, waiting 0, overtaken 0, lost []"},
		{"a rolled back row that arrives later is a ghost", func(l *ledger) {
			l.open(rowsOf("k", 1))
			l.undo(rowsOf("k", 1))
			deliverAll(l, 1)
		}, "committed 0, undone 1, delivered 0, ghosts 1, disordered 0, waiting 0, overtaken 0, lost []"},
		{"a row that arrived and is then rolled back is a ghost", func(l *ledger) {
			l.open(rowsOf("k", 1))
			deliverAll(l, 1)
			l.undo(rowsOf("k", 1))
		}, "committed 0, undone 1, delivered 0, ghosts 1, disordered 0, waiting 0, overtaken 0, lost []"},
		{"what was never inserted is a ghost", func(l *ledger) {
			deliverAll(l, 7)
			l.deliver("", epoch)
			l.deliver("x", epoch)
		}, "committed 0, undone 0, delivered 0, ghosts 3, disordered 0, waiting 0, overtaken 0, lost []"},
		{"a second arrival changes nothing, before and after the commit is known", func(l *ledger) {
			l.open(rowsOf("k", 1))
			deliverAll(l, 1, 1)
			l.commit(rowsOf("k", 1), epoch)
			l.deliver("1", epoch)
		}, "committed 1, undone 0, delivered 1, ghosts 0, disordered 0, waiting 0, overtaken 0, lost []"},
		{"a row that a later one of its key overtook is missing until it arrives", func(l *ledger) {
			l.open(rowsOf("k", 1, 2))
			l.commit(rowsOf("k", 1, 2), epoch)
			deliverAll(l, 2)
		}, "committed 2, undone 0, delivered 1, ghosts 0, disordered 0, waiting 1, overtaken 1, lost [1]"},
		{"and out of order once it has", func(l *ledger) {
			l.open(rowsOf("k", 1, 2))
			deliverAll(l, 2, 1)
			l.commit(rowsOf("k", 1, 2), epoch)
		}, "committed 2, undone 0, delivered 2, ghosts 0, disordered 1, waiting 0, overtaken 0, lost []"},
		{"rows of other keys and rolled back rows are not overtaken", func(l *ledger) {
			l.open(append(rowsOf("a", 1, 2, 3), rowsOf("b", 4)...))
			l.undo(rowsOf("a", 2))
			l.commit(append(rowsOf("a", 1, 3), rowsOf("b", 4)...), epoch)
			deliverAll(l, 4, 1, 3)
		}, "committed 3, undone 1, delivered 3, ghosts 0, disordered 0, waiting 0, overtaken 0, lost []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			c.do(l)
			if got := figures(l); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// The account must come out the same however deliveries and commits interleave.
func TestTheAccountDoesNotDependOnWhenCommitsBecomeKnown(t *testing.T) {
	law := func(lost, twice, undone, invented []uint8, early uint64) bool {
		l := newLedger()
		const n = 40
		is := func(set []uint8, id uint64) bool { return slices.Contains(set, uint8(id)) }
		var wantLost, wantTwice []uint64
		effects := map[uint64]int{}
		wantCommitted, wantGhosts := 0, 0
		for id := uint64(1); id <= n; id++ {
			r := rowsOf("", id)
			l.open(r)
			if is(undone, id) {
				l.undo(r)
				if is(invented, id) {
					effects[id] = 1
					wantGhosts++
				}
				continue
			}
			wantCommitted++
			before := early>>id&1 == 1
			if !before {
				l.commit(r, epoch)
			}
			switch {
			case is(lost, id):
				wantLost = append(wantLost, id)
			case is(twice, id):
				deliverAll(l, id, id)
				effects[id] = 2
				wantTwice = append(wantTwice, id)
			case is(invented, id): // received, and its effect is not there
				deliverAll(l, id)
				wantLost = append(wantLost, id)
			default:
				deliverAll(l, id)
				effects[id] = 1
			}
			if before {
				l.commit(r, epoch)
			}
		}
		got := l.audit(effects)
		return slices.Equal(got.lost, wantLost) && slices.Equal(got.twice, wantTwice) && got.ghosts == wantGhosts && l.ghosts == 0 &&
			l.committed == wantCommitted && got.applied == wantCommitted-len(wantLost)
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

func TestWaitingNamesTheOldestCommit(t *testing.T) {
	l := newLedger()
	for i := range uint64(3) {
		r := rowsOf("", i+1)
		l.open(r)
		l.commit(r, epoch.Add(time.Duration(i)*time.Second))
	}
	deliverAll(l, 1)
	if w := l.waiting(); w.rows != 2 || !w.oldest.Equal(epoch.Add(time.Second)) {
		t.Errorf("waiting %+v, want 2 rows since the second commit", w)
	}
}

func TestQuantilesAreExactToFivePercent(t *testing.T) {
	var h histogram
	for i := range 10_000 {
		h.add(time.Duration(i+1) * 100 * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.quantile(q); got < want || float64(got) > 1.05*float64(want) {
			t.Errorf("quantile %v is %v, want %v to 5 %% more", q, got, want)
		}
	}
	if h.max != time.Second {
		t.Errorf("the longest is %v, want 1s", h.max)
	}
	var none histogram
	if got := none.quantile(0.99); got != 0 {
		t.Errorf("a quantile of nothing is %v, want 0", got)
	}
}

func TestOnlyTheLastSecondsCountAsRecent(t *testing.T) {
	var l latencies
	l.add(epoch, time.Second)
	l.add(epoch.Add(recentSeconds*time.Second), time.Millisecond)
	now := epoch.Add(recentSeconds * time.Second)
	if got := l.last(now); got.count != 1 || got.max != time.Millisecond {
		t.Errorf("recent: %d, longest %v; want 1 of 1ms", got.count, got.max)
	}
	if got := l.rate(now.Add(time.Second)); got != 1 {
		t.Errorf("the rate is %d, want 1", got)
	}
	if got := l.rate(now.Add(5 * time.Second)); got != 0 {
		t.Errorf("the rate of an idle second is %d, want 0", got)
	}
	if l.all.count != 2 {
		t.Errorf("the whole run has %d, want 2", l.all.count)
	}
}
