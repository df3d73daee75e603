package rabbit

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// long makes the storms longer: 20 rounds of each on both versions, an alarm of
// a minute, a leader that is away for three, 100,000 messages. Without it each
// version is either killed or stopped.
var long = os.Getenv("TOWPATH_LONG") != ""

func TestALaneRidesOutWhateverABrokerDoes(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			mq := labtest.OwnRabbit(t, lab.RabbitOptions{Kind: kind})
			v := labtest.Vhost(t, mq)
			ch := admin(t, v)
			declare(t, ch, "q", "quorum", nil)
			opt := options(v.URL())
			opt.Heartbeat = 2 * time.Second
			opt.Logger = zap.NewNop() // an alarm's wait and a broker's death are not worth the lines

			alarm(t, mq, v)

			load := startLoad(t, opt, "q", 32)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			type storm struct {
				name string
				rage func()
			}
			storms := []storm{
				{"connections closed by an operator", func() { must(mq.CloseConnections(context.Background(), "maintenance")) }},
				{"paused beyond the heartbeat", func() {
					must(mq.Pause())
					load.rig.phase(Down)
					must(mq.Resume())
				}},
			}
			killed := storm{"killed", func() {
				must(mq.Kill())
				must(mq.Start(context.Background()))
			}}
			stopped := storm{"stopped in good order", func() {
				must(mq.Stop(context.Background()))
				must(mq.Start(context.Background()))
			}}
			rounds := 1
			switch {
			case long:
				rounds, storms = 20, append(storms, killed, stopped)
			case kind == lab.Rabbit43:
				storms = append(storms, killed)
			default:
				storms = append(storms, stopped)
			}
			for range rounds {
				for _, s := range storms {
					load.flows(300)
					ups := load.rig.entered(Up)
					began := time.Now()
					s.rage()
					stormed := time.Since(began)
					load.rig.until("the lane is up again after: "+s.name, func() bool {
						n := 0
						for _, s := range load.rig.states {
							if s.Phase == Up {
								n++
							}
						}
						return n > ups
					})
					t.Logf("%s: %v, up again after %v", s.name, stormed, time.Since(began)-stormed)
				}
			}
			load.flows(300)
			sent := load.finish()

			ids := consumed(t, admin(t, v), "q", sent)
			duplicates := load.check(t, ids)
			t.Logf("%d messages, %d duplicates, %d sessions, outcomes %v", sent, duplicates, load.rig.entered(Up), load.rig.counts())
			if limit := opt.InFlight * load.rig.entered(Up); duplicates > limit {
				t.Errorf("%d duplicates, the windows of all sessions are %d", duplicates, limit)
			}
		})
	}
}

// alarm lets the broker raise its memory alarm for much longer than a heartbeat
// under load: the connection must live, and everything arrive once.
func alarm(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
	ch := admin(t, v)
	declare(t, ch, "alarmed", "quorum", nil)
	opt := options(v.URL())
	opt.Fence, opt.Heartbeat, opt.ConfirmTimeout = "towpath.alarm", 2*time.Second, 3*time.Second
	opt.Logger = zap.NewNop()
	r := start(t, opt)
	defer r.stop()
	r.send(messages(0, 1000, "alarmed")...)
	r.all()
	if err := mq.SetMemoryAlarm(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for i := 1000; i < 1100; i++ {
		m := message(i, "alarmed")
		m.Body = make([]byte, 100<<10) // far beyond the sockets' buffers
		r.send(m)
	}
	r.phase(Blocked)
	last := 6 * time.Second // twice what silence the heartbeat allows
	if long {
		last = time.Minute
	}
	if err := pause(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	expect(t, "phase during the alarm", r.phase(Blocked).Phase, Blocked)
	if err := mq.SetMemoryAlarm(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.all()
	expect(t, "delivered", r.counts()[Delivered], 1100)
	expect(t, "sessions", r.entered(Connecting), 1)
	expect(t, "duplicates", inOrder(t, consumed(t, ch, "alarmed", 1100), 0, 1100), 0)
}

// load sends messages of many keys, each key one at a time as strict ordering
// does, and sends again what was not delivered.
type load struct {
	rig   *rig
	queue string

	mu        sync.Mutex
	next      []int // per key: the message under way
	delivered int
	ending    bool
	running   sync.WaitGroup
}

func startLoad(t testing.TB, opt Options, queue string, keys int) *load {
	l := &load{queue: queue, next: make([]int, keys)}
	owner := map[uint64]int{}
	var mu sync.Mutex // of owner
	again := make(chan int, keys)
	l.rig = start(t, opt, func(outcomes []Outcome) {
		for _, o := range outcomes {
			mu.Lock()
			key := owner[o.Token]
			mu.Unlock()
			l.mu.Lock()
			if o.Result == Delivered {
				l.next[key]++
				l.delivered++
			}
			l.mu.Unlock()
			again <- key
		}
	})
	l.running.Go(func() {
		for active := keys; active > 0; {
			key := <-again
			l.mu.Lock()
			n := l.next[key]
			if l.ending {
				active--
				l.mu.Unlock()
				continue
			}
			l.mu.Unlock()
			m := message(0, queue)
			m.ID = fmt.Sprintf("%d-%d", key, n)
			mu.Lock()
			owner[l.rig.send(m)[0]] = key
			mu.Unlock()
		}
	})
	for key := range keys {
		again <- key
	}
	return l
}

// flows waits until n more messages are delivered.
func (l *load) flows(n int) {
	l.rig.t.Helper()
	l.mu.Lock()
	from := l.delivered
	l.mu.Unlock()
	l.rig.until("messages flow", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.delivered >= from+n
	})
}

// finish lets every key end and returns how many different messages were delivered.
func (l *load) finish() int {
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	l.rig.all()
	l.running.Wait()
	l.rig.stop()
	return l.delivered
}

// check wants every key's first occurrences complete and in order.
func (l *load) check(t *testing.T, ids []string) (duplicates int) {
	t.Helper()
	next := make([]int, len(l.next))
	for _, id := range ids {
		k, n, _ := strings.Cut(id, "-")
		key, _ := strconv.Atoi(k)
		seq, _ := strconv.Atoi(n)
		switch {
		case seq == next[key]:
			next[key]++
		case seq > next[key]:
			t.Fatalf("key %d: message %d came before %d", key, seq, next[key])
		default:
			duplicates++
		}
	}
	for key, n := range l.next {
		if next[key] < n {
			t.Errorf("key %d: %d of %d messages arrived", key, next[key], n)
		}
	}
	return duplicates
}
