package relay

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
)

// reader keeps the source open for one leadership, and fills the intake. When
// the connection fails it opens another at the end of the last group that was
// handed over whole: everything before it is in the relay's hands already, so
// nothing is lost or doubled.
type reader struct {
	options canal.Options
	server  string // identity of the leadership's server
	start   canal.Start
	intake  *queue[canal.Batch]
	metrics *Metrics
	log     *zap.Logger
	// lost is told when the binlog cannot be read for a reason that may last.
	lost func(error)
}

// errOtherServer ends the leadership: positions, sweeps and the fallback's
// rounds are of the server that it began on.
var errOtherServer = errors.New("another server answers at the source's address: beginning again there")

// run reads until ctx ends, or until something that no retry mends.
func (r *reader) run(ctx context.Context) error {
	r.start.Position, r.start.Shapes = r.start.Position.Clone(), r.start.Shapes.Clone()
	source := canal.NewSource(r.options)
	failures := 0
	for {
		began := time.Now()
		err := source.Stream(ctx, r.start, func(b canal.Batch) error {
			if failures > 0 {
				r.log.Info("reading the binlog again", zap.Int("attempts", failures+1))
				failures = 0
			}
			r.metrics.Streaming.Set(1)
			return r.take(ctx, b)
		})
		r.metrics.Streaming.Set(0)
		var gap *canal.GapError
		var halt *canal.HaltError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &gap):
			return err
		case errors.As(err, &halt):
			return &haltError{reason: string(halt.Reason), err: err, mark: &halt.Mark}
		case errors.Is(err, errOtherServer):
			return err
		case errors.Is(err, canal.ErrBinlogOff), errors.Is(err, canal.ErrPrivilege), errors.Is(err, canal.ErrEngine):
			r.lost(err)
		}
		if failures++; failures == 1 || time.Since(began) > time.Minute {
			r.log.Warn("the binlog cannot be read, trying on", zap.Error(err))
		}
		r.metrics.Reconnects.WithLabelValues("source").Inc()
		if !sleep(ctx, backoff(failures, 100*time.Millisecond, 5*time.Second)) {
			return context.Cause(ctx)
		}
	}
}

// take hands a batch on and notes how far the source has been read.
func (r *reader) take(ctx context.Context, b canal.Batch) error {
	if err := r.intake.put(ctx, b, batchWeight(&b)); err != nil {
		return err
	}
	r.start.Shapes.Apply(b)
	if b.End != nil {
		r.start.Position.Advance(*b.End)
		r.start.Position.Server = r.server
		if skip := r.start.Skip; skip != nil && r.start.Position.Reached(skip.File, skip.Offset) {
			r.start.Skip = nil // behind it; a connection that fails before has to pass it, too
		}
	}
	return nil
}

// batchWeight is about what a batch takes in memory.
func batchWeight(b *canal.Batch) int64 {
	weight := int64(256)
	for i := range b.Rows {
		weight += 64
		for _, v := range b.Rows[i].Values {
			weight += int64(len(v)) + 24
		}
	}
	return weight
}
