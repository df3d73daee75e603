package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
)

// halted keeps the lease, with no lane open, until an operator resumes.
func (l *leader) halted(ctx context.Context, halt *haltError) error {
	gauge := l.relay.metrics.Halted.WithLabelValues(halt.reason)
	gauge.Set(1)
	defer gauge.Set(0)
	l.relay.health.halt(halt)
	defer l.relay.health.halt(nil)
	l.log.Error("halted: the stream stands still until a person acts", zap.String("reason", halt.reason), zap.Error(halt.err))
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
		}
		l.relay.health.beat()
		err := l.hearResume(ctx, halt)
		var again *beginAgain
		switch {
		case errors.As(err, &again), errors.Is(err, checkpoint.ErrFenced):
			return err
		case err != nil && ctx.Err() == nil:
			l.log.Warn("requests cannot be read, trying on", zap.Error(err))
		}
	}
}

// hearResume takes the requests that wait. A halted stream carries out no other.
func (l *leader) hearResume(ctx context.Context, halt *haltError) error {
	if l.store == nil {
		return nil
	}
	var requests []checkpoint.Request
	err := l.store.Fenced(ctx, l.term.Fence, func(ctx context.Context, tx *checkpoint.Tx) (err error) {
		requests, err = tx.TakeRequests(ctx, 16)
		return err
	})
	if err != nil {
		return err
	}
	for _, request := range requests {
		outcome := l.carryOut(ctx, request, halt)
		var again *beginAgain
		state, result := checkpoint.RequestFailed, Answer{}
		if errors.As(outcome, &again) {
			state = checkpoint.RequestDone
		} else {
			result.Error = outcome.Error()
		}
		text, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("finish request %d: %w", request.ID, err)
		}
		err = l.store.Fenced(ctx, l.term.Fence, func(ctx context.Context, tx *checkpoint.Tx) error {
			return tx.FinishRequest(ctx, request.ID, state, text)
		})
		if again != nil {
			return outcome
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carryOut does what a request asks of a halted stream. A resume that is carried
// out returns a beginAgain.
func (l *leader) carryOut(ctx context.Context, request checkpoint.Request, halt *haltError) error {
	if request.Kind != RequestResume {
		return fmt.Errorf("the stream is halted: %w", halt)
	}
	var r Resumption
	if err := json.Unmarshal(request.Args, &r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	r.operator, r.reason = request.Operator, request.Reason
	if err := r.check(l, halt); err != nil {
		return err
	}
	detail, err := auditDetail(map[string]any{"halted": halt.Error(), "skip_event": r.SkipEvent, "accept_loss": r.AcceptLoss, "resend_since": r.ResendSince})
	if err != nil {
		return err
	}
	err = l.store.Fenced(ctx, l.term.Fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		if err := tx.Audit(ctx, checkpoint.Audit{Action: "resume", Operator: r.operator, Reason: r.reason, Detail: detail}); err != nil {
			return err
		}
		if halt.gap != nil && halt.gap.Kind != canal.GapXA {
			return nil // closing the gap plans the sweeps
		}
		for _, t := range l.tables.list() {
			if t.writesBack() || r.ResendSince.IsZero() {
				continue
			}
			st := l.states[t.name]
			st.Version, st.Sweep = tableStateVersion, r.sweepOf(t, st)
			if err := saveTableState(ctx, tx, t.name, st); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.log.Warn("resuming after a halt", zap.String("halted", halt.reason), zap.String("operator", r.operator), zap.String("reason", r.reason))
	if halt.gap != nil && halt.gap.Kind != canal.GapXA {
		return l.closeGap(ctx, halt.gap, r)
	}
	return l.again(ctx, "resume", halt.mark)
}
