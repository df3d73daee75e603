package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
)

// pulseBench is a leadership whose database answers as the test says.
type pulseBench struct {
	pulse
	began time.Time
	done  chan error
	ended chan error
}

const testTTL = 9 * time.Second

// startPulse runs a pulse in the test's bubble; the lease was taken just now.
func startPulse(t *testing.T, renew, ping func(ctx context.Context) error) *pulseBench {
	ctx, cancel := context.WithCancelCause(context.Background())
	b := &pulseBench{began: time.Now(), done: make(chan error), ended: make(chan error, 1)}
	b.pulse = pulse{ttl: testTTL, renew: renew, ping: ping, log: zap.NewNop(), renewed: b.began,
		term: &Term{ctx: ctx, cancel: cancel, asks: make(chan ask)}}
	go func() { b.ended <- b.run(context.Background(), b.done) }()
	t.Cleanup(func() {
		b.done <- nil
		<-b.ended
		cancel(nil)
	})
	return b
}

// lasted is how long the leadership lasted; the test's clock goes on until its end.
func (b *pulseBench) lasted(t *testing.T) time.Duration {
	t.Helper()
	<-b.term.ctx.Done()
	if cause := context.Cause(b.term.ctx); !errors.Is(cause, ErrLeaseLost) {
		t.Errorf("the cause was %v", cause)
	}
	took := time.Since(b.began)
	synctest.Wait()
	return took
}

func answered(context.Context) error { return nil }

func hanging(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestTrustEndsATTLAfterTheStartOfTheLastRenewal(t *testing.T) {
	for name, renew := range map[string]func(context.Context) error{
		"the database hangs":  hanging,
		"the database is off": func(context.Context) error { return errors.New("connection refused") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := startPulse(t, renew, answered).lasted(t); got != testTTL {
					t.Errorf("trust lasted %s, want %s", got, testTTL)
				}
			})
		})
	}
}

// The database renews at once, but its answer takes almost as long as an
// attempt may: what counts is when the attempt began.
func TestSlowRenewalDoesNotExtendTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Time
		b := startPulse(t, func(ctx context.Context) error {
			began = append(began, time.Now())
			if len(began) > 1 {
				return hanging(ctx)
			}
			time.Sleep(testTTL/3 - time.Millisecond)
			return nil
		}, answered)
		if got, want := b.lasted(t), began[0].Sub(b.began)+testTTL; got != want {
			t.Errorf("trust lasted %s, want %s: a ttl from the start of the only renewal", got, want)
		}
	})
}

func TestARenewalIsDueEveryThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewals, pings := 0, 0
		b := startPulse(t, func(context.Context) error { renewals++; return nil }, func(context.Context) error { pings++; return nil })
		time.Sleep(10*testTTL + time.Second)
		synctest.Wait()
		if b.term.ctx.Err() != nil {
			t.Fatalf("the leadership ended: %v", context.Cause(b.term.ctx))
		}
		if renewals < 24 || renewals > 31 {
			t.Errorf("%d renewals in 10 ttl: each is a commit on the server", renewals)
		}
		if pings < 60 {
			t.Errorf("%d pings in 10 ttl", pings)
		}
	})
}

func TestADeadSessionIsFollowedByARenewalAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPulse(t, func(context.Context) error { return checkpoint.ErrFenced }, func(context.Context) error { return errors.New("broken pipe") })
		if got := b.lasted(t); got > time.Second {
			t.Errorf("it took %s to find out that another leads", got)
		}
	})
}

func TestProveIsARenewalThatStartsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := make(chan time.Time, 16)
		answers := make(chan error, 1)
		b := startPulse(t, func(context.Context) error { began <- time.Now(); time.Sleep(100 * time.Millisecond); return <-answers }, answered)
		time.Sleep(100 * time.Millisecond)
		called := time.Now()
		lost := errors.New("connection lost")
		for _, c := range []struct{ answer, want error }{{nil, nil}, {lost, lost}, {checkpoint.ErrFenced, ErrLeaseLost}} {
			answers <- c.answer
			if err := b.term.Prove(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("the database says %v: got %v", c.answer, err)
			}
			if at := <-began; at.Before(called) {
				t.Errorf("called at %s, renewed at %s", called, at)
			}
		}
		if err := b.term.Prove(t.Context()); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// The process was stopped for longer than its ttl in the middle of a renewal
// that the database had done: its answer comes after the end of trust.
func TestARenewalAnsweredAfterTrustEndedDoesNotReviveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPulse(t, func(context.Context) error { time.Sleep(testTTL); return nil }, answered)
		if err := b.term.Prove(t.Context()); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
		if b.lasted(t) != testTTL {
			t.Error("trust outlived its ttl")
		}
	})
}
