package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// A start begins tables, or the whole stream, at the place where the binlog
// ends now (P), in this order: read P, commit a write of its own and wait for
// it, sweep, then stream from P. The write is the one that saves P and what is
// to be swept. It is a barrier: the binlog is written before the engine
// commits, so a row before P may not be visible yet when P is read; once a later
// commit has returned it is. Without that the sweep would miss rows that the
// stream does not bring (P2).
type start struct {
	leader  *leader
	cause   string
	place   checkpoint.Position // P
	states  map[canal.TableName]tableState
	audit   []checkpoint.Audit
	moves   bool                // the stream itself begins at P, not only tables
	xids    [][]byte            // prepared, and nobody can tell with which rows
	decided [][]byte            // stored, and decided where nobody saw it
	until   checkpoint.Position // end of the binlog when they were listed
}

// begin makes sure that there is a position and that all tables that match the
// configuration are covered by it, and returns where the stream goes on.
func (l *leader) begin(ctx context.Context) error {
	names, err := matchedTables(ctx, l.relay.config, l.db)
	if err != nil {
		return err
	}
	for _, n := range names {
		l.tables.find(n)
	}
	covered := l.covered()
	s := &start{leader: l, cause: "start", moves: l.start.Position.IsZero(), states: map[canal.TableName]tableState{}}
	var late []canal.TableName
	for _, n := range names {
		t := l.tables.find(n)
		switch {
		case covered[n]:
		case coveredPattern(covered, t.config, n):
			late = append(late, n) // made after the position: the stream brings its first row
		default:
			s.states[n] = tableState{Version: tableStateVersion}
		}
	}
	if !s.moves && len(s.states) == 0 && len(late) == 0 {
		return nil
	}
	if l.blind != nil {
		return fmt.Errorf("a stream or a table cannot begin while the binlog cannot be read: %w", l.blind)
	}
	if s.place, err = canal.CurrentPosition(ctx, l.db); err != nil {
		return err
	}
	for n := range s.states {
		if err := s.table(ctx, l.tables.find(n)); err != nil {
			return err
		}
	}
	if s.moves {
		if err := s.prepared(ctx); err != nil {
			return err
		}
	}
	for _, n := range late {
		s.states[n] = tableState{Version: tableStateVersion}
	}
	return s.commit(ctx)
}

// covered is what the checkpoint's position covers: tables, and the patterns
// that matched tables when it was saved.
func (l *leader) covered() map[canal.TableName]bool {
	covered := map[canal.TableName]bool{}
	for _, c := range l.term.Checkpoint.Tables {
		covered[canal.TableName{Schema: c.Schema, Name: c.Name}] = true
	}
	return covered
}

// coveredPattern says whether the table is one that appeared after the position
// was saved, and not one that was added to the configuration: its pattern is known.
func coveredPattern(covered map[canal.TableName]bool, c *configs.Table, n canal.TableName) bool {
	return slices.ContainsFunc(c.Tables, func(p configs.Pattern) bool {
		return !p.Literal() && p.Matches(n.Schema, n.Name) && covered[canal.TableName{Schema: p.Schema, Name: p.Table}]
	})
}

// table plans how a table begins.
func (s *start) table(ctx context.Context, t *table) error {
	st := tableState{Version: tableStateVersion, From: &s.place}
	switch t.config.Start {
	case configs.StartTable, configs.StartAll:
		st.Sweep = &sweepState{Cause: s.cause}
	case configs.StartNow:
		if !t.writesBack() {
			break
		}
		floor, grows, err := newCurrent(s.leader.db, s.leader.server, s.leader.tables).floor(ctx, t)
		if err != nil {
			return err
		}
		if !grows {
			s.leader.log.Warn("start: now has no effect on rows that are unsent now: the table's key does not grow, so the fallback cannot leave them out",
				zap.String("table", t.label))
		}
		st.Floor = floor
	}
	s.states[t.name] = st
	return nil
}

// floor is the key up to which the fallback leaves a table's rows alone where it
// begins with start: now. Only a key that grows tells old rows from new ones; by
// any other, stragglers could not be told either, and those count more.
func (c *current) floor(ctx context.Context, t *table) (key []byte, grows bool, err error) {
	m, _, err := c.mapping(ctx, t)
	if err != nil {
		return nil, false, err
	}
	if len(m.rowKey) != 1 || !m.rowKey[0].integer {
		return nil, false, nil
	}
	last, err := c.last(ctx, t)
	if err != nil {
		return nil, false, err
	}
	return keyOf(last), true, nil
}

// commit saves what was planned: the barrier.
func (s *start) commit(ctx context.Context) error {
	l := s.leader
	err := l.store.Fenced(ctx, l.term.Fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		for _, a := range s.audit {
			if err := tx.Audit(ctx, a); err != nil {
				return err
			}
		}
		for i := range l.relay.config.Tables {
			for _, p := range l.relay.config.Tables[i].Tables {
				if !p.Literal() {
					if err := saveTableState(ctx, tx, canal.TableName{Schema: p.Schema, Name: p.Table}, tableState{}); err != nil {
						return err
					}
				}
			}
		}
		for name, st := range s.states {
			if err := saveTableState(ctx, tx, name, st); err != nil {
				return err
			}
			if s.moves {
				// The shape at another place is none at P.
				if err := tx.CoverTable(ctx, name.Schema, name.Name, nil); err != nil {
					return err
				}
			}
		}
		for _, xid := range s.decided {
			if err := tx.DropPrepared(ctx, xid); err != nil {
				return err
			}
		}
		if err := s.holdUnknown(ctx, tx); err != nil {
			return err
		}
		if s.moves {
			return tx.SavePosition(ctx, s.place)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("begin at %s: %w", s.place, err)
	}
	for name, st := range s.states {
		l.states[name] = st
		delete(l.start.Shapes, name)
		l.log.Info("beginning a table", zap.Stringer("table", name), zap.Stringer("position", s.place), zap.Bool("sweep", st.Sweep != nil))
	}
	if s.moves {
		l.start.Position, l.start.Shapes = s.place, canal.Shapes{}
		l.log.Info("beginning the stream", zap.String("cause", s.cause), zap.Stringer("position", s.place))
	}
	return nil
}

// restore takes what the checkpoint holds.
func (l *leader) restore() error {
	l.start = canal.Start{Position: l.term.Checkpoint.Position, Shapes: canal.Shapes{}}
	l.states = map[canal.TableName]tableState{}
	for _, t := range l.term.Checkpoint.Tables {
		name := canal.TableName{Schema: t.Schema, Name: t.Name}
		if t.Shape != nil {
			shape := new(canal.Shape)
			if err := json.Unmarshal(t.Shape, shape); err != nil {
				return fmt.Errorf("read the saved shape of %s: %w", name, err)
			}
			l.start.Shapes[name] = shape
		}
		st, err := parseTableState(t.Sweep)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.states[name] = st
	}
	return nil
}

func auditDetail(detail map[string]any) (json.RawMessage, error) {
	text, err := json.Marshal(detail)
	if err != nil {
		return nil, fmt.Errorf("write the audit: %w", err)
	}
	return text, nil
}
