package relay

import (
	"context"
	"errors"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/relay/rabbit"
)

// Bounds of what the loop holds at once (P7).
const (
	// roomFactor times all lanes' in_flight is how many entries are held, so
	// that a lane never waits for the loop, and rows of other keys are at hand
	// behind a key that waits for a confirm.
	roomFactor = 8
	// maxWindow bounds settled rows behind one that is not: a row that the
	// broker leaves unanswered must not stop the others before its time-out.
	maxWindow = 1 << 20
	// maxWrites bounds confirmed rows whose row state is not written: while the
	// database is away publishing stops when it is reached.
	maxWrites = 16384
	// batchWrites is how many row-state writes one transaction takes.
	batchWrites = 1000
	// lockedRetry is how long a row that the application holds locked is left
	// alone. At most maxWrites such rows are remembered; the fallback finds the others.
	lockedRetry = time.Second
)

// loop owns everything between a row's arrival and the saved position: the
// window, the flow, and what is due to be written. It runs on one goroutine,
// shares no state, and does no I/O: lanes and writer are handed batches.
type loop struct {
	config  settings
	metrics *Metrics
	lanes   []sender
	steps   *queue[step]
	answers *queue[rabbit.Outcome]
	writer  *writer
	found   *found
	checks  chan []*entry // to the checker, capacity 1
	checked chan checked  // from it

	window *window
	flow   *flow
	low    checkpoint.Position // up to here everything is settled (P3)

	held      []step         // taken from the preparer, not admitted yet
	foundHeld []*page        // taken from the fallback, not admitted yet
	writes    []write        // confirmed, row state not written
	writing   []write        // with the writer now
	locked    []write        // row state not written because the application holds the row
	parks     []*entry       // refused, not parked yet; they hold their place in the window
	covers    []cover        // shapes that hold from a row of the window on, in order
	due       []cover        // those that the low-water has passed
	parkedBy  map[string]int // gates of strict tables that have parked rows, with their number
	checking  bool           // a look at late rows is under way
	busy      bool           // the writer works on a job
	dueSave   bool           // the low-water passed rows of ours since the last job
	moved     bool           // the low-water moved since the last job
	lastSave  time.Time
	lastTry   time.Time       // when locked rows were last tried again
	tickets   []rabbit.Ticket // reused
	beat      func()
}

// cover is what the checkpoint has to say once all rows below a number are
// settled: of a table's shape, or that an XA transaction is done with.
type cover struct {
	after uint64
	table checkpoint.CoveredTable
	xid   []byte // not nil: instead of a table
}

// sender is what the loop needs of a lane.
type sender interface{ Send([]rabbit.Ticket) }

// settings are the loop's figures from the configuration.
type settings struct {
	every, idle time.Duration // checkpoint
	maxEntries  int
	maxBytes    int64
}

// errDrained is how a loop that was told to stop says that everything it had
// is settled and saved.
var errDrained = errors.New("drained")

// run relays until ctx ends. After stop is closed it takes nothing more, and
// ends with errDrained once all it has is settled and saved.
func (l *loop) run(ctx context.Context, stop <-chan struct{}) error {
	tick := time.NewTicker(l.config.every)
	defer tick.Stop()
	stopping := false
	var steps []step
	var answers []rabbit.Outcome
	var pages []*page
	for {
		l.beat()
		ready := l.steps.ready
		if stopping || !l.hasRoom() || len(l.held) > 0 {
			ready = nil
		}
		foundReady := l.found.pages.ready
		if stopping || !l.hasRoom() || len(l.foundHeld) > 0 {
			foundReady = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop:
			stop, stopping = nil, true
			l.held, l.foundHeld = nil, nil
		case <-foundReady:
			pages = l.found.pages.take(pages)
			l.foundHeld = pages
		case q := <-l.found.questions:
			l.answerQuestion(q)
		case c := <-l.checked:
			l.takeChecked(c)
		case <-ready:
			steps = l.steps.take(steps)
			l.held = steps
		case <-l.answers.ready:
			answers = l.answers.take(answers)
			for i := range answers {
				l.answer(&answers[i])
			}
		case done := <-l.writer.done:
			if done.err != nil {
				return done.err
			}
			l.written(done)
		case <-tick.C:
		}
		l.admitHeld()
		l.admitFound()
		l.fill()
		l.endChecked()
		l.check()
		l.advance()
		l.save(stopping)
		if stopping && l.idle() {
			return errDrained
		}
	}
}

func (l *loop) hasRoom() bool {
	return l.flow.count < l.config.maxEntries && l.flow.weight < l.config.maxBytes &&
		l.window.len() < maxWindow && len(l.writes) < maxWrites
}

// idle says that nothing is left to do or to save. Rows that the application
// keeps locked are left to the fallback.
func (l *loop) idle() bool {
	return l.flow.count == 0 && len(l.parks) == 0 && len(l.writes) == 0 && !l.busy && !l.moved
}

// admitHeld moves what was taken into window and flow while there is room.
func (l *loop) admitHeld() {
	for len(l.held) > 0 {
		s := &l.held[0]
		for len(s.entries) > 0 {
			if !l.hasRoom() {
				return
			}
			l.admit(s.entries[0])
			s.entries = s.entries[1:]
		}
		if s.end != nil {
			for _, c := range s.covers {
				c.after = l.window.next()
				l.covers = append(l.covers, c)
			}
			l.window.end(*s.end, s.rows)
			l.metrics.ReadTime.Set(float64(s.end.Time.UnixMilli()) / 1000)
		}
		l.held[0] = step{}
		l.held = l.held[1:]
	}
}

// admit takes one entry in: to its gate, or, when it cannot be sent or an
// earlier row of its key is parked, to be parked itself (P6).
func (l *loop) admit(e *entry) {
	if e.origin == fromStream {
		e.number = l.window.add()
	}
	if e.fault == nil && e.table.strict() && l.parkedBy[e.gate] > 0 {
		e.fault = &fault{class: classBehind}
	}
	if e.fault != nil && !l.flow.waits(e) {
		l.park(e)
		return
	}
	l.flow.admit(e)
}

// fill gives every lane what it has room for.
func (l *loop) fill() {
	for i, lane := range l.lanes {
		l.tickets = l.flow.fill(i, l.tickets[:0])
		if len(l.tickets) > 0 {
			lane.Send(l.tickets)
		}
	}
}

// answer takes one outcome. Only Delivered settles here; everything else is
// parked first and settled when that is durable (P2).
func (l *loop) answer(o *rabbit.Outcome) {
	e := l.flow.answered(o.Token)
	if e == nil {
		return // a token that is not out: a lane's fault, and nothing to lose
	}
	if o.Result == rabbit.Delivered {
		if e.page != nil {
			e.page.sent++
		}
		e.table.metrics.confirmed.Inc()
		e.table.metrics.sinceCommit(e.commit, time.Now())
		l.settle(e)
		if e.table.writesBack() {
			l.writes = append(l.writes, write{e.table, e.mapping, e.ref, e.seen})
		}
		l.letGo(e)
		return
	}
	e.fault = refusal(o)
	l.refuse(e)
}

func refusal(o *rabbit.Outcome) *fault {
	f := &fault{class: classDestination, code: o.Code, reason: o.Reason}
	switch o.Result {
	case rabbit.Poison:
		f.class = classPoison
	case rabbit.Unknown:
		f.class = classUnknown
	}
	return f
}

// refuse parks an entry that was in the flow; in a strict table everything that
// waits behind it goes with it, in order (P6).
func (l *loop) refuse(e *entry) {
	if e.gate == "" || !e.table.strict() {
		if e.table.fast() && e.gate != "" {
			e.table.metrics.orderBreaks.Inc()
		}
		l.flow.letGo(e)
		l.park(e)
		return
	}
	for _, next := range l.flow.letGoLine(e) {
		if next.fault == nil {
			next.fault = &fault{class: classBehind}
		}
		l.park(next)
	}
}

// letGo ends an entry's stay; the next of its gate may turn out to be one that
// cannot be sent.
func (l *loop) letGo(e *entry) {
	if next := l.flow.letGo(e); next != nil {
		l.refuse(next)
	}
}

func (l *loop) park(e *entry) {
	e.table.metrics.refusals.WithLabelValues(string(e.fault.class)).Inc()
	if e.table.strict() && e.gate != "" {
		l.parkedBy[e.gate]++
	}
	l.parks = append(l.parks, e)
}

func (l *loop) settle(e *entry) {
	if e.origin == fromStream {
		l.window.settle(e.number)
	}
	if e.page != nil {
		l.settlePage(e.page)
	}
}

// advance moves the low-water.
func (l *loop) advance() {
	moved, rows := l.window.advance(&l.low)
	for len(l.covers) > 0 && l.covers[0].after <= l.window.first {
		l.due, l.covers = append(l.due, l.covers[0]), l.covers[1:]
	}
	l.moved = l.moved || moved
	l.dueSave = l.dueSave || rows
	l.metrics.Window.Set(float64(l.window.len()))
	l.metrics.PendingWrites.Set(float64(len(l.writes)))
}

// save gives the writer what is due. Rows of ours make a save due every
// checkpoint.every, full batches and parked rows at once; foreign transactions
// alone, the relay's own writes among them, only every checkpoint.idle: a save
// that caused the next would never end.
func (l *loop) save(stopping bool) {
	if l.busy {
		return
	}
	age := time.Since(l.lastSave)
	if len(l.locked) > 0 && time.Since(l.lastTry) >= lockedRetry {
		l.writes, l.locked, l.lastTry = append(l.writes, l.locked...), nil, time.Now()
	}
	due := len(l.parks) > 0 || len(l.writes) >= batchWrites ||
		(l.dueSave || len(l.writes) > 0) && age >= l.config.every ||
		l.moved && (age >= l.config.idle || l.found.progress.due(l.low)) ||
		stopping && (l.moved || len(l.writes) > 0)
	if !due {
		return
	}
	n := min(len(l.writes), batchWrites)
	j := job{writes: l.writes[:n:n], parks: l.parks}
	if l.moved {
		position := l.low.Clone()
		j.position, j.covers, l.due = &position, l.due, nil
	}
	l.writes, l.writing = append([]write(nil), l.writes[n:]...), j.writes
	l.parks, l.dueSave, l.moved, l.busy, l.lastSave = nil, false, false, true, time.Now()
	l.writer.jobs <- j
}

// written takes the writer's report: parked rows are settled now that they are
// durable (P2), rows that the application held locked come again.
func (l *loop) written(done written) {
	l.busy, l.writing = false, nil
	if done.position != nil {
		l.found.progress.set(*done.position)
	}
	for _, e := range done.parks {
		l.settle(e)
	}
	room := max(0, maxWrites-len(l.locked))
	l.locked = append(l.locked, done.locked[:min(room, len(done.locked))]...)
}
