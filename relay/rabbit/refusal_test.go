package rabbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestNoPoisonCostsAConnectionAndTheExtremesPass(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		if err := ch.ExchangeDeclare("all", "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.QueueBind("q", "", "all", false, nil); err != nil {
			t.Fatal(err)
		}
		opt := options(v.URL())
		opt.MaxMessageSize = testMaxBody
		r := start(t, opt)
		wants := map[uint64]Result{}
		names := map[uint64]string{}
		n := 0
		send := func(name string, change func(*Message), want Result) {
			m := message(n, "")
			m.Exchange = "all"
			n++
			change(m)
			for _, token := range r.send(m) {
				wants[token], names[token] = want, name
			}
		}
		for name, spoil := range poison() {
			send(name, spoil, Poison)
			send("ordinary", func(*Message) {}, Delivered)
		}
		for name, stretch := range extreme() {
			send(name, stretch, Delivered)
		}
		r.all()
		for token, want := range wants {
			if o := r.outcome(token); o.Result != want {
				t.Errorf("%s: %+v", names[token], o)
			}
		}
		expect(t, "sessions", r.entered(Connecting), 1)
	})
}

func TestAQueueThatRejectsNacksExactlyWhatItDidNotTake(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "full", "classic", amqp.Table{"x-max-length": int32(10), "x-overflow": "reject-publish"})
		declare(t, ch, "free", "quorum", nil)
		r := start(t, options(v.URL()))
		for i := range 200 {
			r.send(message(i, "full"), message(i, "free"))
		}
		r.all()
		accepted := map[string]bool{}
		for token, m := range r.sent {
			switch o := r.outcome(token); {
			case m.RoutingKey == "free" && o.Result != Delivered:
				t.Errorf("message %s to the free queue: %+v", m.ID, o)
			case m.RoutingKey == "full" && o.Result == Delivered:
				accepted[m.ID] = true
			case m.RoutingKey == "full" && o.Result != Nacked:
				t.Errorf("message %s to the full queue: %+v", m.ID, o)
			}
		}
		ids := consumed(t, ch, "full", 10)
		expect(t, "messages in the full queue", len(ids), 10)
		expect(t, "delivered to it", len(accepted), 10)
		for _, id := range ids {
			if !accepted[id] {
				t.Errorf("message %s is in the queue and was not reported", id)
			}
		}
	})
}

func TestAQuorumQueueWithoutALeaderHoldsUpNobodyAndNothingTwice(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		declare(t, ch, "other", "quorum", nil)
		server := func(call string) {
			t.Helper()
			_, err := mq.Eval(t.Context(), fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"q">>)),
				ok = ra:%s(quorum_queues, amqqueue:get_pid(Q)).`, v.Name, call))
			if err != nil {
				t.Fatal(err)
			}
		}
		patient := options(v.URL())
		patient.ConfirmTimeout = 10 * time.Minute
		r := start(t, patient)
		r.send(messages(0, 10, "q")...)
		r.all()
		server("stop_server")
		r.send(messages(10, 20, "q")...)
		r.send(messages(0, 500, "other")...)
		r.until("the other queue's messages settle", func() bool { return len(r.settled) == 510 })

		// A fresh channel learns at once that there is no leader: one nack, of the probe.
		opt := options(v.URL())
		opt.Fence = "towpath.test.lane.1"
		fresh := start(t, opt)
		nacked := fresh.send(message(20, "q"))[0]
		fresh.all()
		expect(t, "on a fresh channel", fresh.outcome(nacked).Result, Nacked)

		others := 500
		for stopped := time.Now(); long && time.Since(stopped) < 3*time.Minute; others += 500 {
			r.send(messages(others, others+500, "other")...)
			r.until("the other queue's messages settle", func() bool { return len(r.settled) == 10+others+500 })
			<-time.After(time.Second) // more only fills the broker
		}
		server("restart_server")
		r.all()
		expect(t, "delivered", r.counts()[Delivered], 20+others)
		expect(t, "duplicates", inOrder(t, consumed(t, ch, "q", 20), 0, 20), 0)
		expect(t, "sessions", r.entered(Up), 1)
	})
}

func TestAQueueThatConfirmsNothingHoldsUpNobodyAndIsLeftByItsTimeout(t *testing.T) {
	t.Parallel()
	mq := shared(t, lab.Rabbit43) // one version: it waits long
	v := labtest.Vhost(t, mq)
	ch := admin(t, v)
	// Classic: the first message of a channel to a quorum queue that hangs stops
	// the channel inside the broker.
	declare(t, ch, "stuck", "classic", nil)
	declare(t, ch, "free", "quorum", nil)
	if err := mq.SuspendQueue(t.Context(), v, "stuck"); err != nil {
		t.Fatal(err)
	}
	opt := options(v.URL())
	opt.ConfirmTimeout = 12 * time.Second // beyond what the free ones need on a slow machine
	r := start(t, opt)
	stuck := r.send(messages(0, 20, "stuck")...)
	for n := range 2 { // two refusals beside it: the first is found out, the second foreseen
		bad := message(n, "k")
		bad.Exchange = "missing"
		token := r.send(bad)[0]
		r.send(messages(n*200, n*200+200, "free")...)
		r.until("the others settle", func() bool { return len(r.settled) == len(r.sent)-20 })
		expect(t, "the refused message", r.outcome(token).Result, Refused)
	}
	expect(t, "delivered", r.counts()[Delivered], 400)
	expect(t, "sessions", r.entered(Up), 1)
	r.all()
	for _, token := range stuck {
		expect(t, "a stuck message", r.outcome(token).Result, Unknown)
	}
	if err := mq.ResumeQueue(t.Context(), v, "stuck"); err != nil {
		t.Fatal(err)
	}
	r.send(messages(20, 30, "stuck")...)
	r.all()
	expect(t, "delivered", r.counts()[Delivered], 410)
	expect(t, "sessions", r.entered(Up), 2)
}

func TestBindingsAndExchangesMayComeAndGo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		r := start(t, options(v.URL()))
		n := 0
		round := func(what string, want Result) {
			t.Helper()
			var tokens []uint64
			for range 20 {
				m := message(n, "k")
				m.Exchange = "x"
				n++
				tokens = append(tokens, r.send(m)...)
			}
			r.all()
			for _, token := range tokens {
				if o := r.outcome(token); o.Result != want {
					t.Fatalf("%s: %+v", what, o)
				}
			}
		}
		round("without the exchange", Refused)
		must(ch.ExchangeDeclare("x", "topic", true, false, false, false, nil))
		round("without a binding", Unroutable)
		must(ch.QueueBind("q", "k", "x", false, nil))
		round("bound", Delivered)
		must(ch.QueueUnbind("q", "k", "x", nil))
		round("unbound again", Unroutable)
		must(ch.ExchangeDelete("x", false, false))
		round("the exchange deleted", Refused)
		must(ch.ExchangeDeclare("x", "topic", true, false, false, false, nil))
		must(ch.QueueBind("q", "k", "x", false, nil))
		round("restored", Delivered)
		expect(t, "messages in the queue", len(consumed(t, ch, "q", 40)), 40)
		expect(t, "sessions", r.entered(Up), 1)
	})
}

func TestAFenceSurvivesAnExpiresPolicyAndItsLossEndsTheSession(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		eval := func(format string, args ...any) {
			t.Helper()
			if _, err := mq.Eval(t.Context(), fmt.Sprintf(format, args...)); err != nil {
				t.Fatal(err)
			}
		}
		eval(`ok = rabbit_policy:set(<<"%s">>, <<"expire">>, <<"^towpath\\.">>, [{<<"expires">>, 300}], 0, <<"queues">>, <<"lab">>).`, v.Name)
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		r := start(t, options(v.URL()))
		r.phase(Up)
		for range 100 { // what strays into the fence harms nothing
			if err := ch.Publish("", "towpath.test.lane.0", false, false, amqp.Publishing{Body: []byte("stray")}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 6 { // well beyond the policy's 300 ms
			r.send(message(i, "q"))
			r.all()
			if err := pause(t.Context(), 200*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, "sessions", r.entered(Up), 1)
		eval(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"towpath.test.lane.0">>)),
			rabbit_amqqueue:delete(Q, false, false, <<"lab">>).`, v.Name)
		r.until("the session ends", func() bool {
			for _, s := range r.states {
				if s.Phase == Down && s.Reason == errFenceLost.Error() {
					return true
				}
			}
			return false
		})
		r.send(message(6, "q"))
		r.all()
		expect(t, "sessions", r.entered(Up), 2)
	})
}

func TestNothingOfADeadConnectionComesAfterTheFence(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		if n := ghosts(t, mq, v, "fenced", "towpath.f", "towpath.f"); n != 0 {
			t.Errorf("%d messages of the dead connection came after the new one's first", n)
		}
		// Without the fence they do: the check above can fail.
		for round := 0; ghosts(t, mq, v, fmt.Sprintf("open%d", round), "towpath.a", "towpath.b") == 0; round++ {
			if round == 10 {
				t.Fatal("no ghost without a fence either: this test shows nothing")
			}
		}
	})
}

// ghosts lets one lane's connection die while the broker has 100 messages of it
// that it did not read yet, publishes message 0 on another lane, and returns how
// many of the 100 came after it.
func ghosts(t *testing.T, mq *lab.RabbitServer, v lab.Vhost, queue, fence1, fence2 string) int {
	ch := admin(t, v)
	declare(t, ch, queue, "classic", nil)
	eval := func(format string, args ...any) string {
		t.Helper()
		out, err := mq.Eval(t.Context(), fmt.Sprintf(format, args...))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	opt := options(v.URL())
	opt.Fence = fence1
	first := start(t, opt)
	first.send(message(-1, queue))
	first.all()
	reader := eval(`[C] = [C || [{pid, C}, {vhost, V}, {client_properties, P}] <- rabbit_networking:connection_info_all([pid, vhost, client_properties]),
		V =:= <<"%s">>, lists:keymember(<<"connection_name">>, 1, P)], sys:suspend(C), pid_to_list(C).`, v.Name)
	first.send(messages(1, 101, queue)...)
	eval(`timer:sleep(100).`) // they lie in the broker's socket
	first.stop()

	opt.Fence = fence2
	second := start(t, opt)
	second.send(message(0, queue))
	if fence1 == fence2 {
		second.until("it waits for the fence", func() bool { return len(second.states) > 1 })
	} else {
		second.all()
	}
	eval(`catch sys:resume(list_to_pid(%s)).`, reader)
	second.all()
	second.stop()
	eval(`timer:sleep(100).`) // ghosts have come by now
	ids := consumed(t, ch, queue, 2)
	at := slices.Index(ids, "0")
	if at < 0 {
		t.Fatalf("the second lane's message is not there: %v", ids)
	}
	return len(ids) - 1 - at
}

func TestTakingOldFencesWaitsForTheirHolders(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *lab.RabbitServer, v lab.Vhost) {
		holder := start(t, options(v.URL()))
		holder.phase(Up)
		names := []string{"towpath.test.lane.0", "towpath.test.lane.1"}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := options(v.URL()).TakeFences(ctx, names); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the lane lives: %v", err)
		}
		holder.stop()
		if err := options(v.URL()).TakeFences(t.Context(), names); err != nil {
			t.Error(err)
		}
		again := start(t, options(v.URL())) // they were let go
		again.phase(Up)
	})
}
