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

// dispatcher carries out what operators ask of the leader, one request after
// the other, and records how each ended. A request that a leader did not finish
// is begun again by the next one: each kind must bear that.
type dispatcher struct {
	leader *leader
	log    *zap.Logger
}

// requestKinds are what can be asked. A kind returns its result, which is JSON
// and holds no payload, also beside an error.
var requestKinds = map[string]func(*dispatcher, context.Context, checkpoint.Request) (any, error){
	RequestParkedRetry:   (*dispatcher).changeParked,
	RequestParkedDiscard: (*dispatcher).changeParked,
	RequestReplay:        (*dispatcher).replay,
	RequestDone:          (*dispatcher).markDone,
}

// lookEvery is how often the leader looks for requests.
const lookEvery = 250 * time.Millisecond

// run works until ctx ends or the fence refuses.
func (d *dispatcher) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		err := d.look(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, checkpoint.ErrFenced):
			return err
		case err != nil && !failing:
			d.log.Warn("requests cannot be read, trying on", zap.Error(err))
		}
		failing = err != nil
	}
}

// look takes what waits and carries it out.
func (d *dispatcher) look(ctx context.Context) error {
	store, fence := d.leader.store, d.leader.term.Fence
	if wait, err := store.RequestsWait(ctx, fence); err != nil || !wait {
		return err
	}
	var requests []checkpoint.Request
	err := store.Fenced(ctx, fence, func(ctx context.Context, tx *checkpoint.Tx) (err error) {
		requests, err = tx.TakeRequests(ctx, 1)
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range requests {
		result, failure := d.carryOut(ctx, r)
		if ctx.Err() != nil || errors.Is(failure, checkpoint.ErrFenced) {
			return failure // the next leader begins it again
		}
		if err := d.finish(ctx, r, result, failure); err != nil {
			return err
		}
	}
	return nil
}

func (d *dispatcher) carryOut(ctx context.Context, r checkpoint.Request) (any, error) {
	kind, known := requestKinds[r.Kind]
	if !known {
		return nil, fmt.Errorf("the leader does not know the request %q: it is of another version", r.Kind)
	}
	d.log.Info("request", zap.Uint64("id", r.ID), zap.String("kind", r.Kind), zap.String("operator", r.Operator), zap.String("reason", r.Reason))
	return kind(d, ctx, r)
}

// finish records how a request ended, and audits it, in one transaction. It is
// tried until the database takes it (P8).
func (d *dispatcher) finish(ctx context.Context, r checkpoint.Request, result any, failure error) error {
	outcome := struct {
		Args   json.RawMessage `json:"args"`
		Result any             `json:"result,omitempty"`
		Error  string          `json:"error,omitempty"`
	}{Args: r.Args, Result: result}
	state := checkpoint.RequestDone
	if failure != nil {
		state, outcome.Error = checkpoint.RequestFailed, failure.Error()
	}
	detail, err := json.Marshal(outcome)
	if err != nil {
		return fmt.Errorf("record request %d: %w", r.ID, err)
	}
	answer, err := json.Marshal(Answer{Result: result, Error: outcome.Error})
	if err != nil {
		return fmt.Errorf("record request %d: %w", r.ID, err)
	}
	return d.write(ctx, func(ctx context.Context, tx *checkpoint.Tx) error {
		if err := tx.Audit(ctx, checkpoint.Audit{Action: r.Kind, Operator: r.Operator, Reason: r.Reason, Detail: detail}); err != nil {
			return err
		}
		return tx.FinishRequest(ctx, r.ID, state, answer)
	})
}

// write runs a transaction until it is committed.
func (d *dispatcher) write(ctx context.Context, work func(context.Context, *checkpoint.Tx) error) error {
	for failures := 0; ; failures++ {
		err := d.leader.store.Fenced(ctx, d.leader.term.Fence, work)
		if err == nil || errors.Is(err, checkpoint.ErrFenced) || !outage(err) && !errors.Is(err, checkpoint.ErrUnknown) {
			return err
		}
		if !sleep(ctx, backoff(failures, 100*time.Millisecond, 5*time.Second)) {
			return context.Cause(ctx)
		}
	}
}

// Answer is what a request's result holds: how it ended, and until then how far it got.
type Answer struct {
	Result   any    `json:"result,omitempty"`
	Error    string `json:"error,omitempty"`
	Progress uint64 `json:"progress,omitempty"`
	Total    uint64 `json:"total,omitempty"`
}

// progress tells who waits how far a request got.
func (d *dispatcher) progress(ctx context.Context, r checkpoint.Request, so Answer) error {
	answer, err := json.Marshal(so)
	if err != nil {
		return fmt.Errorf("record request %d: %w", r.ID, err)
	}
	return d.write(ctx, func(ctx context.Context, tx *checkpoint.Tx) error { return tx.RequestProgress(ctx, r.ID, answer) })
}

// Kinds of requests on parked rows. Their args are a [checkpoint.ParkedFilter].
const (
	RequestParkedRetry   = "parked.retry"
	RequestParkedDiscard = "parked.discard"
)

// ParkedResult says what became of the rows that a request chose.
type ParkedResult struct {
	Rows     uint64 `json:"rows"`      // that the filter chose
	Changed  uint64 `json:"changed"`   // retried, or discarded
	UnderWay uint64 `json:"under_way"` // were just being sent: discarded if the broker refuses them
	Ended    uint64 `json:"ended"`     // had come to an end meanwhile
}

// parkedRequestPage is how many rows one change is for.
const parkedRequestPage = 500

// changeParked retries or discards the parked rows that a request's filter
// chooses, in pages. Begun again by another leader it goes on with the rest.
func (d *dispatcher) changeParked(ctx context.Context, r checkpoint.Request) (any, error) {
	var filter checkpoint.ParkedFilter
	if err := json.Unmarshal(r.Args, &filter); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	store, stream := d.leader.store, d.leader.term.Fence.Stream
	var result ParkedResult
	total, last, err := store.CountParked(ctx, stream, filter)
	if err != nil {
		return result, err
	}
	for after := uint64(0); after < last; {
		page, err := store.ParkedRows(ctx, stream, filter, after, parkedRequestPage)
		if err != nil {
			return result, err
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Sequence
		if err := d.changePage(ctx, r.Kind == RequestParkedDiscard, page, &result); err != nil {
			return result, err
		}
		if err := d.progress(ctx, r, Answer{Progress: result.Rows, Total: max(total, result.Rows)}); err != nil {
			return result, err
		}
	}
	return result, nil
}

// changePage has the loop, which owns the parked rows, make a change, and waits
// until it is durable. Rows of tables that the configuration no longer names are
// not with the loop.
func (d *dispatcher) changePage(ctx context.Context, discard bool, page []checkpoint.ParkedRow, result *ParkedResult) error {
	c := &command{discard: discard, done: make(chan struct{})}
	var foreign []checkpoint.RowKey
	for i := range page {
		t := d.leader.tables.find(canal.TableName{Schema: page[i].Schema, Name: page[i].Name})
		switch {
		case t != nil:
			c.refs = append(c.refs, t.ref(page[i].Key))
		case discard:
			foreign = append(foreign, page[i].RowKey)
		default:
			return fmt.Errorf("table %s.%s is not in the configuration: its parked rows can only be discarded", page[i].Schema, page[i].Name)
		}
	}
	if len(foreign) > 0 {
		err := d.write(ctx, func(ctx context.Context, tx *checkpoint.Tx) error {
			for _, k := range foreign {
				// It is remembered: were the table named again, the row would look unsent.
				if err := tx.EndParked(ctx, k, checkpoint.ParkedDiscarded); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		result.Changed += uint64(len(foreign))
	}
	if len(c.refs) > 0 {
		d.leader.loop.commands.add([]*command{c})
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	result.Rows += uint64(len(page))
	result.Changed += uint64(c.changed)
	result.UnderWay += uint64(c.underWay)
	result.Ended += uint64(c.missing)
	return nil
}
