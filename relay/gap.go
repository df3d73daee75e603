package relay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// gap deals with a position that the binlog cannot continue. mark and delete
// tables are swept; tables that halt are a person's decision.
func (l *leader) gap(ctx context.Context, gap *canal.GapError) error {
	l.relay.metrics.Gaps.WithLabelValues(string(gap.Kind)).Inc()
	var halting []string
	for _, t := range l.tables.list() {
		if t.halts() {
			halting = append(halting, t.name.String())
		}
	}
	if len(halting) > 0 {
		return &haltError{reason: "gap", gap: gap, err: fmt.Errorf(
			"%w. Rows of %s that were committed since may not have been sent, and nothing shows which. Continue with towpath resume --resend-since TIME (sends rows since then again) or --accept-loss",
			gap, strings.Join(halting, ", "))}
	}
	return l.closeGap(ctx, gap, Resumption{})
}

// closeGap begins the stream again where the binlog ends now, and plans a sweep
// of what the tables themselves can show.
func (l *leader) closeGap(ctx context.Context, gap *canal.GapError, r Resumption) error {
	s := &start{leader: l, cause: "gap", moves: true, states: map[canal.TableName]tableState{}}
	var err error
	if s.place, err = canal.CurrentPosition(ctx, l.db); err != nil {
		return err
	}
	var swept []string
	for _, t := range l.tables.list() {
		st := l.states[t.name]
		st.Version, st.From = tableStateVersion, &s.place
		if sweep := r.sweepOf(t, st); sweep != nil {
			st.Sweep = sweep
			swept = append(swept, t.name.String())
		}
		s.states[t.name] = st
	}
	if err := s.prepared(ctx); err != nil {
		return err
	}
	if err := s.dropDecided(ctx); err != nil {
		return err
	}
	detail, err := auditDetail(map[string]any{"kind": gap.Kind, "from": gap.From.String(), "to": s.place.String(), "detail": gap.Detail, "swept": swept})
	if err != nil {
		return err
	}
	s.audit = append(s.audit, checkpoint.Audit{Action: "gap", Operator: r.operator, Reason: r.reason, Detail: detail})
	if err := s.commit(ctx); err != nil {
		return err
	}
	l.log.Warn("the binlog has a gap", zap.String("kind", string(gap.Kind)), zap.Stringer("from", gap.From), zap.Stringer("to", s.place),
		zap.String("detail", gap.Detail), zap.Strings("swept", swept))
	return l.again(ctx, "a gap", nil)
}

// again ends this try at leading; the next goes on from what is saved now.
func (l *leader) again(ctx context.Context, after string, pass *checkpoint.Mark) error {
	c, err := l.store.Checkpoint(ctx, l.term.Fence.Stream)
	if err != nil {
		return err
	}
	return &beginAgain{after: after, pass: pass, checkpoint: c}
}

// dropDecided forgets stored XA transactions that the gap has hidden the verdict
// of: committed rows of mark and delete tables are found by the sweep.
func (s *start) dropDecided(ctx context.Context) error {
	l := s.leader
	if s.until.IsZero() {
		return nil // they cannot be listed
	}
	held, err := l.store.Prepared(ctx, l.term.Fence.Stream)
	if err != nil {
		return err
	}
	prepared := map[string]bool{}
	for _, xid := range s.xids {
		prepared[string(xid)] = true
	}
	for _, h := range held {
		if prepared[string(h.XID)] {
			s.xids = deleteName(s.xids, h.XID) // its rows are known
		} else if string(h.XID) != string(beginName) {
			s.decided = append(s.decided, h.XID)
		}
	}
	return nil
}

func deleteName(names [][]byte, name []byte) [][]byte {
	var rest [][]byte
	for _, n := range names {
		if string(n) != string(name) {
			rest = append(rest, n)
		}
	}
	return rest
}

// RequestResume is the kind of request that ends a halt. Its args are a
// [Resumption].
const RequestResume = "resume"

// Resumption is what an operator decided after a halt. The zero value goes on
// where the stream stands, as after a mended configuration.
type Resumption struct {
	SkipEvent   bool      `json:"skip_event,omitempty"`  // pass the one place that cannot be read
	AcceptLoss  bool      `json:"accept_loss,omitempty"` // rows of keep tables may be missing
	ResendSince time.Time `json:"resend_since,omitzero"` // send rows of keep tables again that have at least this publish.timestamp
	operator    string
	reason      string
}

// sweepOf is the sweep that a table needs, nil for none.
func (r Resumption) sweepOf(t *table, st tableState) *sweepState {
	switch {
	case t.writesBack():
		return &sweepState{Cause: "gap", Cursor: st.Floor}
	case !r.ResendSince.IsZero():
		return &sweepState{Cause: "resend", Since: r.ResendSince.UTC().Format("2006-01-02 15:04:05.000000")}
	}
	return nil
}

// check says what an operator's decision lacks for what the stream halted at.
func (r Resumption) check(l *leader, halt *haltError) error {
	if !r.ResendSince.IsZero() {
		for _, t := range l.tables.list() {
			if t.config.AfterPublish == configs.Keep && t.config.Publish.Timestamp == "" {
				return fmt.Errorf("--resend-since needs publish.timestamp of table %s, or nothing tells how old a row is: configure it, or use --accept-loss", t.name)
			}
		}
	}
	decided := r.AcceptLoss || !r.ResendSince.IsZero()
	switch {
	case (halt.gap != nil || halt.reason == "statement") && !decided:
		return fmt.Errorf("rows may be missing: give --accept-loss or --resend-since TIME")
	case halt.gap == nil && halt.mark != nil && halt.reason != "statement" && !r.SkipEvent:
		return fmt.Errorf("the stream cannot read on at %s:%d: give --skip-event", halt.mark.File, halt.mark.Offset)
	}
	return nil
}
