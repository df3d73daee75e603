package relay

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
)

// read reads the binlog once the sweeps are done.
func (l *leader) read(ctx context.Context) error {
	if l.blind != nil {
		l.lost(l.blind)
	}
	select {
	case <-l.fallback.swept:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.preparer.before.Store(&checkpoint.Position{})
	first := true
	l.reader.options.Opened = func(s canal.Session) error {
		if s.Server != l.server.Identity {
			return errOtherServer
		}
		if !first && !l.fallback.alone.Load() {
			return nil
		}
		first = false
		return l.resumeStream(ctx)
	}
	l.reader.lost = l.lost
	return l.reader.run(ctx)
}

// resumeStream is called when the binlog can be read, at first or again, before
// its first row. Rows up to where it ends now may have been sent before: by an
// earlier leader, by a sweep, or by the fallback alone, which is silenced first.
func (l *leader) resumeStream(ctx context.Context) error {
	if l.fallback.alone.Load() {
		done := make(chan struct{})
		select {
		case l.fallback.hush <- done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		set(l.relay.metrics.Polling, false)
		l.log.Info("the binlog can be read again")
	}
	before, err := l.server.CurrentPlace(ctx, l.db)
	if err != nil {
		return err
	}
	l.preparer.before.Store(&before)
	var now string
	asked := time.Now()
	if err := l.db.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&now); err != nil {
		return fmt.Errorf("read the server's clock: %w", err)
	}
	clock, err := parseTime([]byte(now))
	if err != nil {
		return fmt.Errorf("read the server's clock: %w", err)
	}
	l.preparer.skew.Store(int64(clock.Sub(asked)))
	l.fallback.begin()
	return nil
}

// lost lets the fallback serve what it can while the binlog cannot be read.
func (l *leader) lost(err error) {
	set(l.relay.metrics.Polling, true)
	if l.fallback.alone.Swap(true) && l.blind == nil {
		return
	}
	l.blind = nil
	l.fallback.begin()
	l.log.Error("the binlog cannot be read: mark and delete tables are served by polling until it can be, keep tables wait", zap.Error(err))
}
