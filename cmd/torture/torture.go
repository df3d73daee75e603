package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// options are the command line's.
type options struct {
	source, broker lab.Kind
	seed           uint64
	duration       time.Duration // of the faults
	quiet          time.Duration // after them all must have arrived
	broken         string        // the promise that the relay is built to break; "" none
	only           string        // a part of the names of the faults to inject; "" all
}

const (
	producerCount = 4
	everyEach     = 50 * time.Millisecond // transactions of one producer
)

// torture is one run.
type torture struct {
	options options
	out     io.Writer
	stage   *stage
	ledger  *ledger
	admin   *sql.DB
	referee *referee
	began   time.Time

	consumers map[*table]*consumer
	wires     map[lineOf]*sync.Mutex
	tables    map[*table]*sync.Mutex
	servers   map[place]*sync.Mutex
	altered   map[*table]bool // with the column that comes and goes; guarded by the database's lock

	mu      sync.Mutex
	done    []injected
	aborted error
	abortIt context.CancelFunc
}

// injected is what became of an injection.
type injected struct {
	injection
	began, ended time.Duration
	err          error // it could not be done then
}

// run sets up, tortures, accounts, and takes down.
func run(ctx context.Context, o options, out io.Writer) (r *report, err error) {
	t := &torture{options: o, out: out, ledger: newLedger(), stage: &stage{options: o, out: out},
		consumers: map[*table]*consumer{}, wires: map[lineOf]*sync.Mutex{}, tables: map[*table]*sync.Mutex{},
		servers: map[place]*sync.Mutex{onDatabase: {}, onRabbit: {}}, altered: map[*table]bool{}}
	for _, table := range tables {
		t.tables[table] = &sync.Mutex{}
	}
	for n := range relayCount {
		t.wires[lineOf{n, onSource}], t.wires[lineOf{n, onBroker}] = &sync.Mutex{}, &sync.Mutex{}
	}
	defer func() { err = errors.Join(err, t.stage.tearDown()) }()
	ctx, t.abortIt = context.WithCancel(ctx)
	defer t.abortIt()
	if err := t.stage.setUp(ctx); err != nil {
		return nil, err
	}
	if t.admin, err = sql.Open("mysql", t.stage.mysql.DSN("", "lock_wait_timeout=2", "innodb_lock_wait_timeout=2", "timeout=5s", "readTimeout=30s")); err != nil {
		return nil, err
	}
	t.stage.release(t.admin.Close)
	t.referee = newReferee(t.admin, t.stage.state)
	return t.play(ctx)
}

// play is the run between set-up and tear-down.
func (t *torture) play(ctx context.Context) (*report, error) {
	var wg sync.WaitGroup
	helpers, stopHelpers := context.WithCancel(context.Background())
	defer wg.Wait()
	defer stopHelpers()
	for _, table := range tables {
		c := newConsumer(t.stage.vhost.URL(), table.label, t.ledger)
		t.consumers[table] = c
		wg.Go(func() { c.run(helpers) })
	}
	refereed := make(chan struct{})
	refereeing, stopReferee := context.WithCancel(helpers)
	defer stopReferee()
	wg.Go(func() { t.referee.watch(refereeing); close(refereed) })
	defer t.killRelays()
	for _, r := range t.stage.relays {
		if err := r.start(); err != nil {
			return nil, err
		}
		wg.Go(func() { r.observe(helpers) })
	}
	if err := t.awaitLeader(ctx); err != nil {
		return nil, err
	}
	producing, stopProducing := context.WithCancel(context.Background())
	defer stopProducing()
	var producers sync.WaitGroup
	defer producers.Wait()
	var ids atomic.Uint64
	for n := range producerCount {
		p := &producer{db: t.stage.db, ledger: t.ledger, number: n, every: everyEach, ids: &ids,
			random: rand.New(rand.NewPCG(t.options.seed, uint64(n)+1)), mariaDB: t.options.source.IsMariaDB()}
		producers.Go(func() { p.run(producing) })
	}
	t.began = time.Now()
	t.inject(ctx)
	stopProducing()
	producers.Wait()
	if err := t.cause(ctx); err != nil {
		return nil, err
	}
	if err := t.bindNowhere(); err != nil {
		return nil, err
	}
	quietAfter, left, err := t.awaitQuiet(ctx)
	if err != nil {
		return nil, err
	}
	ready := t.states(ctx)
	t.stopRelays()
	if err := t.drain(ctx); err != nil {
		return nil, err
	}
	stopReferee()
	<-refereed
	return t.report(quietAfter, left, ready), nil
}

func (t *torture) awaitLeader(ctx context.Context) error {
	deadline := time.Now().Add(30 * time.Second)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		for _, r := range t.stage.relays {
			if r.leading.Load() && program.Ready(ctx, r.http) == "ok" {
				return nil
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("no relay began to stream within 30 s, see %s", t.stage.dir)
}

// abort ends the torture because of something that is not the relay's fault.
func (t *torture) abort(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborted = cmp.Or(t.aborted, err)
	t.abortIt()
}

func (t *torture) cause(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.aborted, ctx.Err())
}

// inject carries out the schedule, and returns when all is healed.
func (t *torture) inject(ctx context.Context) {
	var under sync.WaitGroup
	for _, i := range plan(t.options.seed, t.options.duration, chosen(t.options.only)) {
		pause(ctx, time.Until(t.began.Add(i.at)))
		if ctx.Err() != nil {
			break
		}
		under.Go(func() { t.carryOut(ctx, i) })
	}
	pause(ctx, time.Until(t.began.Add(t.options.duration)))
	under.Wait()
}

func (t *torture) carryOut(ctx context.Context, i injection) {
	t.aim(&i)
	release := t.lock(&i)
	end := t.ledger.fault()
	began := time.Since(t.began)
	err := i.fault.do(ctx, t, &i)
	end()
	release()
	done := injected{injection: i, began: began, ended: time.Since(t.began), err: err}
	t.mu.Lock() // the output's too: injections end side by side
	defer t.mu.Unlock()
	t.done = append(t.done, done)
	fmt.Fprintf(t.out, "%s; %d rows committed, %d to arrive\n", done, t.ledger.committed(), len(t.ledger.missing()))
}

func (d injected) String() string {
	text := fmt.Sprintf("%7.1fs  %-28s", d.began.Seconds(), d.fault.name)
	switch d.fault.on {
	case onRelay, onLeader, onSource, onBroker:
		text += fmt.Sprintf(" relay %d", d.relay)
	case onTable:
		text += " " + d.table.label
	}
	if took := d.ended - d.began; took > 50*time.Millisecond {
		text += fmt.Sprintf(" for %.1f s", took.Seconds())
	}
	if d.err != nil {
		text += fmt.Sprintf(" (could not be done: %v)", d.err)
	}
	return text
}

// bindNowhere makes the place that rows were sent to in vain.
func (t *torture) bindNowhere() error {
	return t.stage.onChannel(func(ch *amqp.Channel) error { return ch.QueueBind("bills", "bills.nowhere", exchange, false, nil) })
}

// awaitQuiet waits until all that has to arrive has, and all row state says so,
// and returns how long that took and what is left undone.
func (t *torture) awaitQuiet(ctx context.Context) (took time.Duration, left map[string]int, err error) {
	began := time.Now()
	for {
		missing := len(t.ledger.missing())
		if left, err = t.stage.left(ctx); err != nil {
			return 0, nil, err
		}
		took = time.Since(began)
		if missing == 0 && len(left) == 0 || took > t.options.quiet {
			return took, left, nil
		}
		pause(ctx, 100*time.Millisecond)
		if err := t.cause(ctx); err != nil {
			return 0, nil, err
		}
	}
}

// states is what each relay says of itself.
func (t *torture) states(ctx context.Context) (states []string) {
	for _, r := range t.stage.relays {
		state := program.Ready(ctx, r.http)
		if r.leading.Load() {
			state = "leading: " + state
		}
		states = append(states, state)
	}
	return states
}

func (t *torture) stopRelays() {
	var wg sync.WaitGroup
	for _, r := range t.stage.relays {
		wg.Go(r.stop)
	}
	wg.Wait()
}

func (t *torture) killRelays() {
	for _, r := range t.stage.relays {
		if r.process != nil {
			r.kill()
		}
	}
}

// drain waits until the queues are empty.
func (t *torture) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := t.stage.sendEndMarkers(ctx); err != nil {
		return err
	}
	for table, c := range t.consumers {
		select {
		case <-c.ended:
		case <-ctx.Done():
			return fmt.Errorf("queue %s was not drained within a minute", table.label)
		}
	}
	return nil
}

// named is the name that a process gives to its messages.
func (t *torture) named(pid int) string {
	for _, r := range t.stage.relays {
		if name, ok := r.named(pid); ok {
			return name
		}
	}
	return ""
}

// report draws up the report.
func (t *torture) report(quiet time.Duration, left map[string]int, ready []string) *report {
	o := t.options
	r := &report{Seed: o.seed, Source: string(o.source), Broker: string(o.broker), Seconds: o.duration.Seconds(), Broken: o.broken,
		Account: t.ledger.account(), QuietAfter: quiet.Seconds(), Left: left, Ready: ready, Logs: t.stage.dir}
	r.Late = t.referee.late
	for table, c := range t.consumers {
		c.mu.Lock()
		r.Intruders = append(r.Intruders, t.referee.intruders(table.label, c.runs, t.named)...)
		c.mu.Unlock()
	}
	for _, relay := range t.stage.relays {
		r.LanesUp += lanesUp(relay.log())
	}
	c := &t.ledger.copies
	r.Inherited, r.Kept, r.Repeated, r.Excess = total(c.inherited), total(c.kept), total(c.repeated), c.excess(t.referee, t.named, r.LanesUp)
	r.Terms = t.referee.before.term
	for _, relay := range t.stage.relays {
		relay.mu.Lock()
		r.Failures = append(r.Failures, relay.failures...)
		r.Peak = append(r.Peak, relay.peak)
		r.Last = append(r.Last, relay.last)
		relay.mu.Unlock()
	}
	slices.SortFunc(t.done, func(a, b injected) int { return cmp.Compare(a.began, b.began) })
	byName := map[string]*harm{}
	for _, f := range faults {
		h := &harm{Name: f.name}
		byName[f.name] = h
		r.Faults = append(r.Faults, h)
	}
	for _, d := range t.done {
		h := byName[d.fault.name]
		if d.err != nil {
			h.NotDone++
		} else {
			h.Done++
		}
		r.Schedule = append(r.Schedule, d.String())
	}
	for name, times := range t.ledger.recoveries {
		byName[name].Alone, byName[name].Overlapping = distribution(times.alone), distribution(times.overlapping)
	}
	return r
}
