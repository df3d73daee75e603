package main

import (
	"context"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

func (t *torture) wire(i *injection) *lab.Proxy {
	if r := t.target(i); i.fault.on == onSource {
		return r.source
	} else {
		return r.broker
	}
}

func wire(do func(*lab.Proxy, *injection)) func(context.Context, *torture, *injection) error {
	return func(_ context.Context, t *torture, i *injection) error {
		do(t.wire(i), i)
		t.ledger.watch(i.fault.name, nil)
		return nil
	}
}

func wireFault(of func(*injection) lab.Fault) func(context.Context, *torture, *injection) error {
	return func(ctx context.Context, t *torture, i *injection) error {
		p := t.wire(i)
		p.Set(of(i))
		pause(ctx, 2*i.hold)
		p.Set(lab.Fault{})
		t.ledger.watch(i.fault.name, nil)
		return nil
	}
}

// lateAndDeposed lets what a relay has sent reach the broker when another relay
// leads: only the fence keeps that from being published behind the other's.
func lateAndDeposed(ctx context.Context, t *torture, i *injection) error {
	p := t.wire(i)
	p.Set(lab.Fault{Delay: 2 * time.Second})
	defer p.Set(lab.Fault{})
	pause(ctx, 300*time.Millisecond)
	err := killLock(ctx, t, i)
	pause(ctx, 3*time.Second)
	return err
}

// refuse ends the connections of a wire and takes no new ones for a while.
func refuse(ctx context.Context, t *torture, i *injection) error {
	p := t.wire(i)
	p.Set(lab.Fault{Refuse: true})
	p.Cut()
	pause(ctx, 2*i.hold)
	p.Set(lab.Fault{})
	t.ledger.watch(i.fault.name, nil)
	return nil
}
