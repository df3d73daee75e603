package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/towpath/towpath/checkpoint"
)

// demo is what is known, and the one loop that owns it.
type demo struct {
	*stage
	display display
	keys    <-chan byte
	notes   chan func(*demo) // from shop, consumer, relays, actions
	over    chan struct{}    // closed when nobody takes notes any more
	helpers sync.WaitGroup   // goroutines that write notes
	playing context.Context  // ends with the loop

	ledger      *ledger
	consumer    *consumer
	lastArrival time.Time
	relays      []*relay
	began       time.Time // when the shop opened; zero before
	phase       string    // shown; "" while all runs
	script      []scripted
	events      []event
	failure     error // that ends the demo

	broker   string // up, stopped, starting
	position string
	saved    time.Time // when the position last changed
	busy     string    // the action under way
	freed    time.Time // when the last one was over
	deposed  *relay    // the leader that was killed last, until another publishes
	kills    int
	restarts int
	purges   int
	asked    bool // to end
	forced   bool // to end at once
	emptied  bool // the queue, at the end
}

// event is one line of what happened.
type event struct {
	at   time.Time
	text string
}

// scripted is an action that comes by itself, for a run without a person.
type scripted struct {
	after time.Duration
	key   byte
}

// newDemo returns a demo that listens to keys; without a person the script presses them.
func newDemo(s *stage, show display, keys <-chan byte) *demo {
	d := &demo{
		stage: s, display: show, keys: keys,
		notes: make(chan func(*demo), 256), over: make(chan struct{}),
		ledger: newLedger(), broker: "up", position: "none",
	}
	if t := s.options.duration; t > 0 {
		d.script = []scripted{{t * 2 / 10, 'k'}, {t * 4 / 10, 'b'}, {t * 7 / 10, 'p'}}
	}
	return d
}

// note hands the loop something to do. It may be called from any goroutine.
func (d *demo) note(f func(*demo)) {
	select {
	case d.notes <- f:
	case <-d.over:
	}
}

// run plays the demo to its end. The account is complete when it returns nil.
func (d *demo) run() error {
	var end context.CancelFunc
	d.playing, end = context.WithCancel(context.Background())
	defer d.helpers.Wait()
	defer end()
	defer close(d.over)
	defer d.killRelays()
	if err := d.startConsumer(); err != nil {
		return err
	}
	d.helpers.Go(func() { d.followPosition(d.playing) })

	d.phase = "starting the relays"
	if err := d.startRelays(); err != nil {
		return err
	}
	if err := d.until(func() bool { return d.leads() || d.asked }, time.Minute); err != nil {
		return fmt.Errorf("wait for a relay to publish: %w", err)
	}
	if d.asked {
		return errForced
	}
	d.began, d.phase = time.Now(), ""
	open, closeShop := context.WithCancel(d.playing)
	defer closeShop()
	shut := false
	d.helpers.Go(func() {
		err := (&shop{db: d.shopDB, note: d.note, rate: d.options.rate}).run(open)
		d.note(func(d *demo) {
			shut = true
			if err != nil {
				d.failure = err
			}
		})
	})
	if err := d.until(d.played, math.MaxInt64); err != nil {
		return err
	}
	closeShop()
	return d.finish(&shut)
}

// startConsumer declares the queue and consumes from it.
func (d *demo) startConsumer() (err error) {
	d.consumer, err = newConsumer(d.consumerDB, func(id string, at time.Time) { d.note(func(d *demo) { d.arrived(id, at) }) })
	if err != nil {
		return err
	}
	if err := d.consumer.declare(d.vhost.URL()); err != nil {
		return fmt.Errorf("declare the queue: %w", err)
	}
	d.helpers.Go(func() {
		if err := d.consumer.run(d.playing, d.vhost.URL()); err != nil {
			d.note(func(d *demo) { d.failure = fmt.Errorf("consume: %w", err) })
		}
	})
	return nil
}

// finish lets everything settle, stops the relays and closes the account.
func (d *demo) finish(shut *bool) error {
	d.phase, d.asked = "the shop is closed; waiting for what it committed (q: no longer)", false
	settled := func() bool {
		return *shut && d.busy == "" && (d.asked || d.ledger.waiting().rows == 0 || d.idleFor(settleWithin))
	}
	if err := d.until(settled, 5*time.Minute); err != nil && !errors.Is(err, errTimeout) {
		return err
	}
	d.phase = "stopping the relays"
	for _, r := range d.relays {
		r.stop()
	}
	if err := d.until(d.relaysDown, 30*time.Second); err != nil {
		return fmt.Errorf("stop the relays: %w", err)
	}
	// What they sent last is in the queue now, and the marker comes behind it.
	d.phase = "emptying the queue"
	d.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(d.playing, 20*time.Second)
		defer cancel()
		if err := sendMarker(ctx, d.vhost.URL()); err != nil {
			d.note(func(d *demo) { d.failure = fmt.Errorf("send the last message: %w", err) })
		}
	})
	if err := d.until(func() bool { return d.emptied }, 30*time.Second); err != nil {
		return fmt.Errorf("empty the queue: %w", err)
	}
	return nil
}

// settleWithin is how long nothing may arrive before what waits is given up as lost.
const settleWithin = 30 * time.Second

func (d *demo) idleFor(t time.Duration) bool {
	return time.Since(d.lastArrival) > t && time.Since(d.lastEvent()) > t
}

func (d *demo) lastEvent() time.Time {
	if n := len(d.events); n > 0 {
		return d.events[n-1].at
	}
	return d.began
}

var (
	errTimeout = errors.New("timed out")
	errForced  = errors.New("ended before the account was closed")
)

// until runs the loop until something is so.
func (d *demo) until(so func() bool, within time.Duration) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	frame := time.NewTicker(100 * time.Millisecond)
	defer frame.Stop()
	for {
		select {
		case f := <-d.notes:
			f(d)
		case key := <-d.keys:
			d.press(key)
		case <-deadline.C:
			return errTimeout
		case <-frame.C:
			d.playScript()
			d.display.show(d.view())
			if so() {
				return nil
			}
		}
		switch {
		case d.failure != nil:
			return d.failure
		case d.forced:
			return errForced
		}
	}
}

// playScript does what is due, when what was done before is over.
func (d *demo) playScript() {
	if len(d.script) > 0 && d.recovered() && d.phase == "" && time.Since(d.began) >= d.script[0].after {
		d.press(d.script[0].key)
		d.script = d.script[1:]
	}
}

// played says that somebody ended the demo, or that its time and its script are over.
func (d *demo) played() bool {
	t := d.options.duration
	return d.asked || t > 0 && time.Since(d.began) >= t && len(d.script) == 0 && d.recovered()
}

// recovered says that what was done last is over and seen to be: messages flow
// again, or have had their time to.
func (d *demo) recovered() bool {
	w := d.ledger.waiting()
	flows := w.rows == 0 || time.Since(w.oldest) < time.Second
	return d.busy == "" && d.leads() && (flows || time.Since(d.freed) > recoverWithin)
}

// recoverWithin bounds the wait on a machine that is slower than its shop.
const recoverWithin = 15 * time.Second

// happened adds a line to the events.
func (d *demo) happened(format string, args ...any) { d.happenedAt(time.Now(), format, args...) }

func (d *demo) happenedAt(at time.Time, format string, args ...any) {
	d.events = append(d.events, event{at, fmt.Sprintf(format, args...)})
	if len(d.events) > keptEvents {
		d.events = d.events[len(d.events)-keptEvents:]
	}
	d.display.event(d.since(at), d.events[len(d.events)-1].text)
}

const keptEvents = 200

// since is a time on the demo's own clock.
func (d *demo) since(at time.Time) time.Duration {
	if d.began.IsZero() {
		return 0
	}
	return at.Sub(d.began)
}

// arrived notes a message at the consumer.
func (d *demo) arrived(id string, at time.Time) {
	if id == marker {
		d.emptied = true
		return
	}
	d.lastArrival = at
	d.ledger.deliver(id, at)
}

// followPosition reads the saved position every half second.
func (d *demo) followPosition(ctx context.Context) {
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		var text []byte
		var p checkpoint.Position
		row := d.shopDB.QueryRowContext(ctx, "SELECT position FROM "+d.state+".checkpoint WHERE stream = 'demo'")
		if row.Scan(&text) != nil || p.UnmarshalJSON(text) != nil {
			continue // none yet
		}
		d.note(func(d *demo) {
			if place := fmt.Sprintf("%s:%d", p.File, p.Offset); place != d.position {
				d.position, d.saved = place, time.Now()
			}
		})
	}
}
