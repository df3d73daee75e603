package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// rowKey is how the state tables name a row.
func (b *berth) rowKey() checkpoint.RowKey {
	return checkpoint.RowKey{Schema: b.table.name.Schema, Name: b.table.name.Name, Key: []byte(b.ref[4:])}
}

// row is a parked row as it is made durable, but for its image.
func (b *berth) row(e *entry) checkpoint.Parked {
	p := checkpoint.Parked{
		RowKey: b.rowKey(), Sequence: b.sequence, Label: b.table.label,
		Place:     checkpoint.Place{Number: b.number, Ahead: !b.past},
		MessageID: e.message.ID, Exchange: e.message.Exchange, RoutingKey: e.message.RoutingKey, Size: b.size,
		Attempt: checkpoint.Attempt{
			State: b.state, Class: string(b.class), Code: e.fault.code, Reason: e.fault.reason, Refusals: b.refusals, Attempts: b.attempts,
			ByItself: b.state == checkpoint.ParkedWaiting && !b.due.IsZero(), Wait: time.Until(b.due),
		},
	}
	if e.gate != "" {
		p.Ordering = []byte(e.gate[4:])
	}
	return p
}

// image is what a parked row is sent from later: of a keep table the row
// itself, because nothing tells its sent rows from the others. The rows of
// other tables are read again by their key.
func (p *parking) image() []byte {
	if !p.fresh || p.entry.table.config.AfterPublish != configs.Keep {
		return nil
	}
	return p.entry.row.AppendImage(nil)
}

// begin makes a sequence the last one of earlier leaders. A leader may begin
// again within its term, so the term alone does not make sequences grow.
func (l *loop) begin(sequence uint64) {
	l.base = max(l.base, sequence)
	l.sequence = l.base
}

// restore takes in a parked row that an earlier leader left. m is the table's
// present mapping, nil for a keep table.
func (l *loop) restore(t *table, m *mapping, p *checkpoint.Parked, now time.Time) {
	b := &berth{table: t, ref: t.ref(p.Key), mapping: m, sequence: p.Sequence, size: p.Size, state: p.State, class: class(p.Class),
		refusals: p.Refusals, attempts: p.Attempts, past: !p.Place.Ahead, inherited: p.Place.Ahead}
	if b.inherited {
		l.lot.inherited = append(l.lot.inherited, b)
	}
	if p.State.Ended() {
		l.lot.byRef[b.ref] = b
		switch {
		case !b.unsentStill():
			l.stored(b)
		case t.marksFailed() && m != nil:
			b.version++
			l.writes = append(l.writes, b.giveUp())
		}
		return
	}
	if p.ByItself {
		b.due = now.Add(p.Wait)
	}
	gate := ""
	if p.Ordering != nil {
		gate = t.ref(p.Ordering)
	}
	l.lot.add(b, gate, p.Exchange, p.RoutingKey)
	b.taken = b.to.taken
	l.lot.saved(b)
}

// over says whether the row has ended, or is about to.
func (b *berth) over() bool { return b.state.Ended() || b.stage == stageEnding }

// unsentStill says whether an ended row may look unsent in its table: one that
// was discarded, until its status says so. It is remembered for as long, so
// that a sweep does not bring it back.
func (b *berth) unsentStill() bool {
	return b.state == checkpoint.ParkedDiscarded && b.table.writesBack()
}

// giveUp is the write that tells a discarded row from an unsent one.
func (b *berth) giveUp() write {
	return write{table: b.table, mapping: b.mapping, ref: b.ref, seen: string(b.table.config.Status.Pending),
		state: &rowState{status: string(b.table.config.Status.Failed), keepRest: true}, berth: b, version: b.version}
}

// reopen is the write that makes a failed row a pending one again, nil for none.
func (b *berth) reopen() *write {
	if b.state != checkpoint.ParkedFailed || !b.table.marksFailed() {
		return nil
	}
	b.version++
	return &write{table: b.table, mapping: b.mapping, ref: b.ref, seen: string(b.table.config.Status.Failed),
		state: &rowState{status: string(b.table.config.Status.Pending)}, berth: b, version: b.version}
}

// outdated says whether a later write of the same row's state is due.
func (w *write) outdated() bool { return w.state != nil && w.version != w.berth.version }

func errParkedFull(t *table) error {
	return fmt.Errorf("table %s keeps its rows and has %d parked, which is max_parked: the stream goes on by itself when some are sent; "+
		"mend what refuses them, or discard them with towpath parked discard", t.name, t.config.MaxParked)
}

// allWrites is the row state that a job writes.
func (j *job) allWrites() []write {
	writes := j.writes[:len(j.writes):len(j.writes)]
	for i := range j.parks {
		if w := j.parks[i].write; w != nil {
			writes = append(writes, *w)
		}
	}
	for _, r := range j.revived {
		if r.write != nil {
			writes = append(writes, *r.write)
		}
	}
	return writes
}

// persist makes the changes of parked rows durable. A confirmed one ends in the
// transaction that writes its row state: finished are those whose is written,
// or will not be because the application's value won.
func (c *changes) persist(ctx context.Context, tx *checkpoint.Tx, finished []write) error {
	for _, f := range c.forget {
		if err := tx.ForgetParked(ctx, f.berth.rowKey(), f.always); err != nil {
			return err
		}
	}
	rows := make([]checkpoint.Parked, len(c.parks))
	for i := range c.parks {
		rows[i] = c.parks[i].row
		rows[i].Image = c.parks[i].image()
	}
	if err := tx.Park(ctx, rows); err != nil {
		return err
	}
	for _, r := range c.revived {
		if err := tx.ReviveParked(ctx, r.berth.rowKey()); err != nil {
			return err
		}
	}
	for _, w := range finished {
		if w.state == nil {
			if err := tx.EndParked(ctx, w.berth.rowKey(), checkpoint.ParkedSent); err != nil {
				return err
			}
		}
	}
	for _, e := range c.ends {
		if err := tx.EndParked(ctx, e.berth.rowKey(), e.end); err != nil {
			return err
		}
		if e.audit {
			detail, err := json.Marshal(map[string]any{"table": e.berth.table.label, "message_id": e.messageID, "parked": e.berth.sequence})
			if err != nil {
				return err
			}
			if err := tx.Audit(ctx, checkpoint.Audit{Action: "parked." + string(e.end), Detail: detail}); err != nil {
				return err
			}
		}
	}
	return nil
}

// finished is the writes of parked rows that need not be tried again.
func (r *groupReport) finished() []write {
	locked := make(map[string]bool, len(r.locked))
	for _, w := range r.locked {
		locked[w.ref] = true
	}
	var all []write
	for _, w := range r.writes {
		if w.berth != nil && !locked[w.ref] {
			all = append(all, w)
		}
	}
	return all
}

// restoreParked takes in what earlier leaders parked. It comes before the
// first publish: a row whose key has parked ones must line up behind them (P6).
func (l *leader) restoreParked(ctx context.Context) error {
	now, count := time.Now(), 0
	l.loop.begin(l.term.Fence.Term << 40)
	for after := uint64(0); ; {
		page, err := l.store.Parked(ctx, l.term.Fence.Stream, after, restorePage)
		if err != nil {
			return err
		}
		for i := range page {
			p := &page[i]
			after = p.Sequence
			t := l.tables.find(canal.TableName{Schema: p.Schema, Name: p.Name})
			if t == nil {
				continue // of a table that the configuration no longer names: it stays for an operator
			}
			var m *mapping
			if t.writesBack() {
				// Without one, as when the table is gone, its rows cannot be read either.
				if m, _, err = l.retrier.current.mapping(ctx, t); err != nil && outage(err) {
					return err
				}
			}
			l.loop.restore(t, m, p, now)
			count++
		}
		l.loop.begin(after)
		if len(page) < restorePage {
			break
		}
	}
	if count > 0 {
		l.log.Info("parked rows taken over", zap.Int("rows", count))
	}
	return nil
}

const restorePage = 1000

// waitForRoom is told by the loop when it stands still because a keep table has
// all its parked rows, and nil when it goes on.
func (l *leader) waitForRoom(halt *haltError) {
	l.relay.health.halt(halt)
	set(l.relay.metrics.Halted.WithLabelValues("parked"), halt != nil)
	if halt != nil {
		l.log.Error("halted: the stream stands still until parked rows are sent or discarded", zap.Error(halt.err))
	} else {
		l.log.Info("there is room for parked rows again: the stream goes on")
	}
}
