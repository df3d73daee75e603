package rabbit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestADestinationIsProbedWhenAChannelIsYoung(t *testing.T) {
	t.Parallel()
	f := play(t, func(_ int, c *peer) {
		if !c.up() {
			return
		}
		c.take(1)
		if !c.silent(100 * time.Millisecond) {
			c.t.Error("a second message followed the probe")
		}
		c.nack(1, false)
		c.take(1)
		if !c.silent(100 * time.Millisecond) {
			c.t.Error("a message followed the second probe")
		}
		c.ack(2, false)
		c.take(8)
		c.ack(10, true)
		c.gone()
	})
	r := start(t, options(f.url))
	r.send(messages(0, 10, "q")...)
	r.all()
	expect(t, "nacked", r.counts()[Nacked], 1)
	expect(t, "delivered", r.counts()[Delivered], 9)
}

func TestAMessageThatEndsConnectionsIsFoundAndTheOthersPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(*peer)
		want Result
		code int
	}{
		{"a frame error", func(c *peer) {
			c.send(0, 10, 50, uint16(501), "FRAME_ERROR - type 2, all octets", uint16(0), uint16(0))
			c.gone()
		}, Poison, 501},
		{"an internal error", func(c *peer) {
			c.send(0, 10, 50, uint16(541), "INTERNAL_ERROR", uint16(0), uint16(0))
			c.gone()
		}, Unknown, 541},
		{"a reset", func(c *peer) { c.reset() }, Unknown, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			got := map[string]bool{}
			f := play(t, func(_ int, p *peer) {
				if !p.up() {
					return
				}
				for m, ok := p.next(); ok; m, ok = p.next() {
					if m.id == "7" {
						c.end(p)
						return
					}
					mu.Lock()
					got[m.id] = true
					mu.Unlock()
					if m.tag%4 == 0 { // some wait for a later confirm
						p.ack(m.tag, true)
					} else if p.r.Buffered() == 0 {
						p.ack(m.tag, true)
					}
				}
			})
			r := start(t, options(f.url))
			tokens := r.send(spread(0, 20)...)
			r.all()
			expect(t, "the culprit", r.outcome(tokens[7]).Result, c.want)
			expect(t, "its code", r.outcome(tokens[7]).Code, c.code)
			expect(t, "delivered", r.counts()[Delivered], 19)
			expect(t, "different messages at the broker", len(got), 19)
		})
	}
}

func TestAnExchangeThatRefusedIsTriedAloneUntilItTakesAMessage(t *testing.T) {
	t.Parallel()
	var there atomic.Bool
	var beside atomic.Int32
	f := play(t, func(_ int, c *peer) {
		if !c.up() {
			return
		}
		unanswered := 0
		for p, ok := c.next(); ok; p, ok = c.next() {
			unanswered++
			if p.exchange != "x" || there.Load() {
				if p.exchange == "x" && unanswered > 1 {
					beside.Add(1)
				}
				c.ack(p.tag, true)
				unanswered = 0
				continue
			}
			if unanswered > 1 {
				beside.Add(1)
			}
			if !c.closeChannel(404, "NOT_FOUND - no exchange 'x' in vhost '/'") {
				return
			}
			unanswered = 0
		}
	})
	r := start(t, options(f.url))
	bad := message(100, "k")
	bad.Exchange = "x"
	token := r.send(bad)[0]
	r.all()
	expect(t, "outcome", r.outcome(token).Result, Refused)
	for range 20 {
		r.send(append(messages(0, 5, "q"), bad)...)
		r.all()
	}
	expect(t, "refused", r.counts()[Refused], 21)
	expect(t, "delivered", r.counts()[Delivered], 100)
	expect(t, "messages in flight beside a likely refusal", beside.Load(), 0)
	there.Store(true)
	r.send(bad)
	r.all()
	expect(t, "delivered", r.counts()[Delivered], 101)
	expect(t, "sessions", r.entered(Up), 1)
}

func TestAStuckMessageDoesNotHoldUpAProbation(t *testing.T) {
	t.Parallel()
	var barriers atomic.Int32
	f := play(t, func(_ int, c *peer) {
		if !c.up() {
			return
		}
		for p, ok := c.next(); ok; p, ok = c.next() {
			barriers.Store(int32(c.barriers))
			switch {
			case p.exchange == "x":
				if !c.closeChannel(404, "NOT_FOUND - no exchange 'x' in vhost '/'") {
					return
				}
			case p.key != "stuck":
				c.ack(p.tag, false)
			}
		}
	})
	r := start(t, options(f.url))
	bad := func(n int) *Message { m := message(n, "k"); m.Exchange = "x"; return m }
	stuck := r.send(message(1, "stuck"))[0]
	began := time.Now()
	refused := r.send(bad(2))
	r.send(messages(3, 50, "q")...)
	r.until("all but the stuck message settle", func() bool { return len(r.settled) == len(r.sent)-1 })
	// Now the exchange is known to refuse, and a message to it waits for what is under way.
	refused = append(refused, r.send(bad(50))...)
	r.send(messages(51, 100, "q")...)
	r.until("all but the stuck message settle", func() bool { return len(r.settled) == len(r.sent)-1 })
	if d := time.Since(began); d > 8*patience {
		t.Errorf("it took %v", d)
	}
	for _, token := range refused {
		expect(t, "outcome", r.outcome(token).Result, Refused)
	}
	expect(t, "delivered", r.counts()[Delivered], 96)
	if _, settled := r.settled[stuck]; settled {
		t.Error("the stuck message settled")
	}
	if barriers.Load() == 0 {
		t.Error("nothing waited for a barrier")
	}
	expect(t, "sessions", r.entered(Up), 1)
}
