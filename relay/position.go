package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// Moved is what became of a stream's position.
type Moved struct {
	From checkpoint.Position `json:"from"`
	To   checkpoint.Position `json:"to"`
	Term uint64              `json:"term"` // under which it was moved
}

// SetPosition moves a stream's saved position, as an operator decides: what lies
// between the old place and the new one is sent again, or is skipped. It takes
// the lease with a new term, which deposes a leader, writes and audits, and
// resigns; whoever leads next goes on from there. A place without a server is
// one of the server that is configured; the zero place is the binlog's end.
//
// Nothing is published under this term, so it needs no fences (P4). The new
// place is the operator's to answer for: P3 holds from there on.
func SetPosition(ctx context.Context, c *configs.Config, to checkpoint.Position, operator, reason string) (Moved, error) {
	db := checkpoint.Connect(Endpoint(c), checkpoint.Session{IdleTimeout: c.Lease.TTL})
	defer db.Close()
	store, err := checkpoint.Open(ctx, db, c.State.Schema)
	if err != nil {
		return Moved{}, err
	}
	server, err := canal.Inspect(ctx, db)
	if err != nil {
		return Moved{}, err
	}
	if to.IsZero() {
		to = server.Position
	}
	if to.Server == "" {
		to.Server = server.Identity
	}
	if to.Flavor == "" {
		to.Flavor = server.Flavor
	}
	if err := readable(ctx, c, db, to); err != nil {
		return Moved{}, fmt.Errorf("the binlog cannot be read from %s: %w", to, err)
	}
	session, err := store.LeaseSession(ctx)
	if err != nil {
		return Moved{}, err
	}
	defer session.Close()
	takeover, err := session.Take(ctx, checkpoint.Claim{Stream: c.Name, Holder: NewHolder(), TTL: c.Lease.TTL, Depose: true})
	if err != nil {
		return Moved{}, err
	}
	moved := Moved{From: takeover.Checkpoint.Position, To: to, Term: takeover.Fence.Term}
	var begun map[canal.TableName]tableState
	if moved.From.IsZero() {
		begun, err = begunAt(ctx, c, db, server)
	}
	if err == nil {
		err = moved.save(ctx, store, takeover, begun, operator, reason)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Lease.TTL)
	defer cancel()
	return moved, errors.Join(err, session.Resign(last, takeover.Fence))
}

// begunAt lists the tables that begin with the stream at a place that an operator
// set before the first start: those with start: now. Else "now" would be the time
// of that start, and what was committed since the place would be nobody's (P2).
// The others are swept at the first start, whatever the place.
func begunAt(ctx context.Context, c *configs.Config, db *sql.DB, server canal.Server) (map[canal.TableName]tableState, error) {
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	names, err := matchedTables(ctx, c, db)
	if err != nil {
		return nil, err
	}
	begun := map[canal.TableName]tableState{}
	for _, n := range names {
		t := ts.find(n)
		if t.config.Start != configs.StartNow {
			continue
		}
		st := tableState{Version: tableStateVersion}
		if t.writesBack() {
			if st.Floor, _, err = newCurrent(db, server, ts).floor(ctx, t); err != nil {
				return nil, err
			}
		}
		begun[n] = st
	}
	for i := range c.Tables {
		for _, p := range c.Tables[i].Tables {
			if c.Tables[i].Start == configs.StartNow && !p.Literal() {
				begun[canal.TableName{Schema: p.Schema, Name: p.Table}] = tableState{}
			}
		}
	}
	return begun, nil
}

// save writes the position and what has to move with it.
func (m Moved) save(ctx context.Context, store *checkpoint.Store, takeover checkpoint.Takeover, begun map[canal.TableName]tableState, operator, reason string) error {
	stream := takeover.Fence.Stream
	held, err := store.Prepared(ctx, stream)
	if err != nil {
		return err
	}
	detail, err := auditDetail(map[string]any{"from": m.From, "to": m.To, "deposed": takeover.Old.Holder})
	if err != nil {
		return err
	}
	return store.Fenced(ctx, takeover.Fence, func(ctx context.Context, tx *checkpoint.Tx) error {
		if err := tx.Audit(ctx, checkpoint.Audit{Action: "position.set", Operator: operator, Reason: reason, Detail: detail}); err != nil {
			return err
		}
		for name, st := range begun {
			if err := saveTableState(ctx, tx, name, st); err != nil {
				return err
			}
		}
		for _, t := range takeover.Checkpoint.Tables {
			// A shape at another place is none at this one.
			if err := tx.CoverTable(ctx, t.Schema, t.Name, nil); err != nil {
				return err
			}
			st, err := parseTableState(t.Sweep)
			if err != nil {
				return err
			}
			if st.From != nil && (st.From.Server != m.To.Server || st.From.Compare(m.To) > 0) {
				st.From = nil // the stream is to bring rows that were the sweep's
				if err := saveTableState(ctx, tx, canal.TableName{Schema: t.Schema, Name: t.Name}, st); err != nil {
					return err
				}
			}
		}
		for _, p := range held {
			if m.To.Compare(checkpoint.Position{File: p.File, Offset: p.Place}) < 0 { // the stream brings its prepare again
				if err := tx.DropPrepared(ctx, p.XID); err != nil {
					return err
				}
			}
		}
		return tx.SavePosition(ctx, m.To)
	})
}

// readable tries to read from a position: one that is not this server's, or
// that lies inside of an event, must not be saved.
func readable(ctx context.Context, c *configs.Config, db *sql.DB, p checkpoint.Position) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	options := sourceOptions(c, ts, zap.NewNop())
	options.DB = db
	options.ServerID = 0 // a leader may be connected under the one that is configured
	good := errors.New("it can be read")
	var opened atomic.Bool
	options.Opened = func(canal.Session) error {
		opened.Store(true)
		time.AfterFunc(time.Second, cancel) // the server has complained by then
		return nil
	}
	err := canal.NewSource(options).Stream(ctx, canal.Start{Position: p}, func(canal.Batch) error { return good })
	if errors.Is(err, good) || opened.Load() && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
