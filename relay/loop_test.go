package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// A world is one random history: a binlog of groups of rows, a broker whose
// destinations fail for a while and that never takes some rows, an application
// that withdraws rows and holds others locked, an operator, a database that
// saves slowly, and relays that die at any moment and begin again from what was
// saved. It checks every promise at the moment it could break.
type world struct {
	t      *testing.T
	random *rand.Rand
	began  time.Time

	groups [][]*fact
	rows   map[string]*fact
	keys   map[string][]*fact // in commit order
	bad    map[string]bool    // destinations with a bad row

	mu     sync.Mutex
	term   uint64
	saved  uint64
	parked map[string]*record
	sends  map[string]int // by destination, in its outages
}

// fact is one row and what became of it.
type fact struct {
	id, key     string
	n           int // in its key
	kind        int // of its table
	destination string
	bad         bool // the broker never takes it
	poison      bool

	confirmed bool                   // a relay heard that the broker has it
	accepted  int                    // how often the broker took it
	over      checkpoint.ParkedState // the end that is durable
	withdrawn time.Time
	status    string // mark
	deleted   bool   // delete
	attempts  int
}

// record is a durable parked row.
type record struct {
	row   checkpoint.Parked
	entry entry // as it was parked
}

// trouble is what a world has of it.
type trouble struct {
	outages, bad, withdraw, lock, kill, operate float64
}

func newWorld(t *testing.T, seed uint64, with trouble) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), rows: map[string]*fact{}, keys: map[string][]*fact{},
		bad: map[string]bool{}, parked: map[string]*record{}, sends: map[string]int{}}
	for range 60 {
		var group []*fact
		for range w.random.IntN(6) {
			kind := w.random.IntN(3)
			key := fmt.Sprintf("%c%d", "sfn"[kind], w.random.IntN(4))
			f := &fact{key: key, kind: kind, n: len(w.keys[key]) + 1, destination: fmt.Sprintf("%c-%d", "sfn"[kind], w.random.IntN(3)), status: "pending"}
			f.id = fmt.Sprintf("%s/%d", key, f.n)
			if w.random.Float64() < with.bad {
				f.bad, f.poison = true, w.random.IntN(3) == 0
				w.bad[f.destination] = true
			}
			w.keys[key] = append(w.keys[key], f)
			w.rows[f.id] = f
			group = append(group, f)
		}
		w.groups = append(w.groups, group)
	}
	return w
}

// out says whether a destination takes nothing now: for one long and one short
// while, at times of its own.
func (w *world) out(destination string, with trouble) bool {
	if with.outages == 0 {
		return false
	}
	at := time.Since(w.began) - time.Duration(destination[2]-'0')*70*time.Millisecond
	return at > 50*time.Millisecond && at < time.Duration(with.outages*float64(time.Second)) || at > 9*time.Second && at < 9100*time.Millisecond
}

func worldTables(metrics *Metrics) []*table {
	retry := configs.Retry{Base: 200 * time.Millisecond, Factor: 2, Max: time.Second, Attempts: 3, Jitter: 0.2}
	var tables []*table
	for i, c := range []configs.Table{
		{Name: "strict", Ordering: configs.OrderStrict, AfterPublish: configs.Mark, Status: configs.Status{
			Column: "status", Pending: "pending", Sent: "sent", Failed: "failed", Withdrawn: []configs.StatusValue{"withdrawn"}, Attempts: "attempts"}},
		{Name: "fast", Ordering: configs.OrderFast, AfterPublish: configs.Keep},
		{Name: "none", Ordering: configs.OrderNone, AfterPublish: configs.Delete},
	} {
		c.Retry, c.MaxParked = retry, 1000
		tables = append(tables, &table{name: canal.TableName{Schema: "shop", Name: c.Name}, config: &c, number: uint32(i), metrics: metrics.table(c.Name)})
	}
	return tables
}

// life is one leadership in a world.
type life struct {
	*world
	with   trouble
	loop   *loop
	tables []*table
	ctx    context.Context
	wg     sync.WaitGroup
	lanes  []*fakeLane
}

const (
	worldLanes  = 2
	worldWindow = 8
)

// live runs one relay until it has drained, or is killed after a time.
func (w *world) live(with trouble, killAfter time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	metrics := NewMetrics(prometheus.NewRegistry(), "test")
	w.term++
	dests := newDestinations(worldLanes)
	v := &life{world: w, with: with, ctx: ctx, tables: worldTables(metrics)}
	l := &loop{
		config: settings{every: 20 * time.Millisecond, idle: time.Second, maxEntries: 40, maxBytes: 1 << 20,
			recovered: worldLanes * worldWindow / 2},
		metrics: metrics, steps: newQueue[step](2048), answers: newQueue[rabbit.Outcome](1 << 30),
		retries: newQueue[retry](1 << 30), returns: newQueue[retried](1 << 30), commands: newQueue[*command](1 << 30),
		halted: func(*haltError) {}, found: newFound(1<<20, checkpoint.Position{}), checks: make(chan []*entry, 1), checked: make(chan checked, 1),
		writer: &writer{jobs: make(chan job, 1), done: make(chan written, 1)},
		window: newWindow(), flow: newFlow(dests, worldWindow, 1<<20), lot: newLot(dests),
		began: checkpoint.Position{File: "binlog.000001", Offset: uint64(len(w.groups))}, beat: func() {},
	}
	l.low.Advance(markAt(w.saved))
	v.loop = l
	for range worldLanes {
		lane := &fakeLane{life: v, open: map[string]int{}}
		v.lanes = append(v.lanes, lane)
		l.lanes = append(l.lanes, lane)
	}
	v.restore()
	stop := make(chan struct{})
	for _, part := range []func(){v.write, v.retry, v.look, v.application, v.operator, func() { v.feed(w.saved); close(stop) }} {
		v.wg.Go(part)
	}
	if killAfter > 0 {
		v.wg.Go(func() {
			if v.sleep(killAfter) {
				cancel()
			}
		})
	}
	err := l.run(ctx, stop)
	cancel()
	v.wg.Wait()
	return err
}

func (v *life) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-v.ctx.Done():
		return false
	}
}

func (w *world) some(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) chance(p float64) bool { return w.random.Float64() < p }

// restore is what a leader loads, in the order of parking.
func (v *life) restore() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.loop.begin(v.term << 40)
	for after := uint64(0); ; {
		var next *record
		for _, r := range v.parked {
			if r.row.Sequence > after && (next == nil || r.row.Sequence < next.row.Sequence) {
				next = r
			}
		}
		if next == nil {
			return
		}
		after = next.row.Sequence
		v.loop.begin(after)
		v.loop.restore(v.tables[next.entry.table.number], &mapping{}, &next.row, time.Now())
	}
}

func (v *life) entry(f *fact) *entry {
	t := v.tables[f.kind]
	e := &entry{table: t, mapping: &mapping{}, ref: t.ref([]byte(f.id)), weight: 100, seen: "pending", fresh: time.Now(),
		message: rabbit.Message{ID: f.id, Exchange: f.destination}}
	if t.config.Ordering != configs.OrderNone {
		e.gate = t.ref([]byte(f.key))
	}
	if f.poison {
		e.fault = &fault{class: classPoison, reason: "made so"}
	}
	return e
}

// feed is the source: it reads the binlog from the saved position.
func (v *life) feed(saved uint64) {
	for g := saved; g < uint64(len(v.groups)); g++ {
		m := markAt(g + 1)
		st := step{end: &m, rows: len(v.groups[g]) > 0}
		v.mu.Lock()
		for _, f := range v.groups[g] {
			if f.kind == 0 && f.status == "withdrawn" {
				continue // withdrawn before the stream got there
			}
			st.entries = append(st.entries, v.entry(f))
		}
		pause := time.Duration(v.random.IntN(10)) * time.Millisecond
		v.mu.Unlock()
		if v.loop.steps.put(v.ctx, st, 512) != nil {
			return
		}
		time.Sleep(pause)
	}
	for began := time.Now(); v.open() && v.sleep(5*time.Millisecond); { // what is not admitted yet is left to the next start
		if time.Since(began) > time.Minute {
			v.stuck()
			return
		}
	}
}

func (v *life) stuck() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.t.Errorf("nothing moves: saved %d of %d", v.saved, len(v.groups))
	for _, r := range v.parked {
		v.t.Logf("%s to %s parked by term %d: %+v, place %+v", r.entry.message.ID, r.entry.message.Exchange, r.row.Sequence>>40, r.row.Attempt, r.row.Place)
	}
}

// open says whether a row is left that will come to another end by itself.
func (v *life) open() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.saved < uint64(len(v.groups))-1 {
		return true
	}
	// A row that is never taken burns attempts only while others are taken, and
	// stops its own key until a person acts.
	stuck := map[string]bool{}
	for _, r := range v.parked {
		if f := v.rows[r.entry.message.ID]; r.entry.table.strict() && (f.bad && !r.row.State.Ended() || r.row.State == checkpoint.ParkedFailed) {
			stuck[f.key] = true
		}
	}
	for _, r := range v.parked {
		if f := v.rows[r.entry.message.ID]; r.row.State == checkpoint.ParkedWaiting && !stuck[f.key] && !f.bad {
			return true
		}
		if r.row.State.Ended() && !(r.entry.table.number == 2 && r.row.State == checkpoint.ParkedDiscarded) {
			return true // not forgotten yet
		}
	}
	for _, f := range v.rows {
		if !f.confirmed && v.parked[f.id] == nil && f.status == "pending" && !f.deleted {
			return true
		}
	}
	return false
}

// fakeLane answers what it is sent after a random time, in random order.
type fakeLane struct {
	*life
	open map[string]int // by destination
	all  int
}

func (l *fakeLane) Send(tickets []rabbit.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ticket := range tickets {
		f := l.rows[ticket.Message.ID]
		l.all++
		l.open[f.destination]++
		if l.all > worldWindow || l.open[f.destination] > worldWindow/2 {
			l.t.Errorf("a lane was sent %d messages, %d of them for one destination; its window is %d (P7, P9)", l.all, l.open[f.destination], worldWindow)
		}
		if l.loop.flow.slots[ticket.Token].closed() {
			l.t.Errorf("%s was sent to %s, which is closed, and is not its probe", f.id, f.destination)
		}
		if f.over != "" {
			l.t.Errorf("%s was sent although it had ended as %s", f.id, f.over)
		}
		if f.status == "withdrawn" && time.Since(f.withdrawn) > freshFor {
			l.t.Errorf("%s was sent %s after it was withdrawn (P10)", f.id, time.Since(f.withdrawn))
		}
		result := rabbit.Delivered
		switch out := l.out(f.destination, l.with); {
		case f.bad || out:
			result = []rabbit.Result{rabbit.Nacked, rabbit.Unroutable, rabbit.Refused, rabbit.Unknown}[l.random.IntN(4)]
			if out {
				l.sends[f.destination]++
			}
		default:
			l.accept(f)
		}
		after := time.Duration(l.random.IntN(50)) * time.Millisecond
		if l.random.IntN(20) == 0 {
			after *= 40 // it holds the position back, so that a crash has much to read again
		}
		l.wg.Go(func() {
			if !l.sleep(after) {
				return
			}
			l.mu.Lock()
			l.all--
			l.open[f.destination]--
			f.confirmed = f.confirmed || result == rabbit.Delivered
			l.mu.Unlock()
			l.loop.answers.put(l.ctx, rabbit.Outcome{Token: ticket.Token, Result: result, Reason: "as planned"}, 0)
		})
	}
}

// accept is the broker taking a message.
func (l *fakeLane) accept(f *fact) {
	f.accepted++
	if f.accepted > 1 || f.kind != 0 {
		return
	}
	for _, earlier := range l.keys[f.key][:f.n-1] {
		r := l.parked[earlier.id]
		if earlier.accepted == 0 && earlier.status != "withdrawn" && (r == nil || !r.row.State.Ended()) && earlier.status != "given up" {
			l.t.Errorf("%s was delivered before %s (P6)", f.id, earlier.id)
		}
	}
}

// write is the database.
func (v *life) write() {
	w := v.loop.writer
	for {
		select {
		case <-v.ctx.Done():
			return
		case j := <-w.jobs:
			if !v.sleep(time.Duration(v.some(30)) * time.Millisecond) {
				if v.some(2) == 0 {
					v.commit(j) // and nobody hears of it
				}
				return
			}
			w.done <- v.commit(j)
		}
	}
}

func (v *life) commit(j job) written {
	v.mu.Lock()
	defer v.mu.Unlock()
	done := written{job: j}
	for _, f := range j.forget {
		id := f.berth.ref[4:]
		if r := v.parked[id]; r != nil && r.row.State.Ended() && (f.always || !r.row.Place.Ahead) {
			if r.row.State == checkpoint.ParkedDiscarded {
				v.rows[id].status = "given up"
			}
			delete(v.parked, id)
		}
	}
	for _, p := range j.parks {
		id := p.entry.message.ID
		old := v.parked[id]
		if old == nil {
			if !p.fresh {
				v.t.Errorf("%s was refused again and is not parked", id)
			}
			v.parked[id] = &record{row: p.row, entry: *p.entry}
			continue
		}
		if !old.row.State.Ended() {
			old.row.Attempt = p.row.Attempt
		}
	}
	for _, r := range j.revived {
		if rec := v.parked[r.berth.ref[4:]]; rec != nil && !rec.row.State.Ended() {
			rec.row.State, rec.row.Attempts, rec.row.ByItself, rec.row.Wait = checkpoint.ParkedWaiting, 0, true, 0
		}
	}
	end := func(b *berth, state checkpoint.ParkedState) {
		if rec := v.parked[b.ref[4:]]; rec != nil && !rec.row.State.Ended() {
			rec.row.State, v.rows[b.ref[4:]].over = state, state
		}
	}
	for _, e := range j.ends {
		end(e.berth, e.end)
	}
	for _, w := range j.allWrites() {
		f := v.rows[w.ref[4:]]
		if v.chance(v.with.lock) {
			done.locked = append(done.locked, w)
			continue
		}
		switch {
		case w.state != nil && f.status == w.seen:
			f.attempts = w.state.attempts
			if w.state.status != "" {
				f.status = w.state.status
			}
		case w.state != nil:
		case f.kind == 2:
			f.deleted = true
		case f.status == w.seen:
			f.status = "sent"
		}
		if w.berth != nil {
			done.finished = append(done.finished, w)
			if w.state == nil {
				end(w.berth, checkpoint.ParkedSent)
			}
		}
	}
	if j.passing != nil {
		for _, r := range v.parked {
			if r.row.Sequence > j.passing.since && r.row.Place.Number < j.passing.below || r.row.Sequence <= j.passing.since && j.passing.inherited {
				r.row.Place.Ahead = false
			}
		}
	}
	if j.position != nil {
		v.sawSave(*j.position)
	}
	return done
}

func (v *life) sawSave(position checkpoint.Position) {
	if position.Offset < v.saved {
		v.t.Errorf("position went back from %d to %d", v.saved, position.Offset)
	}
	v.saved = position.Offset
	for g := range position.Offset {
		for _, f := range v.groups[g] {
			if !f.confirmed && v.parked[f.id] == nil && f.status == "pending" {
				v.t.Errorf("position %d was saved, row %s of group %d has no end (P3)", position.Offset, f.id, g+1)
			}
		}
	}
}

// retry reads parked rows.
func (v *life) retry() {
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-v.loop.retries.ready:
		}
		for _, r := range v.loop.retries.take(nil) {
			if !v.sleep(time.Duration(v.some(3)) * time.Millisecond) {
				return
			}
			v.mu.Lock()
			f := v.rows[r.ref[4:]]
			e := v.entry(f)
			e.origin = fromParked
			if r.table.strict() && !r.ordered {
				v.t.Errorf("%s left the line of its key", f.id)
			}
			done := retried{berth: r.berth, entry: e, later: v.chance(v.with.lock)}
			switch {
			case done.later:
			case f.kind == 0 && f.status == "withdrawn":
				done.end = checkpoint.ParkedWithdrawn
			case f.kind == 0 && f.status == "failed":
				e.seen = f.status
			}
			v.mu.Unlock()
			v.loop.returns.put(v.ctx, done, 0)
		}
	}
}

// look is the checker.
func (v *life) look() {
	for {
		select {
		case <-v.ctx.Done():
			return
		case batch := <-v.loop.checks:
			c := checked{entries: batch, at: time.Now()}
			v.mu.Lock()
			for _, e := range batch {
				verdict := stillUnsent
				if v.rows[e.ref[4:]].status == "withdrawn" {
					verdict = isWithdrawn
				}
				c.verdicts = append(c.verdicts, verdict)
			}
			v.mu.Unlock()
			if !v.sleep(time.Duration(v.some(20)) * time.Millisecond) {
				return
			}
			v.loop.checked <- c
		}
	}
}

// application withdraws rows that are not sent.
func (v *life) application() {
	for v.sleep(20 * time.Millisecond) {
		v.mu.Lock()
		if v.chance(v.with.withdraw) {
			if key := v.keys[fmt.Sprintf("s%d", v.random.IntN(4))]; len(key) > 0 {
				if f := key[v.random.IntN(len(key))]; f.status == "pending" || f.status == "failed" {
					f.status, f.withdrawn = "withdrawn", time.Now()
				}
			}
		}
		v.mu.Unlock()
	}
}

// operator retries and discards parked rows.
func (v *life) operator() {
	for v.sleep(100 * time.Millisecond) {
		v.mu.Lock()
		c := &command{discard: v.random.IntN(2) == 0, done: make(chan struct{})}
		if v.chance(v.with.operate) {
			for _, f := range v.rows {
				if r := v.parked[f.id]; r != nil && v.random.IntN(4) == 0 {
					c.refs = append(c.refs, r.entry.ref)
				}
			}
		}
		v.mu.Unlock()
		if len(c.refs) == 0 {
			continue
		}
		v.loop.commands.put(v.ctx, c, 0)
		select {
		case <-c.done:
		case <-v.ctx.Done():
		}
	}
}

// settled checks what must hold when everything is over.
func (w *world) settled(with trouble) {
	for id, f := range w.rows {
		r := w.parked[id]
		state := checkpoint.ParkedState("")
		if r != nil {
			state = r.row.State
		}
		if f.accepted > 0 && state == checkpoint.ParkedFailed {
			w.t.Errorf("%s was delivered and counts as failed", id)
		}
		if f.accepted == 0 && r == nil && f.status == "pending" && with.operate == 0 {
			w.t.Errorf("%s was lost (P2)", id)
		}
		if !f.bad && state == checkpoint.ParkedFailed {
			w.t.Errorf("%s failed in an outage (P8)", id)
		}
	}
	if w.saved < uint64(len(w.groups))-1 {
		w.t.Errorf("saved %d after the drain, want at least %d", w.saved, len(w.groups)-1)
	}
}

func histories(t *testing.T, seeds uint64, with trouble) {
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, with)
			for with.kill > 0 && w.chance(with.kill) {
				if err := w.live(with, time.Duration(1+w.some(1500))*time.Millisecond); errors.Is(err, errDrained) {
					break
				}
			}
			if err := w.live(with, 0); !errors.Is(err, errDrained) {
				t.Fatalf("ended with %v", err)
			}
			w.settled(with)
			if t.Failed() {
				t.Logf("seed %d, %+v", seed, with)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func TestARowOfAHealthyBrokerIsConfirmed(t *testing.T) { histories(t, 30, trouble{lock: 0.05}) }

func TestAnOutageOfDestinationsFailsNothing(t *testing.T) {
	histories(t, 80, trouble{outages: 5, lock: 0.05})
}

func TestRowsThatAreNeverTakenFailAndStopNoOtherKey(t *testing.T) {
	histories(t, 80, trouble{bad: 0.05, lock: 0.05})
}

func TestWhatIsWithdrawnOrDiscardedDoesNotComeBackAfterAnyCrash(t *testing.T) {
	histories(t, 150, trouble{outages: 3, bad: 0.05, lock: 0.05, withdraw: 0.5, operate: 0.2, kill: 0.8})
}

func TestRelaysThatDieAtAnyMomentLoseNothing(t *testing.T) {
	histories(t, 150, trouble{outages: 3, bad: 0.03, lock: 0.05, kill: 0.8})
}
