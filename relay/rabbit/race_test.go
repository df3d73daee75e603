package rabbit

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestConfirmsInAnyPatternSettleTheRightMessages(t *testing.T) {
	t.Parallel()
	const n = 8
	all := func(r Result) map[int]Result {
		m := map[int]Result{}
		for i := range n {
			m[i] = r
		}
		return m
	}
	mixed := all(Delivered)
	mixed[2], mixed[3], mixed[5] = Nacked, Nacked, Nacked
	for _, c := range []struct {
		name    string
		confirm func(*peer)
		want    map[int]Result
	}{
		{"one multiple ack", func(c *peer) { c.ack(n, true) }, all(Delivered)},
		{"one multiple nack", func(c *peer) { c.nack(n, true) }, all(Nacked)},
		{"single acks backwards", func(c *peer) {
			for tag := uint64(n); tag > 0; tag-- {
				c.ack(tag, false)
			}
		}, all(Delivered)},
		{"multiple over holes, nacks, repeats, and a tag that was never sent", func(c *peer) {
			c.ack(8, false)
			c.nack(6, false)
			c.ack(99, false)
			c.ack(2, true)
			c.ack(2, true)
			c.ack(1, false)
			c.nack(4, true)
			c.ack(7, true)
		}, mixed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := play(t, func(_ int, p *peer) {
				if p.up() && len(p.take(n)) == n {
					c.confirm(p)
					p.gone()
				}
			})
			r := start(t, withoutProbing(f.url, n))
			tokens := r.send(spread(0, n)...)
			r.all()
			for i, token := range tokens {
				if o := r.outcome(token); o.Result != c.want[i] {
					t.Errorf("message %d: %+v, want %v", i, o, c.want[i])
				}
			}
		})
	}
}

// spread returns messages of one destination each: nothing is probed.
func spread(from, to int) (ms []*Message) {
	for n := from; n < to; n++ {
		ms = append(ms, message(n, "q"+strconv.Itoa(n)))
	}
	return ms
}

func withoutProbing(url string, window int) Options {
	opt := options(url)
	opt.InFlight = window
	return opt
}

func TestAWholeWindowOfReturnsAheadOfItsConfirmsIsFound(t *testing.T) {
	t.Parallel()
	const window = 256
	f := play(t, func(_ int, c *peer) {
		if !c.up() {
			return
		}
		ps := c.take(window)
		for _, p := range ps[1:] {
			c.giveBack(p)
		}
		c.ack(window, true)
		c.gone()
	})
	r := start(t, options(f.url))
	tokens := r.send(spread(0, window)...)
	r.all()
	expect(t, "the first message", r.outcome(tokens[0]).Result, Delivered)
	expect(t, "unroutable", r.counts()[Unroutable], window-1)
	expect(t, "code", r.outcome(tokens[1]).Code, 312)
}

func TestAReturnThatFitsNothingIsNotBelieved(t *testing.T) {
	t.Parallel()
	f := play(t, func(n int, c *peer) {
		if !c.up() {
			return
		}
		if n == 0 {
			p, _ := c.next()
			p.key = "another"
			c.giveBack(p)
			c.ack(1, false)
			c.gone()
			return
		}
		p, _ := c.next()
		c.giveBack(p)
		c.ack(1, false)
		c.gone()
	})
	r := start(t, options(f.url))
	token := r.send(message(1, "q"))[0]
	r.all()
	expect(t, "outcome", r.outcome(token).Result, Unroutable)
	expect(t, "sessions", r.entered(Up), 2)
}

func TestWhatWasNotAnsweredIsSentAgainInOrder(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		how  func(*peer)
	}{
		{"reset", func(c *peer) { c.reset() }},
		{"connection.close", func(c *peer) {
			c.send(0, 10, 50, uint16(320), "CONNECTION_FORCED - shutdown", uint16(0), uint16(0))
			c.gone()
		}},
		{"half a confirm", func(c *peer) {
			c.write(encode(c.data, 60, 80, uint64(9), byte(0))[:13])
			c.reset()
		}},
		{"rubbish", func(c *peer) {
			c.write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.gone()
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			again := make(chan []string, 1)
			f := play(t, func(n int, c *peer) {
				if !c.up() {
					return
				}
				if n > 0 {
					again <- c.obey()
					return
				}
				c.take(10)
				c.ack(3, true)
				c.ack(6, false)
				c.ack(8, false)
				end.how(c)
			})
			r := start(t, options(f.url))
			r.send(spread(1, 11)...)
			r.all()
			r.stop()
			expect(t, "delivered", r.counts()[Delivered], 10)
			ids := <-again
			// An acknowledgement may be lost with its connection; a message may not.
			if missing := subsequence(ids, 1, 10); missing != "" {
				t.Errorf("sent again: %v: %s", ids, missing)
			}
			for _, must := range []string{"4", "5", "7", "9", "10"} {
				if !slices.Contains(ids, must) {
					t.Errorf("message %s was not sent again: %v", must, ids)
				}
			}
		})
	}
}

// subsequence says what is wrong when ids do not ascend within from..to.
func subsequence(ids []string, from, to int) string {
	for _, id := range ids {
		n, _ := strconv.Atoi(id)
		if n < from || n > to {
			return fmt.Sprintf("%s is out of order", id)
		}
		from = n + 1
	}
	return ""
}

func TestACutAtAnyByteOfAPublishSendsItAgain(t *testing.T) {
	t.Parallel()
	m := message(1, "q")
	m.Headers = []Header{{"tenant", "a"}}
	offsets := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for offset := range offsets {
				whole := make(chan string, 1)
				f := play(t, func(n int, c *peer) {
					switch {
					case !c.up():
					case n == 0:
						_, _ = io.ReadFull(c.r, make([]byte, offset))
					default:
						p, _ := c.next()
						whole <- p.id + string(p.body)
						c.ack(1, false)
						c.gone()
					}
				})
				opt := options(f.url)
				opt.Logger = zap.NewNop()
				r := start(t, opt)
				token := r.send(m)[0]
				r.all()
				r.stop()
				expect(t, fmt.Sprintf("outcome of a cut at byte %d", offset), r.outcome(token).Result, Delivered)
				expect(t, "sent again", <-whole, "1body of 1")
			}
		})
	}
	for offset := range m.Size() {
		offsets <- offset
	}
	close(offsets)
	workers.Wait()
}

func TestASilentBrokerThatReadsNothingIsLeftWithinTwoHeartbeats(t *testing.T) {
	t.Parallel()
	const heartbeat = 2 * time.Second
	var stuck atomic.Int64
	f := play(t, func(n int, c *peer) {
		if !c.up() {
			return
		}
		if n > 0 {
			c.obey()
			return
		}
		stuck.Store(time.Now().UnixNano())
		<-t.Context().Done()
	})
	opt := options(f.url)
	opt.Heartbeat = heartbeat
	r := start(t, opt)
	r.phase(Up)
	var big []*Message
	for i := range 15 {
		m := message(i, "q"+strconv.Itoa(i))
		m.Body = make([]byte, 1<<20)
		big = append(big, m)
	}
	r.send(big...)
	r.until("the connection is given up", func() bool { return len(r.states) > 0 && r.states[len(r.states)-1].Phase == Down })
	if d := time.Since(time.Unix(0, stuck.Load())); d > 2*heartbeat {
		t.Errorf("it took %v", d)
	}
	r.all()
	expect(t, "delivered", r.counts()[Delivered], 15)
}

func TestAnAlarmStopsSendingAndLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	ids := make(chan []string, 1)
	blocked, settledWhileBlocked := make(chan struct{}), make(chan struct{})
	f := play(t, func(_ int, c *peer) {
		if !c.up() {
			return
		}
		p, _ := c.next()
		c.send(0, 10, 60, "low on memory")
		close(blocked)
		<-settledWhileBlocked
		if !c.silent(900 * time.Millisecond) { // three confirm timeouts
			c.t.Error("something was sent under the alarm")
		}
		c.send(0, 10, 61)
		c.ack(p.tag, false)
		ids <- append([]string{p.id}, c.obey()...)
	})
	opt := options(f.url)
	opt.ConfirmTimeout = 300 * time.Millisecond
	r := start(t, opt)
	r.send(message(0, "q"))
	<-blocked
	expect(t, "reason", r.phase(Blocked).Reason, "low on memory")
	r.send(spread(1, 50)...) // none waits for another's confirm
	close(settledWhileBlocked)
	r.all()
	expect(t, "delivered", r.counts()[Delivered], 50)
	r.phase(Up)
	r.stop()
	expect(t, "duplicates", inOrder(t, <-ids, 0, 50), 0)
	expect(t, "sessions", r.entered(Connecting), 1)
}

func TestAnUnconfirmedMessageIsUnknownAndTheRestIsSentAgain(t *testing.T) {
	t.Parallel()
	again := make(chan []string, 1)
	var stuckGone atomic.Bool
	f := play(t, func(n int, c *peer) {
		if !c.up() {
			return
		}
		if n > 0 {
			again <- c.obey()
			return
		}
		for p, ok := c.next(); ok; p, ok = c.next() {
			switch {
			case p.key == "stuck": // never confirmed
			case p.id == "late":
			default:
				c.ack(p.tag, false)
			}
		}
		stuckGone.Store(true)
	})
	opt := options(f.url)
	opt.ConfirmTimeout = time.Second
	r := start(t, opt)
	stuck := r.send(message(1, "stuck"))[0]
	fine := r.send(message(2, "fine"), message(3, "fine"))
	r.until("others pass the stuck message", func() bool { return len(r.settled) == 2 })
	expect(t, "another", r.outcome(fine[0]).Result, Delivered)
	time.AfterFunc(700*time.Millisecond, func() {
		late := message(4, "fine")
		late.ID = "late"
		r.send(late)
	})
	r.until("the late message is settled too", func() bool { return len(r.settled) == 4 })
	if !stuckGone.Load() {
		t.Error("the old connection is still there")
	}
	o := r.outcome(stuck)
	expect(t, "the stuck message", o.Result, Unknown)
	expect(t, "sessions", r.entered(Up), 2)
	r.stop()
	expect(t, "sent again", fmt.Sprint(<-again), "[late]")
}

func TestACancelledFenceEndsItsSession(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	f := play(t, func(n int, c *peer) {
		if !c.up() {
			return
		}
		if n > 0 {
			c.obey()
			return
		}
		c.take(1)
		c.send(1, 60, 30, "fence", byte(1))
		c.gone()
		close(ended)
	})
	r := start(t, options(f.url))
	r.send(message(1, "q"))
	<-ended
	r.all()
	expect(t, "sessions", r.entered(Up), 2)
	if !slices.ContainsFunc(r.states, func(s State) bool { return s.Phase == Down && s.Reason == errFenceLost.Error() }) {
		t.Errorf("the session ended for another reason: %v", r.states)
	}
}

func TestTwoMessagesThatAReturnCouldNotTellApartAreNotInFlightTogether(t *testing.T) {
	t.Parallel()
	f := play(t, func(_ int, c *peer) {
		if !c.up() {
			return
		}
		first, _ := c.next()
		c.take(1) // the same id elsewhere need not wait
		if !c.silent(100 * time.Millisecond) {
			c.t.Error("the twin was sent beside the first")
		}
		c.ack(2, true)
		second, _ := c.next()
		if first.id != second.id {
			c.t.Errorf("%s came instead of the twin", second.id)
		}
		c.giveBack(second)
		c.ack(3, false)
		c.gone()
	})
	r := start(t, options(f.url))
	tokens := r.send(message(1, "a"), message(1, "b"), message(1, "a"))
	r.all()
	expect(t, "the first", r.outcome(tokens[0]).Result, Delivered)
	expect(t, "the twin", r.outcome(tokens[2]).Result, Unroutable)
}

func TestALaneStopsAtOnceWhateverItWaitsFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(*peer)
	}{
		{"the handshake", func(*peer) {}},
		{"the fence", func(c *peer) { c.login() }},
		{"its channel", func(c *peer) { _ = c.login() && c.fence() }},
		{"a confirm", func(c *peer) { _ = c.up() && len(c.take(1)) == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			reached, release := make(chan struct{}), make(chan struct{})
			f := play(t, func(n int, p *peer) {
				c.play(p)
				if n == 0 {
					close(reached)
				}
				<-release
			})
			defer close(release)
			r := start(t, options(f.url))
			r.send(message(1, "q"))
			<-reached
			before := time.Now()
			r.stop()
			if d := time.Since(before); d > 2*closeTimeout {
				t.Errorf("it took %v", d)
			}
			expect(t, "settled", len(r.settled), 0)
		})
	}
}
