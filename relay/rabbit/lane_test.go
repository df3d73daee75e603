package rabbit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
)

func TestMessagesArriveInOrderWithAllTheirProperties(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		r := start(t, options(v.URL()))
		r.send(messages(0, 2000, "q")...)
		r.all()
		expect(t, "delivered", r.counts()[Delivered], 2000)
		expect(t, "duplicates", inOrder(t, consumed(t, ch, "q", 2000), 0, 2000), 0)
		s := r.phase(Up)
		expect(t, "vhost", s.Peer.Vhost, v.Name)
		if s.Peer.Cluster == "" || s.Peer.Version == "" || s.Peer.Address != mq.Addr() {
			t.Errorf("the peer is not known: %+v", s.Peer)
		}
	})
}

func TestEveryReturnIsFoundAmongManyConfirms(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "classic", nil)
		r := start(t, options(v.URL()))
		n := 15000
		if long {
			n = 99_999
		}
		for i := range n {
			queue := "q"
			if i%3 == 0 {
				queue = "nowhere"
			}
			r.send(message(i, queue))
		}
		r.all()
		for token, m := range r.sent {
			want := Delivered
			if m.RoutingKey == "nowhere" {
				want = Unroutable
			}
			if o := r.outcome(token); o.Result != want {
				t.Fatalf("message %s to %s: %+v", m.ID, m.RoutingKey, o)
			}
		}
		expect(t, "messages in the queue", len(consumed(t, ch, "q", n*2/3)), n*2/3)
	})
}

func TestTheMessageThatKillsTheChannelIsFoundAndTheOthersPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		spoil  func(*Message)
		result Result
		code   int
	}{
		{"missing exchange", func(m *Message) { m.Exchange = "missing" }, Refused, 404},
		{"no permission", func(m *Message) { m.Exchange = "forbidden" }, Refused, 403},
		{"too large", func(m *Message) { m.Body = make([]byte, 100<<10) }, Poison, 406},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
				ch := admin(t, v)
				declare(t, ch, "q", "quorum", nil)
				if err := ch.ExchangeDeclare("forbidden", "fanout", true, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
				if err := mq.SetPermissions(t.Context(), v, ".*", "^(?!forbidden).*$", ".*"); err != nil {
					t.Fatal(err)
				}
				if c.code == 406 {
					limitMessageSize(t, mq)
				}
				r := start(t, options(v.URL()))
				r.phase(Up)
				batch := messages(0, 600, "q")
				for _, i := range []int{100, 101, 555} {
					c.spoil(batch[i])
				}
				tokens := r.send(batch...)
				r.all()
				for i, token := range tokens {
					o := r.outcome(token)
					switch i {
					case 100, 101, 555:
						if o.Result != c.result || o.Code != c.code || o.Reason == "" {
							t.Errorf("the bad message %d: %+v", i, o)
						}
					default:
						if o.Result != Delivered {
							t.Errorf("the good message %d: %+v", i, o)
						}
					}
				}
				seen := map[string]bool{}
				ids := consumed(t, ch, "q", 597)
				for _, id := range ids {
					seen[id] = true
				}
				expect(t, "different messages in the queue", len(seen), 597)
				if extra := len(ids) - 597; extra > 2*256 {
					t.Errorf("%d duplicates", extra)
				}
				expect(t, "sessions", r.entered(Up), 1)
			})
		})
	}
}

// limitMessageSize makes the broker refuse what the lane's own limit lets through.
func limitMessageSize(t *testing.T, mq *lab.RabbitServer) {
	t.Helper()
	set := func(ctx context.Context, expr string) {
		if _, err := mq.Eval(ctx, expr); err != nil {
			t.Error(err)
		}
	}
	set(t.Context(), "application:set_env(rabbit, max_message_size, 50000), persistent_term:put(max_message_size, 50000).")
	t.Cleanup(func() {
		set(context.Background(), "application:set_env(rabbit, max_message_size, 16777216), persistent_term:put(max_message_size, 16777216).")
	})
}

func TestNothingIsPublishedBeforeTheFenceIsHeldAndTheLeaseProven(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "classic", nil)
		first := start(t, options(v.URL()))
		first.phase(Up)

		var ready, refuse atomic.Int32
		opt := options(v.URL())
		opt.Ready = func(context.Context) error {
			ready.Add(1)
			if refuse.Add(1) == 1 {
				return errors.New("not yet")
			}
			return nil
		}
		second := start(t, opt)
		second.until("it waits for the fence", func() bool {
			n := len(second.states)
			return n > 0 && second.states[n-1].Reason == "another connection holds the fence "+opt.Fence
		})
		second.send(message(2, "q"))
		first.send(message(1, "q"))
		first.all()
		expect(t, "calls of Ready without the fence", ready.Load(), 0)
		first.stop()
		second.all()
		expect(t, "calls of Ready", ready.Load(), 2)
		expect(t, "order", fmt.Sprint(consumed(t, ch, "q", 2)), "[1 2]")
	})
}
