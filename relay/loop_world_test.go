package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
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
