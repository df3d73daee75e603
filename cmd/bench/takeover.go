package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
)

// takeover measures how long rows wait when the leader ends, and when a relay starts.
type takeover struct {
	rounds int
}

func newTakeover() (*cobra.Command, measure) {
	m := &takeover{}
	c := &cobra.Command{Use: "takeover", Short: "From the end of a leader to the next relay's first message, and from a start to the first message"}
	c.Flags().IntVar(&m.rounds, "rounds", 50, "of each kind")
	return c, m
}

func (m *takeover) run(ctx context.Context, b *bed) (table, error) {
	s, err := b.lay(ctx, usual)
	defer s.remove()
	if err != nil {
		return table{}, err
	}
	w, err := s.watch()
	if err != nil {
		return table{}, err
	}
	defer w.close()
	var starts, plain, undisturbed spread
	for round := range m.rounds {
		if err := inTurns(round,
			func() error { return s.first(ctx, w, &starts) },
			func() error { return s.firstPlain(ctx, w, &plain) }); err != nil {
			return table{}, err
		}
	}
	progress(b, "takeover: %d starts, p50 %.0f ms", m.rounds, starts.at(0.5))
	p, err := s.twoRelays(ctx)
	if err != nil {
		return table{}, err
	}
	defer p.kill()
	var killed, stopped handOvers
	for round := range m.rounds {
		if err := inTurns(round,
			func() error { return p.handOver(ctx, w, syscall.SIGKILL, &killed, &undisturbed) },
			func() error { return p.handOver(ctx, w, syscall.SIGTERM, &stopped, &undisturbed) }); err != nil {
			return table{}, err
		}
		if (round+1)%5 == 0 || round+1 == m.rounds {
			progress(b, "takeover, round %d of %d: kill -9 p50 %.0f ms, SIGTERM p50 %.0f ms", round+1, m.rounds, killed.first.at(0.5), stopped.first.at(0.5))
		}
	}
	t := table{
		Title: fmt.Sprintf("takeover and start, %d rounds of each", m.rounds),
		Note: "From the signal to the arrival of the first row whose COMMIT was sent after it; a row every 5 ms. The longest wait is from\n" +
			"COMMIT sent to arrival, of the rows around it. other: the same of rows before the signal. Start: from fork to the first message, a row waits already; other: a plain\n" +
			"publisher's connect, channel, confirm mode and first message.",
	}
	for _, l := range []struct {
		what        string
		ours, other spread
	}{{"after kill -9", killed.first, undisturbed}, {"kill -9, longest wait of a row", killed.longest, undisturbed},
		{"after SIGTERM", stopped.first, undisturbed}, {"SIGTERM, longest wait of a row", stopped.longest, undisturbed}, {"start to first message", starts, plain}} {
		for _, q := range []struct {
			name, goal string
			share      float64
		}{{"p50", "", 0.5}, {"p90", "", 0.9}, {"p99", "< 1000 ms", 0.99}, {"slowest", "", 1}} {
			ours, other := l.ours.at(q.share), l.other.at(q.share)
			t.Rows = append(t.Rows, line{What: l.what + " " + q.name, Unit: "ms", Ours: ours, Other: other, Ratio: finite(ours / other), Goal: q.goal})
		}
	}
	return t, nil
}

// first measures a relay's start, when one row waits for it.
func (s *stream) first(ctx context.Context, w *watcher, to *spread) error {
	s.last++
	if err := s.commitWatched(ctx, w, s.last, s.last); err != nil {
		return err
	}
	began := time.Now()
	r, err := s.launch(s.config, s.http)
	if err != nil {
		return err
	}
	defer r.Kill()
	trips, err := w.all(ctx)
	if err != nil {
		return err
	}
	*to = append(*to, trips[s.last].arrived.Sub(began))
	return r.stop()
}

// firstPlain is what the library alone takes for a first message.
func (s *stream) firstPlain(ctx context.Context, w *watcher, to *spread) error {
	s.last++
	began := time.Now()
	w.begin(s.last, s.last, began)
	conn, ch, err := confirming(s.vhost.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := ch.PublishWithContext(ctx, "", queueName, true, false, amqp.Publishing{MessageId: fmt.Sprint(s.last), DeliveryMode: amqp.Persistent, Body: []byte(s.body(s.last))}); err != nil {
		return err
	}
	trips, err := w.all(ctx)
	if err != nil {
		return err
	}
	*to = append(*to, trips[s.last].arrived.Sub(began))
	return nil
}

// twins are a leader and a standby.
type twins struct {
	*stream
	configs, https [2]string
	relays         [2]*running
	leader         int
}

func (s *stream) twoRelays(ctx context.Context) (p *twins, err error) {
	p = &twins{stream: s}
	for n, name := range []string{"b", "c"} {
		if p.configs[n], p.https[n], err = s.configure(name); err != nil {
			return p, err
		}
		if p.relays[n], err = s.launch(p.configs[n], p.https[n]); err != nil {
			return p, err
		}
	}
	return p, p.settle(ctx)
}

// settle waits until one leads and the other stands by, able to take over.
func (p *twins) settle(ctx context.Context) error {
	return await(ctx, "one relay leads and one stands by", 10*time.Millisecond, func() (bool, error) {
		leaders := 0
		for n, r := range p.relays {
			if err := r.alive(); err != nil {
				return false, fmt.Errorf("%w, see %s.log", err, p.configs[n])
			}
			m, err := program.ReadMetrics(ctx, r.http)
			if err != nil || program.Ready(ctx, r.http) != "ok" {
				return false, nil
			}
			if m.Sum("towpath_leading{") == 1 {
				p.leader = n
				leaders++
			}
		}
		return leaders == 1, nil
	})
}

func (p *twins) kill() {
	for _, r := range p.relays {
		if r != nil {
			r.Kill()
		}
	}
}

// handOvers are the times of one kind, by round.
type handOvers struct{ first, longest spread }

// handOver ends the leader under a steady load, measures, and starts it again
// as a standby.
func (p *twins) handOver(ctx context.Context, w *watcher, signal syscall.Signal, to *handOvers, before *spread) error {
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	loaded := make(chan error, 1)
	go func() { loaded <- p.trickle(loading, ctx, w) }()
	if err := await(ctx, "rows arrive", 5*time.Millisecond, func() (bool, error) { return w.arrivals() >= 20, nil }); err != nil {
		return errors.Join(err, <-loaded)
	}
	old := p.relays[p.leader]
	at := time.Now()
	old.Signal(signal)
	err := await(ctx, "another relay has taken over", time.Millisecond, func() (bool, error) { return !w.firstAfter(at).IsZero(), nil })
	stopLoad()
	if err := errors.Join(err, <-loaded); err != nil {
		return err
	}
	to.first = append(to.first, w.firstAfter(at).Sub(at))
	trips, err := w.all(ctx)
	if err != nil {
		return err
	}
	longest := time.Duration(0)
	for _, t := range trips {
		wait := t.arrived.Sub(t.sent)
		longest = max(longest, wait)
		if t.arrived.Before(at) {
			*before = append(*before, wait)
		}
	}
	to.longest = append(to.longest, longest)
	select {
	case <-old.Ended():
	case <-time.After(30 * time.Second):
		return errors.New("the old leader did not end within 30 s")
	}
	if p.relays[p.leader], err = p.launch(p.configs[p.leader], p.https[p.leader]); err != nil {
		return err
	}
	return p.settle(ctx)
}

// trickle commits a row every 5 ms until loading ends; a commit that is begun is ended.
func (p *twins) trickle(loading, ctx context.Context, w *watcher) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-loading.Done():
			return ctx.Err()
		case <-tick.C:
		}
		p.last++
		if err := p.commitWatched(ctx, w, p.last, p.last); err != nil {
			return err
		}
	}
}
