package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/relay/rabbit"
)

// leader is one leadership: it is built when the lease was won and thrown away
// when it ends. Its parts run side by side and any of them ends all.
type leader struct {
	relay  *Relay
	term   *Term
	log    *zap.Logger
	tables *tables
	db     *sql.DB // sessions of this leadership, all on the server that it began on
	store  *checkpoint.Store
	server canal.Server
	start  canal.Start                    // where the stream goes on
	states map[canal.TableName]tableState // how its tables began, and sweeps under way
	blind  error                          // why the binlog cannot be read; nil when it can

	reader   *reader
	preparer *preparer
	fallback *fallback
	checker  *checker
	retrier  *retrier
	keeper   *housekeeper
	loop     *loop
	writer   *writer
	lanes    []*rabbit.Lane
	gate     *gatekeeper
	pass     *checkpoint.Mark // a place that an operator lets pass
}

// lead is called by the elector for each leadership. ctx ends when the process
// is to stop, or with the leadership.
func (r *Relay) lead(ctx context.Context, term *Term) error {
	var pass *checkpoint.Mark
	for {
		l := &leader{relay: r, term: term, pass: pass, log: r.log.With(zap.Uint64("term", term.Fence.Term)), tables: newTables(r.config, r.metrics)}
		err := l.lead(ctx)
		var again *beginAgain
		if !errors.As(err, &again) || ctx.Err() != nil {
			return err
		}
		pass = again.pass
		term.Checkpoint = again.checkpoint
		l.log.Info("beginning again", zap.String("after", again.after))
	}
}

// beginAgain says that the leadership goes on from what the checkpoint has now.
type beginAgain struct {
	after      string
	pass       *checkpoint.Mark // a place that an operator lets pass
	checkpoint checkpoint.Checkpoint
}

func (e *beginAgain) Error() string { return "begin again after " + e.after }

// lead leads until something ends it. What no retry mends ends in a halt, which
// an operator ends.
func (l *leader) lead(ctx context.Context) error {
	err := l.prepare(ctx)
	if l.db != nil {
		defer l.db.Close()
	}
	if err == nil {
		if err = l.build(ctx); err == nil {
			err = l.restoreParked(ctx)
		}
	}
	if err == nil {
		err = l.run(ctx)
	}
	var halt *haltError
	var gap *canal.GapError
	if !errors.As(err, &halt) && errors.As(err, &gap) && ctx.Err() == nil {
		err = l.gap(ctx, gap)
	}
	if errors.As(err, &halt) {
		return l.halted(ctx, halt)
	}
	return err
}

// prepare learns where the stream begins and on which server.
func (l *leader) prepare(ctx context.Context) error {
	if err := l.connect(ctx); err != nil {
		return err
	}
	return l.begin(ctx)
}

// connect opens the leadership's sessions and takes what the checkpoint holds.
func (l *leader) connect(ctx context.Context) error {
	c := l.relay.config
	// The server of this leadership is the one that its lease was won on; a
	// session that finds another one behind the address is refused (P4).
	l.db = checkpoint.Connect(Endpoint(c), checkpoint.Session{
		IdleTimeout: c.Lease.TTL,
		Check: func(_ checkpoint.Flavor, server string) error {
			if server != l.term.Server {
				return errOtherServer
			}
			return nil
		},
	})
	var err error
	if l.store, err = checkpoint.Open(ctx, l.db, c.State.Schema); err != nil {
		return err
	}
	if err := l.inspect(ctx); err != nil {
		return err
	}
	return l.restore()
}

// inspect learns which server this is, and whether its binlog can be read.
func (l *leader) inspect(ctx context.Context) (err error) {
	l.server, err = canal.Inspect(ctx, l.db)
	switch {
	case errors.Is(err, canal.ErrPrivilege):
		l.blind = err
		conn, err := l.db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("inspect source: %w", err)
		}
		defer conn.Close()
		l.server.Flavor, l.server.Identity, err = checkpoint.Identify(ctx, conn)
		if err != nil {
			return fmt.Errorf("inspect source: %w", err)
		}
		return conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&l.server.Version)
	case err == nil && !l.server.Binlog:
		l.blind = canal.ErrBinlogOff
	}
	return err
}

// build puts the parts together.
func (l *leader) build(ctx context.Context) error {
	start := l.start
	c, m := l.relay.config, l.relay.metrics
	l.gate = newGatekeeper(l.term, l.server.Identity, c.State.Schema, c.Broker.Connections)
	l.gate.broker, l.gate.log = Broker(c, "towpath/"+c.Name+"/fences"), l.log
	l.gate.heartbeat, l.gate.ttl = c.Broker.Heartbeat, c.Lease.TTL
	began := time.Now()
	l.gate.opened = func() {
		m.TakeoverTime.Observe(time.Since(began).Seconds())
		l.log.Info("publishing", zap.Duration("after", time.Since(began)))
		l.relay.health.publishing.Store(true)
	}
	memory := c.Broker.InFlightBytes * int64(c.Broker.Connections)
	intake, steps := newQueue[canal.Batch](handOver), newQueue[step](handOver)
	answers := newQueue[rabbit.Outcome](1 << 40) // bounded by what is with the lanes
	l.writer = newWriter(l.store, l.term.Fence, m, l.log)
	low := start.Position.Clone()
	low.Server = l.server.Identity // by GTID a stream goes on on another server
	// A place alone: low's GTID set is the loop's, which adds to it. Files of
	// another server are no place here.
	var begun checkpoint.Position
	if start.Position.Server == l.server.Identity {
		begun = place(low)
	}
	found := newFound(memory/4, begun)
	ledger, err := newXALedger(ctx, c, l.store)
	if err != nil {
		return err
	}
	dues := newDues()
	l.preparer = &preparer{tables: l.tables, in: intake, out: steps, mappings: map[*table]*mapping{}, metrics: m, log: l.log,
		store: l.store, fence: l.term.Fence, current: newCurrent(l.db, l.server, l.tables), dues: dues, xa: ledger, states: l.states,
		server: l.server.Identity, last: begun, pass: l.pass}
	l.checker = newChecker(newCurrent(l.db, l.server, l.tables), l.log)
	l.fallback = newFallback(l, found, dues, memory/4)
	l.keeper = &housekeeper{stream: c.Name, tables: l.tables, db: l.db, server: l.server, store: l.store, fence: l.term.Fence,
		current: newCurrent(l.db, l.server, l.tables), found: found, metrics: m, log: l.log,
		seen: map[*table]firstUnsent{}, failing: map[string]bool{}}
	options := sourceOptions(c, l.tables, l.log)
	options.DB = l.db
	for _, t := range l.tables.list() {
		options.Existing = append(options.Existing, t.name)
	}
	start.Skip = l.pass
	l.reader = &reader{options: options, server: l.server.Identity, start: start, intake: intake, metrics: m, log: l.log}
	retries, returns := newQueue[retry](1<<40), newQueue[retried](memory/4) // the first is bounded by maxOut
	l.retrier = newRetrier(c.Name, l.store, newCurrent(l.db, l.server, l.tables), retries, returns, l.log)
	dests := newDestinations(c.Broker.Connections)
	l.loop = &loop{
		config: settings{every: c.Checkpoint.Every, idle: c.Checkpoint.Idle,
			maxEntries: roomFactor * c.Broker.InFlight * c.Broker.Connections, maxBytes: memory,
			recovered: c.Broker.InFlight * c.Broker.Connections / 2},
		metrics: m, steps: steps, answers: answers, writer: l.writer,
		retries: retries, returns: returns, commands: newQueue[*command](1 << 40), inquiries: make(chan chan<- loopReport), halted: l.waitForRoom,
		window: newWindow(), flow: newFlow(dests, c.Broker.InFlight, c.Broker.InFlightBytes), lot: newLot(dests),
		found: found, checks: l.checker.checks, checked: l.checker.done,
		low: low, began: l.server.Position, lastSave: time.Now(), beat: l.relay.health.beat,
	}
	for i := range c.Broker.Connections {
		lane := l.newLane(i, answers)
		l.lanes = append(l.lanes, lane)
		l.loop.lanes = append(l.loop.lanes, lane)
	}
	return nil
}

// handOver bounds, in bytes, what lies between two goroutines: enough that the
// giver need not wait for each turn of the taker.
const handOver = 1 << 20

func (l *leader) newLane(i int, answers *queue[rabbit.Outcome]) *rabbit.Lane {
	c, m := l.relay.config, l.relay.metrics
	label := strconv.Itoa(i)
	up, blocked := m.LaneUp.WithLabelValues(label), m.LaneBlocked.WithLabelValues(label)
	return rabbit.NewLane(rabbit.Options{
		Broker:   Broker(c, fmt.Sprintf("towpath/%s/lane.%d", c.Name, i)),
		Fence:    fenceName(l.server.Identity, c.State.Schema, c.Name, i),
		InFlight: c.Broker.InFlight, InFlightBytes: c.Broker.InFlightBytes,
		MaxMessageSize: c.Broker.MaxMessageSize, ConfirmTimeout: c.Broker.ConfirmTimeout,
		Ready: func(ctx context.Context) error { return l.gate.ready(ctx, i) },
		State: func(s rabbit.State) {
			set(up, s.Phase == rabbit.Up || s.Phase == rabbit.Blocked)
			set(blocked, s.Phase == rabbit.Blocked)
			if s.Phase == rabbit.Fenced {
				l.gate.sawPeer(s.Peer)
			}
			if s.Phase == rabbit.Down {
				m.Reconnects.WithLabelValues("broker").Inc()
			}
			l.relay.health.lane(i, s)
		},
		Logger: l.log,
	}, func(outcomes []rabbit.Outcome) { answers.add(outcomes) })
}

// run works until the leadership ends. When the process is to stop, reading
// stops, the window settles within drain_timeout and is saved; what is left
// then is sent again by the next leader.
func (l *leader) run(ctx context.Context) error {
	// Draining goes on after ctx has ended, so the parts live under the term.
	work, cancel := context.WithCancelCause(l.term.Context())
	defer cancel(nil)
	reading, stopReading := context.WithCancel(work)
	defer stopReading()
	stop := make(chan struct{})

	parts := []func() error{
		func() error { return l.read(reading) },
		func() error { return l.fallback.run(reading) },
		func() error { return l.checker.run(work) },
		func() error { return l.keeper.run(reading) },
		func() error { return l.preparer.run(work) },
		func() error { return l.retrier.run(work) },
		func() error { return (&dispatcher{leader: l, log: l.log}).run(work) },
		func() error { return l.loop.run(work, stop) },
		func() error { return l.writer.run(work) },
		func() error { return l.watch(work) },
	}
	for _, lane := range l.lanes {
		parts = append(parts, func() error { return lane.Run(work) })
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() {
			if err := part(); err != nil && reading.Err() == nil || errors.Is(err, errDrained) {
				cancel(err) // the first to fail ends all
			}
		})
	}
	defer wg.Wait()
	defer l.relay.health.publishing.Store(false)
	l.relay.leading.Store(l)
	defer l.relay.leading.Store(nil)

	select {
	case <-work.Done():
		return context.Cause(work)
	case <-ctx.Done():
	}
	if l.term.Context().Err() != nil {
		return context.Cause(l.term.Context())
	}
	l.log.Info("stopping: settling what was read", zap.Duration("within", l.relay.config.DrainTimeout))
	stopReading()
	close(stop)
	select {
	case <-work.Done():
	case <-time.After(l.relay.config.DrainTimeout):
		cancel(errDrained)
		wg.Wait() // the window is the loop's until it has ended
		l.log.Warn("not everything was settled in time: the next leader sends the rest again", zap.Int("rows", l.loop.window.len()))
	}
	if err := context.Cause(work); !errors.Is(err, errDrained) {
		return err
	}
	return nil
}

// watch gives the lease up when no broker was reached for yield_after, so that
// a standby elsewhere may try.
func (l *leader) watch(ctx context.Context) error {
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-check.C:
			if away := l.relay.health.brokerAway(); away > l.relay.config.Lease.YieldAfter {
				l.log.Warn("no broker was reached: giving the lease up so that another may try", zap.Duration("for", away))
				l.term.Yield()
			}
		}
	}
}

func set(g interface{ Set(float64) }, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}
