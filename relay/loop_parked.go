package relay

import (
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// changes are what one job makes durable of parked rows.
type changes struct {
	parks    []parking
	ends     []ending
	revived  []revival
	forget   []forgetting
	commands []*command
}

func (c *changes) empty() bool {
	return len(c.parks) == 0 && len(c.ends) == 0 && len(c.revived) == 0 && len(c.commands) == 0
}

// parking is a row to be parked, or a parked one that was refused again.
type parking struct {
	berth *berth
	entry *entry
	fresh bool // it was not parked before
	row   checkpoint.Parked
	write *write // its row state, nil for none
}

// ending is the end of a parked row.
type ending struct {
	berth     *berth
	end       checkpoint.ParkedState
	messageID string
	audit     bool // it ended by itself, without a message
}

// revival makes a parked row due at once.
type revival struct {
	berth *berth
	write *write // its row state, nil for none
}

// forgetting removes a parked row that has ended.
type forgetting struct {
	berth  *berth
	always bool // also when the saved position has not passed it: another row has taken its key
}

// passing says which parked rows the position that is saved has passed.
type passing struct {
	since     uint64 // sequence: those above were parked by this leader
	below     uint64 // of these the ones with a lower number in the window
	inherited bool   // and all that earlier leaders parked
}

// command is what an operator wants of parked rows, by ref.
type command struct {
	discard bool // give them up; else: try them now
	refs    []string
	done    chan struct{} // closed when it is durable

	changed  int
	underWay int // they are being sent: discarded if they are refused
	missing  int // they have ended meanwhile
}

// isParked says whether a row that comes in is one that is parked already, and
// so has its end: the stream reads again what an earlier leader parked, sweeps
// find what is unsent because it is parked. In all other cases the row is
// another one under the key of one that has ended, or been deleted.
func (l *loop) isParked(e *entry, b *berth) bool {
	switch {
	case e.origin != fromStream:
		// Brought back to pending by SQL, it is to be tried as if it were new.
		if b.state == checkpoint.ParkedFailed && b.wrote == b.version && e.table.marksFailed() && e.seen == string(e.table.config.Status.Pending) {
			l.next.revived = append(l.next.revived, revival{berth: b})
		}
		return true
	case b.inherited && !b.past && !b.reread:
		b.reread = true
		return true
	case !b.over():
		if e.table.writesBack() {
			b.mapping = e.mapping // it is read by its key: the new row takes the old one's place
			l.next.revived = append(l.next.revived, revival{berth: b})
		}
		return true
	}
	l.lot.forget(b)
	l.next.forget = append(l.next.forget, forgetting{b, true})
	return false
}

// putAside parks an entry that comes out of the flow undelivered, or returns it to its berth.
func (l *loop) putAside(e *entry) {
	if e.origin == fromReplay {
		e.page.refuse(e.fault)
		l.settle(e)
		return
	}
	b := e.berth
	if b == nil {
		l.park(e)
		return
	}
	switch {
	case b.discard:
		l.end(ending{berth: b, end: checkpoint.ParkedDiscarded})
		return
	case e.fault.class == classBehind || e.fault.class == classClosed:
		l.lot.back(b) // it was not tried: nothing to record
		return
	}
	e.table.metrics.refusals.WithLabelValues(string(e.fault.class)).Inc()
	l.lot.refused(b, e.fault.class, time.Now())
	l.lot.back(b)
	l.record(b, e, false)
}

// park makes a row's being parked due. Without room for it a row of a mark or
// delete table is left unsent in its table, where the fallback finds it; a row
// of a keep table stops the stream until there is room (P7, P9).
func (l *loop) park(e *entry) {
	if l.lot.full(e.table) && !l.makesRoom(e) {
		return
	}
	if e.table.fast() && e.gate != "" && e.to == nil {
		e.table.metrics.orderBreaks.Inc() // poison: the rows behind it pass
	}
	l.sequence++
	b := &berth{table: e.table, ref: e.ref, mapping: e.mapping, sequence: l.sequence, size: e.weight,
		state: checkpoint.ParkedWaiting, class: e.fault.class, number: e.number, past: e.origin != fromStream}
	l.lot.add(b, e.gate, e.message.Exchange, e.message.RoutingKey)
	switch e.fault.class {
	case classBehind:
	case classScheduled:
		b.due = e.due
	case classClosed:
		if a := b.to.alarm; a != nil {
			b.due = a.at
		}
	default:
		e.table.metrics.refusals.WithLabelValues(string(e.fault.class)).Inc()
		l.lot.refused(b, e.fault.class, time.Now())
	}
	if !b.past {
		l.lot.ahead = append(l.lot.ahead, b)
	}
	l.record(b, e, true)
}

// makesRoom deals with a row that there is no room for, and reports false.
func (l *loop) makesRoom(e *entry) bool {
	if e.table.writesBack() {
		e.table.metrics.deferred.Inc()
		l.settle(e)
		return false
	}
	if len(l.overflow) == 0 {
		l.halted(&haltError{reason: "parked", err: errParkedFull(e.table)})
	}
	l.overflow = append(l.overflow, e)
	return false
}

// record makes what is known of a parked row due to be written, and with it the
// columns that the application gave for it.
func (l *loop) record(b *berth, e *entry, fresh bool) {
	b.version++
	p := parking{berth: b, entry: e, fresh: fresh, row: b.row(e)}
	if state := rowStateOf(b, e.fault); e.table.writesState(state) {
		p.write = &write{table: e.table, mapping: e.mapping, ref: e.ref, seen: e.seen, state: state, berth: b, version: b.version}
	} else {
		b.wrote = b.version
	}
	l.next.parks = append(l.next.parks, p)
}

// end makes a parked row's end due to be written.
func (l *loop) end(end ending) {
	b := end.berth
	l.lot.ending(b)
	l.next.ends = append(l.next.ends, end)
	b.table.metrics.end(end.end)
	if end.end == checkpoint.ParkedDiscarded && b.table.marksFailed() {
		b.version++
		l.writes = append(l.writes, b.giveUp())
	}
}

// endUnsent ends a parked row of which a look just before its turn says that it
// is not to be sent.
func (l *loop) endUnsent(e *entry) {
	end := checkpoint.ParkedWithdrawn
	if e.verdict == isSent {
		end = checkpoint.ParkedSent
	}
	l.lot.ending(e.berth)
	l.next.ends = append(l.next.ends, ending{berth: e.berth, end: end, messageID: e.message.ID, audit: true})
}

// command does what an operator wants.
func (l *loop) command(c *command) {
	for _, ref := range c.refs {
		b := l.lot.byRef[ref]
		switch {
		case b == nil || b.over():
			c.missing++
			continue
		case !c.discard:
			l.next.revived = append(l.next.revived, revival{b, b.reopen()})
		case b.stage == stageOut:
			b.discard = true
			c.underWay++
			continue
		default:
			l.end(ending{berth: b, end: checkpoint.ParkedDiscarded})
		}
		c.changed++
	}
	l.next.commands = append(l.next.commands, c)
}

// unpark gives the retrier the parked rows that are due, and parks what waited
// for room.
func (l *loop) unpark() {
	for len(l.overflow) > 0 && !l.lot.full(l.overflow[0].table) {
		e := l.overflow[0]
		l.overflow = l.overflow[1:]
		l.park(e)
		if len(l.overflow) == 0 {
			l.halted(nil)
		}
	}
	if l.stopping || l.lot.out >= maxOut || len(l.lot.alarms) == 0 {
		return
	}
	var batch []retry
	for _, b := range l.lot.next(time.Now(), maxOut-l.lot.out, nil) {
		b.table.metrics.retries.Inc()
		batch = append(batch, retry{berth: b, table: b.table, ref: b.ref, sequence: b.sequence, size: b.size, ordered: b.line != nil})
	}
	if len(batch) > 0 {
		l.retries.add(batch)
	}
}

// laterDelay is how long a parked row that cannot be read now is left alone.
const laterDelay = time.Second

// returned takes a parked row that the retrier has read.
func (l *loop) returned(r retried) {
	b, e := r.berth, r.entry
	switch {
	case r.end != "":
		l.end(ending{berth: b, end: r.end, messageID: e.message.ID, audit: true})
	case b.discard:
		l.end(ending{berth: b, end: checkpoint.ParkedDiscarded})
	case l.stopping || r.later || !l.lot.mayFollow(b):
		if r.later {
			b.due = time.Now().Add(laterDelay)
		}
		l.lot.back(b)
	case e.fault != nil:
		e.berth = b
		l.putAside(e)
	default:
		e.berth, b.mapping = b, e.mapping
		l.lot.redirect(b, e.message.Exchange, e.message.RoutingKey)
		l.lot.entered(b)
		l.flow.admit(e)
	}
}

// passing says what a position that is saved now has passed.
func (l *loop) passing() *passing {
	p := passing{since: l.base, below: l.window.passed, inherited: len(l.lot.inherited) > 0 && !l.began.IsZero() && l.low.Compare(l.began) >= 0}
	if len(l.lot.ahead) == 0 && !p.inherited {
		return nil
	}
	return &p
}

// changed takes the writer's report on parked rows.
func (l *loop) changed(done written) {
	for _, p := range done.parks {
		if p.fresh {
			l.settle(p.entry)
		}
		l.lot.saved(p.berth)
	}
	for _, r := range done.revived {
		if !r.berth.over() {
			l.lot.revive(r.berth)
		}
	}
	for _, e := range done.ends {
		if e.berth.stage == stageEnding {
			l.lot.end(e.berth, e.end)
		}
		if !e.berth.unsentStill() {
			l.stored(e.berth)
		}
	}
	for _, w := range done.finished {
		if w.state != nil {
			w.berth.wrote = max(w.berth.wrote, w.version)
		}
		if w.berth.state.Ended() && (w.state == nil || w.berth.wrote == w.berth.version) {
			l.stored(w.berth)
		}
	}
	if done.passing != nil {
		for _, b := range l.lot.passed(done.passing) {
			l.forget(b)
		}
	}
	for _, c := range done.commands {
		close(c.done)
	}
}

// stored says that a row's end is durable, and that nothing shows it as unsent.
func (l *loop) stored(b *berth) {
	if b.stored = true; b.past {
		l.forget(b)
	}
}

// forget drops a row that has ended and will not be read again.
func (l *loop) forget(b *berth) {
	l.lot.forget(b)
	l.next.forget = append(l.next.forget, forgetting{berth: b})
}
