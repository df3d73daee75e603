package relay

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
)

// About is what a process tells the others of itself.
type About struct {
	Version string // of the program
	HTTP    string // host:port of its HTTP side; empty for none
}

// memberBeat is how often a process shows that it runs. Next to the leader's
// renewals, three in each lease.ttl, it is next to nothing in the binlog.
const memberBeat = 30 * time.Second

// MemberLost is after how long without a sign a member is taken for dead.
const MemberLost = 3 * memberBeat

// present keeps this process in the list of members until ctx ends. It stands
// in the way of nothing: without the list the stream runs as well.
func (r *Relay) present(ctx context.Context, store *checkpoint.Store) {
	m := checkpoint.Member{Holder: r.holder, Version: r.about.Version, Config: r.config.Hash(), HTTP: r.about.HTTP}
	failing := false
	for {
		attempt, cancel := context.WithTimeout(ctx, memberBeat/2)
		err := store.Appear(attempt, r.config.Name, m)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			r.log.Warn("others cannot be told that this process runs", zap.Error(err))
		}
		failing = err != nil
		if !sleep(ctx, memberBeat) {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := store.Disappear(last, r.config.Name, r.holder); err != nil {
		r.log.Info("others cannot be told that this process stops", zap.Error(err))
	}
}
