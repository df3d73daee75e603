package relay

import (
	"fmt"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/relay/rabbit"
)

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
			// What stays as it is: the loop may note a look's verdict in the rest meanwhile.
			v.parked[id] = &record{row: p.row, entry: entry{table: p.entry.table, message: p.entry.message, ref: p.entry.ref}}
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
