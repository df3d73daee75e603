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

// A schedule is one random life of the loop: rows of several tables and keys
// go in, a broker confirms out of order and refuses some, a database saves
// slowly and keeps some rows locked, and at a random moment the process stops
// or dies. The ledger checks every promise at the moment it could break.
type schedule struct {
	t      *testing.T
	random *rand.Rand
	refuse float64 // chance that the broker does not take a message

	mu        sync.Mutex
	group     map[string]uint64   // row: the group that it committed in
	confirmed map[string]bool     // row: the broker has it and said so
	parked    map[string]bool     // row: durable as parked
	accepted  map[string][]int    // key: rows in the order that the broker took them
	refused   map[string]int      // key: first row that was refused
	marked    map[string]int      // row: how often its row state was written
	rowsUpTo  map[uint64][]string // group: its rows
	saved     uint64
}

func (s *schedule) sawSave(position checkpoint.Position) {
	if position.Offset < s.saved {
		s.t.Errorf("position went back from %d to %d", s.saved, position.Offset)
	}
	s.saved = position.Offset
	for g := uint64(1); g <= position.Offset; g++ {
		for _, row := range s.rowsUpTo[g] {
			if !s.confirmed[row] && !s.parked[row] {
				s.t.Errorf("position %d was saved, row %s of group %d has no end (P3)", position.Offset, row, g)
			}
		}
	}
}

// fakeLane answers what it is sent after a random time, in random order.
type fakeLane struct {
	s       *schedule
	answers *queue[rabbit.Outcome]
	ctx     context.Context
	last    chan struct{} // closed when the previous accepted message is in its queue
	wg      *sync.WaitGroup
	window  int
	open    int
}

func (l *fakeLane) Send(tickets []rabbit.Ticket) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for _, ticket := range tickets {
		if l.open++; l.open > l.window {
			l.s.t.Errorf("lane was sent %d messages, its window is %d (P7)", l.open, l.window)
		}
		result := rabbit.Delivered
		id := ticket.Message.ID
		if l.s.random.Float64() < l.s.refuse {
			result = []rabbit.Result{rabbit.Nacked, rabbit.Unroutable, rabbit.Refused, rabbit.Unknown, rabbit.Poison}[l.s.random.IntN(5)]
		}
		var key string
		var n int
		fmt.Sscanf(id, "%s %d", &key, &n)
		if result == rabbit.Delivered {
			l.s.accepted[key] = append(l.s.accepted[key], n)
			if first, any := l.s.refused[key]; any && key[0] == 's' && n > first {
				l.s.t.Errorf("row %s was published although row %d of its key was refused (P6)", id, first)
			}
		} else if _, any := l.s.refused[key]; !any {
			l.s.refused[key] = n
		}
		after := time.Duration(l.s.random.IntN(50)) * time.Millisecond
		l.wg.Go(func() {
			select {
			case <-time.After(after):
			case <-l.ctx.Done():
				return
			}
			l.s.mu.Lock()
			l.open--
			if result == rabbit.Delivered {
				l.s.confirmed[id] = true
			}
			l.s.mu.Unlock()
			l.answers.put(l.ctx, rabbit.Outcome{Token: ticket.Token, Result: result, Reason: "as planned"}, 0)
		})
	}
}

func (s *schedule) fakeWriter(ctx context.Context, w *writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-w.jobs:
			s.mu.Lock()
			delay := time.Duration(s.random.IntN(30)) * time.Millisecond
			s.mu.Unlock()
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return
			}
			done := written{job: j}
			s.mu.Lock()
			for _, e := range j.parks {
				s.parked[e.message.ID] = true
			}
			for _, row := range j.writes {
				if s.random.IntN(20) == 0 {
					done.locked = append(done.locked, row)
				} else {
					s.marked[row.ref]++
				}
			}
			if j.position != nil {
				s.sawSave(*j.position)
			}
			s.mu.Unlock()
			w.done <- done
		}
	}
}

// run lets one schedule live, and returns how it ended.
func (s *schedule) run(kill bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	metrics := NewMetrics(prometheus.NewRegistry(), "test")
	var tables []*table
	for i, c := range []configs.Table{
		{Name: "strict", Ordering: configs.OrderStrict, AfterPublish: configs.Mark},
		{Name: "fast", Ordering: configs.OrderFast, AfterPublish: configs.Keep},
		{Name: "none", Ordering: configs.OrderNone, AfterPublish: configs.Delete},
	} {
		tables = append(tables, &table{name: canal.TableName{Schema: "shop", Name: c.Name}, config: &c, number: uint32(i), metrics: metrics.table(c.Name)})
	}
	var wg sync.WaitGroup
	answers := newQueue[rabbit.Outcome](1 << 30)
	const window = 8
	l := &loop{
		config:  settings{every: 20 * time.Millisecond, idle: time.Second, maxEntries: 40, maxBytes: 1 << 20},
		metrics: metrics, steps: newQueue[step](2048), answers: answers,
		writer:   &writer{jobs: make(chan job, 1), done: make(chan written, 1)},
		window:   newWindow(),
		flow:     newFlow(2, window, 1<<20),
		found:    newFound(1<<20, checkpoint.Position{}),
		parkedBy: map[string]int{},
		beat:     func() {},
	}
	for range 2 {
		l.lanes = append(l.lanes, &fakeLane{s: s, answers: answers, ctx: ctx, wg: &wg, window: window})
	}
	stop := make(chan struct{})
	wg.Go(func() { s.fakeWriter(ctx, l.writer) })
	wg.Go(func() { s.feed(ctx, l, tables); close(stop) })
	if kill {
		wg.Go(func() {
			select {
			case <-time.After(time.Duration(s.seedTime()) * time.Millisecond):
				cancel()
			case <-ctx.Done():
			}
		})
	}
	err := l.run(ctx, stop)
	cancel()
	wg.Wait()
	return err
}

func (s *schedule) seedTime() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(400)
}

// feed commits groups of rows, of foreign tables, and of nothing.
func (s *schedule) feed(ctx context.Context, l *loop, tables []*table) {
	counts := map[string]int{}
	for g := uint64(1); g <= 60; g++ {
		m := markAt(g)
		st := step{end: &m}
		s.mu.Lock()
		for range s.random.IntN(6) {
			t := tables[s.random.IntN(3)]
			key := fmt.Sprintf("%s%d", t.config.Name[:1], s.random.IntN(4))
			counts[key]++
			id := fmt.Sprintf("%s %d", key, counts[key])
			e := &entry{table: t, gate: key, ref: id, weight: 100, message: rabbit.Message{ID: id}}
			if t.config.Ordering == configs.OrderNone {
				e.gate = ""
			}
			st.entries, st.rows = append(st.entries, e), true
			s.group[id] = g
			s.rowsUpTo[g] = append(s.rowsUpTo[g], id)
		}
		pause := time.Duration(s.random.IntN(10)) * time.Millisecond
		s.mu.Unlock()
		if l.steps.put(ctx, st, 512) != nil {
			return
		}
		time.Sleep(pause)
	}
	for s.open() && ctx.Err() == nil { // what is not admitted yet is left to the next start
		time.Sleep(time.Millisecond)
	}
}

// open says whether a row is left without an end.
func (s *schedule) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for row := range s.group {
		if !s.confirmed[row] && !s.parked[row] {
			return true
		}
	}
	return false
}

func TestEveryRowIsConfirmedOrParkedAndThePositionNeverRunsAhead(t *testing.T) {
	for _, refuse := range []float64{0, 0.03, 0.3} {
		for seed := range uint64(150) {
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(t, seed, refuse)
				err := s.run(false)
				if !errors.Is(err, errDrained) {
					t.Fatalf("seed %d: ended with %v", seed, err)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				for row := range s.group {
					if s.confirmed[row] == s.parked[row] {
						t.Errorf("seed %d: row %s: confirmed %v, parked %v; want exactly one (P2)", seed, row, s.confirmed[row], s.parked[row])
					}
				}
				for key, order := range s.accepted {
					for i := 1; i < len(order); i++ {
						if key[0] != 'n' && order[i] <= order[i-1] {
							t.Errorf("seed %d: key %s was published as %v (P6)", seed, key, order)
						}
					}
				}
				if s.saved < 59 {
					t.Errorf("seed %d: saved %d after the drain, want at least 59", seed, s.saved)
				}
			})
		}
	}
}

func TestAKilledLoopHasSavedNothingAhead(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			newSchedule(t, seed, 0.1).run(true)
		})
	}
}

func newSchedule(t *testing.T, seed uint64, refuse float64) *schedule {
	return &schedule{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), refuse: refuse,
		group: map[string]uint64{}, confirmed: map[string]bool{}, parked: map[string]bool{},
		accepted: map[string][]int{}, refused: map[string]int{}, marked: map[string]int{}, rowsUpTo: map[uint64][]string{},
	}
}
