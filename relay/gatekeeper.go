package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/relay/rabbit"
)

// gatekeeper lets the lanes of one leadership publish (promise P4). Before the
// first publish on any lane all fences of the old leader and of this one must
// have been held, and the lease must be proven by a renewal that started after
// the last of them: then every connection of the old leader was dead while
// this leadership lasted. A lane that opens again later holds its own fence,
// and proves the lease anew.
type gatekeeper struct {
	term      *Term
	server    string
	schema    string
	broker    rabbit.Broker
	heartbeat time.Duration
	ttl       time.Duration
	log       *zap.Logger
	opened    func()

	mu     sync.Mutex
	fenced []bool
	peer   rabbit.Peer
	opener chan struct{} // holds a token: one lane opens the gate
	open   chan struct{} // closed when it is open
}

func newGatekeeper(term *Term, server, schema string, lanes int) *gatekeeper {
	g := &gatekeeper{term: term, server: server, schema: schema, fenced: make([]bool, lanes),
		opener: make(chan struct{}, 1), open: make(chan struct{})}
	g.opener <- struct{}{}
	return g
}

// sawPeer notes what a lane's broker says of itself.
func (g *gatekeeper) sawPeer(p rabbit.Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peer = p
}

// ready is called by a lane that holds its fence, and returns when it may
// publish. ctx ends with the lane's session.
func (g *gatekeeper) ready(ctx context.Context, lane int) error {
	select {
	case <-g.open:
		return g.term.Prove(ctx)
	default:
	}
	if g.mark(lane, true) {
		select {
		case <-g.opener:
			err := g.unlock(ctx)
			if err != nil {
				g.opener <- struct{}{}
				g.mark(lane, false)
			}
			return err
		case <-g.open:
			return g.term.Prove(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-g.open:
		return g.term.Prove(ctx)
	case <-ctx.Done():
		g.mark(lane, false)
		return context.Cause(ctx)
	}
}

// mark notes a fence as held or not, and says whether all are held.
func (g *gatekeeper) mark(lane int, held bool) (all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced[lane] = held
	for _, f := range g.fenced {
		if !f {
			return false
		}
	}
	return true
}

// unlock opens the gate: all own fences are held.
func (g *gatekeeper) unlock(ctx context.Context) error {
	g.mu.Lock()
	here := checkpoint.Broker{Cluster: g.peer.Cluster, VHost: g.peer.Vhost, Lanes: len(g.fenced)}
	g.mu.Unlock()
	if err := g.outlast(ctx, here); err != nil {
		return err
	}
	if err := g.term.Record(ctx, here); err != nil {
		return fmt.Errorf("record the broker in the lease: %w", err)
	}
	if err := g.term.Prove(ctx); err != nil {
		return fmt.Errorf("prove the lease before the first publish: %w", err)
	}
	close(g.open)
	g.opened()
	return nil
}

// outlast makes sure that the old leader's connections are dead: in the same
// place by taking the fences that it had beyond ours; elsewhere by waiting for
// as long as a leader without a lease can go on publishing.
func (g *gatekeeper) outlast(ctx context.Context, here checkpoint.Broker) error {
	old := g.term.Old.Broker
	if old.Lanes == 0 {
		return nil
	}
	if old.Cluster != here.Cluster || old.VHost != here.VHost {
		wait := g.ttl + 3*g.heartbeat
		g.log.Warn("the last leader published elsewhere: waiting until its connections must have ended",
			zap.String("cluster", old.Cluster), zap.String("vhost", old.VHost), zap.Duration("for", wait))
		if !sleep(ctx, wait) {
			return context.Cause(ctx)
		}
		return nil
	}
	var names []string
	for lane := here.Lanes; lane < old.Lanes; lane++ {
		names = append(names, fenceName(g.server, g.schema, g.term.Fence.Stream, lane))
	}
	if len(names) == 0 {
		return nil
	}
	return g.broker.TakeFences(ctx, names)
}
