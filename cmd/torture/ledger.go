package main

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

// fate is what has to become of a committed row.
type fate byte

const (
	must  fate = iota // arrive
	may               // or may not: it was withdrawn while it was on its way
	never             // it was withdrawn before
)

// row is one committed outbox row.
type row struct {
	id        string // message id
	table     *table
	key       string // ordering key; "" is unordered
	body      [sha256.Size]byte
	committed time.Time // when COMMIT was sent
	due       time.Time // not to arrive before; zero: at once
	fate      fate
}

// arrival is what the consumers got under one message id.
type arrival struct {
	first    int // its place among all first arrivals
	at       time.Time
	count    int
	body     [sha256.Size]byte
	envelope [sha256.Size]byte // everything but the body
	differs  bool              // not the same each time
	by       []string          // the processes that published it
}

// ledger holds what was committed against what arrived, exactly. Producers and
// consumers write to it; the account is drawn up at the end.
type ledger struct {
	mu         sync.Mutex
	rows       map[string]*row
	keys       map[lineName][]*row // in commit order: each key has one writer
	arrivals   map[string]*arrival
	deliveries int
	firsts     int
	copies     copies
	rolledBack int // rows
	watches    []watch
	under      int                    // faults that are on
	recoveries map[string]*recoveries // by fault
}

type lineName struct {
	table *table
	key   string
}

// watch waits for a row to arrive that was committed after a fault had ended.
type watch struct {
	fault string
	table *table // nil: any
	since time.Time
	alone bool // no other fault was on meanwhile
}

// recoveries are the times from the end of a fault to the arrival of a row that
// was committed after it.
type recoveries struct {
	alone       []time.Duration
	overlapping []time.Duration // another fault was on meanwhile
}

func newLedger() *ledger {
	return &ledger{rows: map[string]*row{}, keys: map[lineName][]*row{}, arrivals: map[string]*arrival{}, recoveries: map[string]*recoveries{}, copies: newCopies()}
}

// commit notes the rows of a committed transaction.
func (l *ledger) commit(rows []*row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.rows[r.id] = r
		if r.key != "" {
			name := lineName{r.table, r.key}
			l.keys[name] = append(l.keys[name], r)
		}
		if a := l.arrivals[r.id]; a != nil {
			l.recovered(r, a.at)
		}
	}
}

// rollback notes rows that were taken back.
func (l *ledger) rollback(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rolledBack += n
}

// decide changes what has to become of a row.
func (l *ledger) decide(r *row, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.fate = f
}

// arrive notes a delivery.
func (l *ledger) arrive(id string, body, envelope [sha256.Size]byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliveries++
	if a := l.arrivals[id]; a != nil {
		a.count++
		a.differs = a.differs || a.body != body || a.envelope != envelope
		return
	}
	l.arrivals[id] = &arrival{first: l.firsts, at: at, count: 1, body: body, envelope: envelope}
	l.firsts++
	if r := l.rows[id]; r != nil {
		l.recovered(r, at)
	}
}

// recovered ends the watches that a row's arrival answers.
func (l *ledger) recovered(r *row, at time.Time) {
	l.watches = slices.DeleteFunc(l.watches, func(w watch) bool {
		if !r.due.IsZero() || r.committed.Before(w.since) || w.table != nil && w.table != r.table {
			return false
		}
		if l.recoveries[w.fault] == nil {
			l.recoveries[w.fault] = &recoveries{}
		}
		to := &l.recoveries[w.fault].overlapping
		if w.alone {
			to = &l.recoveries[w.fault].alone
		}
		*to = append(*to, at.Sub(w.since))
		return true
	})
}

// watch measures from now until a row of the table (nil: any) arrives that is
// committed from now on.
func (l *ledger) watch(fault string, t *table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches = append(l.watches, watch{fault, t, time.Now(), l.under == 1 && len(l.watches) == 0})
}

// fault notes that a fault begins; end is called when it is over.
func (l *ledger) fault() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under++
	for i := range l.watches {
		l.watches[i].alone = false
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.under--
	}
}

// committed counts the rows so far.
func (l *ledger) committed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rows)
}

// missing lists the rows that have to arrive and have not.
func (l *ledger) missing() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.rows {
		if r.fate == must && l.arrivals[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// account is what the ledger shows at the end.
type account struct {
	Committed  int      `json:"committed"`
	RolledBack int      `json:"rolled_back"`
	Deliveries int      `json:"deliveries"`
	Duplicates int      `json:"duplicates"`
	Lost       []string `json:"lost"`
	Ghosts     []string `json:"ghosts"`
	Disorder   []string `json:"order_breaks_strict"`
	Bodies     []string `json:"body_differences"`
	Unequal    []string `json:"unequal_duplicates"` // published twice, and not the same bytes
	Withdrawn  []string `json:"withdrawn_sent"`
	Early      []string `json:"early"`
	FastBreaks int      `json:"order_breaks_fast"` // after refusals these are allowed, and counted
	OnTheWay   int      `json:"withdrawn_on_the_way_sent"`
}

// account draws up the account. It is the truth once the relays have stopped
// and the queues are empty.
func (l *ledger) account() account {
	a := account{Lost: l.missing()}
	l.mu.Lock()
	defer l.mu.Unlock()
	a.Committed, a.RolledBack, a.Deliveries = len(l.rows), l.rolledBack, l.deliveries
	a.Duplicates = l.deliveries - l.firsts
	for id, got := range l.arrivals {
		r := l.rows[id]
		if r == nil {
			a.Ghosts = append(a.Ghosts, id)
			continue
		}
		if got.body != r.body {
			a.Bodies = append(a.Bodies, id)
		}
		if got.differs {
			a.Unequal = append(a.Unequal, id)
		}
		if r.fate == never {
			a.Withdrawn = append(a.Withdrawn, id)
		} else if r.fate == may {
			a.OnTheWay++
		}
		if !r.due.IsZero() && got.at.Before(r.due) {
			a.Early = append(a.Early, id)
		}
	}
	for name, rows := range l.keys {
		last := -1
		for _, r := range rows {
			got := l.arrivals[r.id]
			if got == nil {
				continue
			}
			switch {
			case got.first > last:
				last = got.first
			case name.table.ordering == "strict":
				a.Disorder = append(a.Disorder, r.id)
			case name.table.ordering == "fast":
				a.FastBreaks++
			}
		}
	}
	for _, ids := range [][]string{a.Ghosts, a.Bodies, a.Unequal, a.Withdrawn, a.Early, a.Disorder} {
		slices.Sort(ids)
	}
	return a
}
