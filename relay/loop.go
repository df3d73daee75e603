package relay

import (
	"context"
	"errors"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/checkpoint/broken"
	"github.com/towpath/towpath/checkpoint/killpoint"
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
	// maxOut is how many parked rows are being read and tried at once.
	maxOut = 256
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

	retries   *queue[retry]   // to the retrier: parked rows to read
	returns   *queue[retried] // from it
	commands  *queue[*command]
	inquiries chan chan<- loopReport // how it stands, for those who look
	halted    func(*haltError)       // told when the stream stands still for want of room, and nil when it goes on

	window *window
	flow   *flow
	lot    *lot
	low    checkpoint.Position // up to here everything is settled (P3)
	read   time.Time           // commit of the last group that was read; zero before the first

	held      []step              // taken from the preparer, not admitted yet
	foundHeld []*page             // taken from the fallback, not admitted yet
	writes    []write             // row state that is due
	writing   []write             // with the writer now
	locked    []write             // row state not written because the application holds the row
	next      changes             // of parked rows, not durable yet; new ones hold their place in the window
	overflow  []*entry            // of keep tables, refused while there is no room to park them
	covers    []cover             // shapes that hold from a row of the window on, in order
	due       []cover             // those that the low-water has passed
	sequence  uint64              // of the row that was parked last
	base      uint64              // rows with a sequence up to it were parked before
	began     checkpoint.Position // where the binlog ended when the leadership began
	checking  bool                // a look at late rows is under way
	busy      bool                // the writer works on a job
	stopping  bool
	dueSave   bool // the low-water passed rows of ours since the last job
	moved     bool // the low-water moved since the last job
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
	recovered   int // messages in flight at which a destination that was closed counts as recovered
}

// errDrained is how a loop that was told to stop says that everything it had
// is settled and saved.
var errDrained = errors.New("drained")

// run relays until ctx ends. After stop is closed it takes nothing more, and
// ends with errDrained once all it has is settled and saved.
func (l *loop) run(ctx context.Context, stop <-chan struct{}) error {
	tick := time.NewTicker(l.config.every)
	defer tick.Stop()
	var steps []step
	var answers []rabbit.Outcome
	var pages []*page
	for {
		l.beat()
		ready, returns := l.steps.ready, l.returns.ready
		if l.stopping || !l.hasRoom() || len(l.held) > 0 || len(l.overflow) > 0 {
			ready = nil
		}
		foundReady := l.found.pages.ready
		if l.stopping || !l.hasRoom() || len(l.foundHeld) > 0 {
			foundReady = nil
		}
		if !l.hasRoom() {
			returns = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop:
			stop, l.stopping = nil, true
			l.held, l.foundHeld = nil, nil
		case <-foundReady:
			pages = l.found.pages.take(pages)
			l.foundHeld = pages
		case answer := <-l.inquiries:
			answer <- l.report()
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
		case <-returns:
			for _, r := range l.returns.take(nil) {
				l.returned(r)
			}
		case <-l.commands.ready:
			for _, c := range l.commands.take(nil) {
				l.command(c)
			}
		case done := <-l.writer.done:
			if done.err != nil {
				return done.err
			}
			l.written(done)
		case <-tick.C:
		}
		l.unpark()
		l.admitHeld()
		l.admitFound()
		l.fill()
		l.endChecked()
		l.check()
		l.advance()
		l.save()
		if l.stopping && l.idle() {
			return errDrained
		}
	}
}

func (l *loop) hasRoom() bool {
	return l.flow.count < l.config.maxEntries && l.flow.weight < l.config.maxBytes &&
		l.window.len() < maxWindow && len(l.writes) < maxWrites
}

// idle says that nothing is left to do or to save. Rows that the application
// keeps locked are left to the fallback, rows without room to be parked to the
// next start.
func (l *loop) idle() bool {
	return l.flow.count == 0 && l.next.empty() && len(l.writes) == 0 && !l.busy && !l.moved
}

// admitHeld moves what was taken into window and flow while there is room.
func (l *loop) admitHeld() {
	for len(l.held) > 0 {
		s := &l.held[0]
		for len(s.entries) > 0 {
			if !l.hasRoom() || len(l.overflow) > 0 {
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
			l.read = s.end.Time
			l.metrics.ReadTime.Set(float64(s.end.Time.UnixMilli()) / 1000)
		}
		l.held[0] = step{}
		l.held = l.held[1:]
	}
}

// admit takes one entry in: to its gate, or, when it cannot be sent, is due
// later, or an earlier row of its key is parked, to be parked itself (P6).
func (l *loop) admit(e *entry) {
	if e.origin == fromReplay {
		l.admitReplay(e)
		return
	}
	if e.origin == fromStream {
		e.number = l.window.add()
		if broken.SaveBeforeConfirm {
			l.window.settle(e.number)
		}
	}
	if b := l.lot.byRef[e.ref]; b != nil && l.isParked(e, b) {
		l.settle(e)
		return
	}
	switch {
	case e.fault != nil:
	case !e.due.IsZero() && e.due.After(time.Now()):
		e.fault, e.gate = &fault{class: classScheduled}, "" // in its own time, not in line
	case e.table.strict() && l.lot.blocks(e.gate):
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
			killpoint.Pass(killpoint.BeforeSend)
			lane.Send(l.tickets)
		}
	}
	for len(l.flow.unsendable) > 0 {
		stuck := l.flow.unsendable
		l.flow.unsendable = nil
		for _, e := range stuck {
			e.fault = &fault{class: classClosed}
			l.refuse(e)
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
		killpoint.Pass(killpoint.AfterConfirm)
		if e.page != nil {
			e.page.sent++
		}
		l.lot.took(e.to, l.config.recovered)
		if e.origin == fromReplay {
			e.table.metrics.replayed.Inc()
			l.settle(e)
			l.letGo(e)
			return
		}
		e.table.metrics.confirmed.Inc()
		e.table.metrics.sinceCommit(e.commit, time.Now())
		l.settle(e)
		l.confirmed(e)
		l.letGo(e)
		return
	}
	e.fault = refusal(o)
	if e.fault.class != classPoison {
		l.lot.refusal(e.to, e.table, time.Now())
	}
	l.refuse(e)
}

// confirmed makes due what a delivery has to leave behind.
func (l *loop) confirmed(e *entry) {
	if e.berth != nil {
		l.lot.end(e.berth, checkpoint.ParkedSent)
	}
	switch {
	case e.table.writesBack():
		l.writes = append(l.writes, write{table: e.table, mapping: e.mapping, ref: e.ref, seen: e.seen, berth: e.berth})
	case e.berth != nil:
		l.next.ends = append(l.next.ends, ending{berth: e.berth, end: checkpoint.ParkedSent})
	}
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

// refuse takes an entry out of the flow that was not delivered; in a strict
// table everything that waits behind it goes with it, in order (P6).
func (l *loop) refuse(e *entry) {
	if e.origin == fromReplay { // nothing waits for it
		l.putAside(e)
		l.letGo(e)
		return
	}
	if e.gate == "" || !e.table.strict() {
		if e.gate != "" && e.berth == nil {
			e.table.metrics.orderBreaks.Inc()
		}
		l.flow.letGo(e)
		l.putAside(e)
		return
	}
	for _, next := range l.flow.letGoLine(e) {
		if next.fault == nil {
			next.fault = &fault{class: classBehind}
		}
		l.putAside(next)
	}
}

// letGo ends an entry's stay; the next of its gate may turn out to be one that
// cannot be sent.
func (l *loop) letGo(e *entry) {
	if next := l.flow.letGo(e); next != nil {
		l.refuse(next)
	}
}

func (l *loop) settle(e *entry) {
	if e.origin == fromStream {
		l.window.settle(e.number)
	}
	if e.page != nil {
		l.settlePage(e.page)
	}
}
