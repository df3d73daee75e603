package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

func killRelay(ctx context.Context, t *torture, i *injection) error {
	r := t.target(i)
	r.kill()
	t.ledger.watch(i.fault.name, nil)
	pause(ctx, i.hold/4)
	return r.start()
}

func freezeRelay(ctx context.Context, t *torture, i *injection) error {
	r := t.target(i)
	r.freeze()
	t.ledger.watch(i.fault.name, nil)
	pause(ctx, 2*i.hold)
	r.thaw()
	return nil
}

func stopRelay(_ context.Context, t *torture, i *injection) error {
	r := t.target(i)
	t.ledger.watch(i.fault.name, nil)
	r.stop()
	return r.start()
}

// dieAt lets the leader end at a point of its own work, as kill -9 would.
func dieAt(point string) func(context.Context, *torture, *injection) error {
	return func(ctx context.Context, t *torture, i *injection) error {
		r := t.target(i)
		if !r.leading.Load() {
			return errors.New("no relay leads")
		}
		if err := os.WriteFile(r.killFile(), []byte(point), 0o600); err != nil {
			return err
		}
		p := r.expectEnd()
		p.Signal(syscall.SIGUSR1)
		var err error
		select {
		case <-p.Ended():
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(8 * time.Second): // it may lead no more, or have nothing to do
			err = errors.New("it did not come to that point within 8 s")
		}
		p.Kill()
		t.ledger.watch(i.fault.name, nil)
		pause(ctx, i.hold/4)
		return errors.Join(r.start(), err)
	}
}

// brokenVariable names the promise that a relay built to be broken breaks.
const brokenVariable = "TOWPATH_BROKEN"
