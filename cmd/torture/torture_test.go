package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

func TestRelaysKeepTheirPromisesUnderAFixedScheduleOfFaults(t *testing.T) {
	var log bytes.Buffer
	o := options{source: lab.MySQL97, broker: lab.Rabbit43, seed: 1, duration: 40 * time.Second, quiet: 2 * time.Minute}
	r, err := run(t.Context(), o, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	r.print(&log)
	if err := r.write(filepath.Join(t.TempDir(), "torture.json")); err != nil {
		t.Error(err)
	}
	t.Log(log.String())
	if wrong := r.verdict(); len(wrong) > 0 {
		t.Errorf("with seed %d:\n%s", o.seed, strings.Join(wrong, "\n"))
	}
	if r.Account.Committed < 500 {
		t.Errorf("only %d rows were committed", r.Account.Committed)
	}
	done := 0
	for _, h := range r.Faults {
		if h.Done > 0 {
			done++
		}
	}
	if done < 10 { // what could not be done then is named in the account
		t.Errorf("only %d kinds of faults were done", done)
	}
}

func TestASeedAlwaysGivesTheSameSchedule(t *testing.T) {
	show := func(seed uint64) string {
		var b strings.Builder
		for _, i := range plan(seed, 10*time.Minute, faults) {
			fmt.Fprintln(&b, i.at, i.fault.name, i.relay, i.lead, i.table.label, i.hold, i.size)
		}
		return b.String()
	}
	if first, again := show(7), show(7); first != again {
		t.Error("one seed gave two schedules")
	}
	if show(7) == show(8) {
		t.Error("two seeds gave one schedule")
	}
	for _, f := range faults {
		if !strings.Contains(show(7), f.name) {
			t.Errorf("%q does not come in ten minutes", f.name)
		}
	}
}

var strict, fast, facts = tables[0], tables[4], tables[7]

// books is a ledger in which rows a, b, c of one key are committed, in order.
func books(of *table) *ledger {
	l := newLedger()
	var rows []*row
	for _, id := range []string{"a", "b", "c"} {
		rows = append(rows, &row{id: id, table: of, key: "k", body: sha256.Sum256([]byte(id)), committed: time.Now()})
	}
	l.commit(rows)
	return l
}

func arrive(l *ledger, ids ...string) {
	for _, id := range ids {
		l.arrive(id, sha256.Sum256([]byte(id)), [32]byte{}, time.Now())
	}
}

func TestTheAccountShowsEveryBrokenPromise(t *testing.T) {
	for _, c := range []struct {
		name string
		of   *table
		do   func(*ledger)
		want account
	}{
		{"all arrive", strict, func(l *ledger) { arrive(l, "a", "b", "c") }, account{Deliveries: 3}},
		{"twice", strict, func(l *ledger) { arrive(l, "a", "b", "a", "b", "c") }, account{Deliveries: 5, Duplicates: 2}},
		{"one is lost", strict, func(l *ledger) { arrive(l, "a", "c") }, account{Deliveries: 2, Lost: []string{"b"}}},
		{"one is a ghost", strict, func(l *ledger) { arrive(l, "a", "b", "x", "c") }, account{Deliveries: 4, Ghosts: []string{"x"}}},
		{"one is overtaken", strict, func(l *ledger) { arrive(l, "b", "a", "c") }, account{Deliveries: 3, Disorder: []string{"b"}}},
		{"one is overtaken in fast", fast, func(l *ledger) { arrive(l, "b", "a", "c") }, account{Deliveries: 3, FastBreaks: 1}},
		{"another body", strict, func(l *ledger) {
			arrive(l, "a", "b")
			l.arrive("c", sha256.Sum256([]byte("C")), [32]byte{}, time.Now())
		}, account{Deliveries: 3, Bodies: []string{"c"}}},
		{"another header the second time", strict, func(l *ledger) {
			arrive(l, "a", "b", "c")
			l.arrive("a", sha256.Sum256([]byte("a")), [32]byte{1}, time.Now())
		}, account{Deliveries: 4, Duplicates: 1, Unequal: []string{"a"}}},
		{"withdrawn and sent", strict, func(l *ledger) { l.decide(l.rows["a"], never); arrive(l, "a", "b", "c") }, account{Deliveries: 3, Withdrawn: []string{"a"}}},
		{"withdrawn on its way", strict, func(l *ledger) { l.decide(l.rows["a"], may); arrive(l, "a", "b", "c") }, account{Deliveries: 3, OnTheWay: 1}},
		{"withdrawn and not sent", strict, func(l *ledger) { l.decide(l.rows["a"], never); arrive(l, "b", "c") }, account{Deliveries: 2}},
		{"before its time", strict, func(l *ledger) { l.rows["a"].due = time.Now().Add(time.Hour); arrive(l, "a", "b", "c") }, account{Deliveries: 3, Early: []string{"a"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := books(c.of)
			c.do(l)
			c.want.Committed = 3
			if got, want := fmt.Sprintf("%+v", l.account()), fmt.Sprintf("%+v", c.want); got != want {
				t.Errorf("the account is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestTheRefereeSeesWhoActsWithoutTheLease(t *testing.T) {
	r := newReferee(nil, "")
	for _, s := range []sighting{
		{term: 1, holder: "host/101/aa", savedBy: 1, savedAt: "1"},
		{term: 1, holder: "host/101/aa", savedBy: 1, savedAt: "2"},
		{term: 2, holder: "host/102/bb", savedBy: 1, savedAt: "3"}, // before the second began
		{term: 2, holder: "host/102/bb", savedBy: 1, savedAt: "3"},
	} {
		r.see(s, time.Now())
	}
	if len(r.late) != 0 {
		t.Errorf("saves in good order are called late: %v", r.late)
	}
	r.see(sighting{term: 2, holder: "host/102/bb", savedBy: 1, savedAt: "4"}, time.Now())
	if len(r.late) != 1 {
		t.Errorf("a save of term 1 during term 2 was not seen: %v", r.late)
	}
	name := func(pid int) string { return fmt.Sprint("relay-", pid) }
	runs := func(pids ...int) (all []stretch) {
		for _, pid := range pids {
			all = append(all, stretch{publisher: name(pid)})
		}
		return all
	}
	if found := r.intruders("q", runs(101, 102), name); len(found) != 0 {
		t.Errorf("publishing in good order is called intruding: %v", found)
	}
	if found := r.intruders("q", runs(101, 102, 101), name); len(found) != 1 {
		t.Errorf("a message of the first leader behind one of the second was not seen: %v", found)
	}
}

func TestDuplicatesMustHaveBeenUnderWayOrNotSaved(t *testing.T) {
	began := time.Now()
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	r := newReferee(nil, "")
	for _, s := range []struct {
		sighting
		at time.Time
	}{
		{sighting{term: 1, holder: "host/101/aa", savedBy: 1, position: "1"}, at(1)},
		{sighting{term: 1, holder: "host/101/aa", savedBy: 1, position: "2"}, at(8)},
		{sighting{term: 1, holder: "host/101/aa", savedBy: 1, position: "3"}, at(10)}, // of what was settled at 8, when it began
		{sighting{term: 2, holder: "host/102/bb", savedBy: 1, position: "3"}, at(12)},
		{sighting{term: 2, holder: "host/102/bb", savedBy: 2, position: "4"}, at(13)},
	} {
		r.see(s.sighting, s.at)
	}
	name := func(pid int) string { return fmt.Sprint("relay-", pid) }
	for _, c := range []struct {
		what               string
		inherited, repeats int
		lanesUp            int
		wrong              int
	}{
		{"a window, a transaction and what was not saved", window + largest + 4, 0, 4, 0},
		{"one more", window + largest + 5, 0, 4, 1},
		{"a lane's window each time it was opened", 0, 4 * inFlight, 4, 0},
		{"one more than that", 0, 4*inFlight + 1, 4, 1},
	} {
		l := newLedger()
		publish := func(id, by string, at time.Time) {
			l.rows[id] = &row{id: id, table: facts}
			l.arrive(id, [32]byte{}, [32]byte{}, at)
			l.published(id, by, at)
		}
		for n, second := range []int{5, 9, 11, 12, 13} { // four of them not saved when 102 began
			publish(fmt.Sprint("first ", n), name(101), at(second))
		}
		for n := range c.inherited {
			id := fmt.Sprint("again ", n)
			publish(id, name(101), at(2))
			publish(id, name(102), at(14))
		}
		for n := range c.repeats {
			id := fmt.Sprint("twice ", n)
			publish(id, name(102), at(14))
			publish(id, name(102), at(15))
		}
		slices.SortFunc(l.copies.firsts, time.Time.Compare)
		if wrong := l.copies.excess(r, name, c.lanesUp); len(wrong) != c.wrong {
			t.Errorf("%s: %v", c.what, wrong)
		}
	}
}
