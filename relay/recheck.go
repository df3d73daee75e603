package relay

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// A row is looked at again, under a lock, before it is sent late: when what the
// relay knows of its state is older than freshFor and the application may
// withdraw it (P10), or when it may have been sent before. The look happens at
// the last moment, in the queue from which lanes are filled, so it covers a
// stream that lags, an outage of the broker, and a key that waited alike.

// freshFor is how long a row that is known to be unsent may be sent unseen.
const freshFor = time.Second

// checkAhead is how many entries are looked at before their turn.
const checkAhead = 256

// verdict is what a look at a row's state says.
type verdict uint8

const (
	stillUnsent verdict = iota // or not to be told: the image is sent
	isWithdrawn                // the application withdrew it
	isSent                     // it was sent before, its row says
	isAbsent                   // a delete table's: it was sent or withdrawn
)

// withdraws says whether the application can withdraw rows of the table.
func (t *table) withdraws() bool { return len(t.config.Status.Withdrawn) > 0 }

// stale says whether the entry must be looked at before it is sent.
func (e *entry) stale(now time.Time) bool {
	return e.verdict == stillUnsent && (e.again || e.table.withdraws() && now.Sub(e.fresh) > freshFor)
}

// aging is stale a little ahead, so that a look covers what is due soon.
func (e *entry) aging(now time.Time) bool { return e.stale(now.Add(freshFor / 2)) }

// toCheck returns the entries that a look should cover now, nil while none
// is needed: those at the heads of the queues and what waits behind them.
func (f *flow) toCheck(now time.Time) []*entry {
	queues := f.queues()
	if !slices.ContainsFunc(queues, func(q *fifo) bool { return q.needsCheck(now) }) {
		return nil
	}
	var batch []*entry
	for _, q := range queues {
		batch = q.aging(now, batch)
	}
	return batch
}

// queues is everything that entries wait in.
func (f *flow) queues() []*fifo {
	queues := f.reused[:0]
	add := func(r *room) {
		queues = append(queues, &r.ready)
		for _, d := range r.held {
			queues = append(queues, f.heldQueue(d, r))
		}
	}
	add(&f.any)
	for i := range f.lanes {
		add(&f.lanes[i])
	}
	f.reused = queues
	return queues
}

func (q *fifo) needsCheck(now time.Time) bool {
	items := q.items[q.head:]
	return len(items) > 0 && items[0].stale(now) || len(items) > checkAhead && items[checkAhead].stale(now)
}

// aging appends the entries near the head, with those that wait behind them for
// their gate.
func (q *fifo) aging(now time.Time, batch []*entry) []*entry {
	items := q.items[q.head:]
	for i, room := 0, 2*checkAhead; i < len(items) && room > 0; i++ {
		for e := items[i]; e != nil && room > 0; e = e.behind {
			if e.aging(now) {
				batch = append(batch, e)
			}
			room--
		}
	}
	return batch
}

// checked is a look's answer.
type checked struct {
	entries  []*entry
	verdicts []verdict
	at       time.Time // before the look
}

// check asks for a look when one is needed and none is under way.
func (l *loop) check() {
	if l.checking {
		return
	}
	if batch := l.flow.toCheck(time.Now()); len(batch) > 0 {
		l.checking = true
		l.checks <- batch
	}
}

// takeChecked applies a look's answer. An entry may have left the flow
// meanwhile; then nobody asks for what is noted here.
func (l *loop) takeChecked(c checked) {
	l.checking = false
	for i, e := range c.entries {
		e.verdict, e.fresh, e.again = c.verdicts[i], c.at, false
	}
}

// endChecked ends the rows that a look found not to be sent.
func (l *loop) endChecked() {
	for len(l.flow.ended) > 0 {
		ended := l.flow.ended
		l.flow.ended = nil
		for _, e := range ended {
			e.table.metrics.verdict(e.verdict)
			l.settle(e)
			if e.berth != nil {
				l.endUnsent(e)
			}
			l.letGo(e)
		}
		l.fill()
	}
}

func (m *tableMetrics) verdict(v verdict) {
	switch v {
	case isWithdrawn:
		m.withdrawn.Inc()
	case isSent:
		m.already.Inc()
	case isAbsent:
		m.absent.Inc()
	}
}

// checker looks at rows for the loop. It owns its SQL.
type checker struct {
	current *current
	checks  chan []*entry // capacity 1
	done    chan checked  // capacity 1
	log     *zap.Logger
}

func newChecker(c *current, log *zap.Logger) *checker {
	return &checker{current: c, checks: make(chan []*entry, 1), done: make(chan checked, 1), log: log}
}

// run answers until ctx ends. While the database is away late rows wait (P8).
func (c *checker) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case batch := <-c.checks:
			for failures := 0; ; {
				answer, err := c.look(ctx, batch)
				if err == nil {
					c.done <- answer
					break
				}
				if failures++; failures == 1 && ctx.Err() == nil {
					c.log.Warn("late rows cannot be looked at again, trying on", zap.Error(err))
				}
				if !sleep(ctx, backoff(failures, 50*time.Millisecond, 3*time.Second)) {
					return context.Cause(ctx)
				}
			}
		}
	}
}

// look reads the rows by their keys under a lock, each table's in batches
// across event groups.
func (c *checker) look(ctx context.Context, batch []*entry) (checked, error) {
	answer := checked{entries: batch, verdicts: make([]verdict, len(batch)), at: time.Now()}
	byTable := map[*table][]int{}
	for i, e := range batch {
		byTable[e.table] = append(byTable[e.table], i)
	}
	for t, list := range byTable {
		for len(list) > 0 {
			n := min(len(list), checkBatch)
			refs := make([]string, n)
			for i, at := range list[:n] {
				refs[i] = batch[at].ref
			}
			states, err := c.current.statuses(ctx, t, refs)
			if err != nil {
				return answer, err
			}
			for i, at := range list[:n] {
				answer.verdicts[at] = states.verdict(t, refs[i], batch[at].again)
			}
			list = list[n:]
		}
	}
	return answer, nil
}

// checkBatch is how many rows one look reads.
const checkBatch = 500

// statuses is what a look found: the status of each row that is there, and the
// rows that somebody holds locked and has not committed.
type statuses struct {
	now    map[string]string
	unseen map[string]bool
}

// verdict judges by row state. Only a withdrawn status withdraws.
func (s statuses) verdict(t *table, ref string, again bool) verdict {
	status, there := s.now[ref]
	switch {
	case s.unseen[ref]:
		return stillUnsent // its own insert: committed in the binlog, and soon in the engine
	case !there && !t.marks():
		return isAbsent
	case !there:
		return stillUnsent // the image is sent
	case t.isWithdrawn(status):
		return isWithdrawn
	case again && t.marks() && status == string(t.config.Status.Sent):
		return isSent
	}
	return stillUnsent
}
