package checkpoint

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// Request is an operator's command to the leader of a stream.
type Request struct {
	ID       uint64
	Kind     string
	Args     json.RawMessage
	Operator string
	Reason   string
	State    RequestState
	Result   json.RawMessage // nil until it is finished
}

// RequestState is how far a request got.
type RequestState string

// The states of a request. One that a leader took and did not finish is taken
// again by the next leader.
const (
	RequestNew    RequestState = "new"
	RequestTaken  RequestState = "taken"
	RequestDone   RequestState = "done"
	RequestFailed RequestState = "failed"
)

// Ask writes a request for the leader and returns its id. It needs no lease.
func (s *Store) Ask(ctx context.Context, stream string, r Request) (uint64, error) {
	result, err := s.db.ExecContext(ctx, s.sql(`INSERT INTO {schema}.request (stream, kind, args, operator, reason, state, requested_at)
		VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))`), stream, r.Kind, string(r.Args), cut(r.Operator, 255), cut(r.Reason, 1024), string(RequestNew))
	if err != nil {
		return 0, withoutData(fmt.Errorf("ask the leader: %w", err))
	}
	id, err := result.LastInsertId()
	return uint64(id), err
}

// Asked reads a request, to see what became of it.
func (s *Store) Asked(ctx context.Context, id uint64) (Request, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT "+requestColumns+" FROM {schema}.request WHERE id=?"), id)
	found, err := scanRequests(rows, err)
	if err == nil && len(found) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return Request{}, fmt.Errorf("read request %d: %w", id, err)
	}
	return found[0], nil
}

// TakeRequests takes the oldest requests that wait, at most limit: new ones,
// and those that an earlier leader took and did not finish.
func (t *Tx) TakeRequests(ctx context.Context, limit int) ([]Request, error) {
	rows, err := t.Query(ctx, t.store.sql("SELECT "+requestColumns+` FROM {schema}.request
		WHERE stream=? AND (state=? OR state=? AND term<>?) ORDER BY id LIMIT ?`),
		t.fence.Stream, string(RequestNew), string(RequestTaken), t.fence.Term, limit)
	found, err := scanRequests(rows, err)
	if err != nil {
		return nil, fmt.Errorf("take requests: %w", err)
	}
	for i := range found {
		found[i].State = RequestTaken
		if _, err := t.Exec(ctx, t.store.sql("UPDATE {schema}.request SET state=?, term=?, taken_at=UTC_TIMESTAMP(6) WHERE id=?"),
			string(RequestTaken), t.fence.Term, found[i].ID); err != nil {
			return nil, fmt.Errorf("take request %d: %w", found[i].ID, err)
		}
	}
	return found, nil
}

// FinishRequest records how a request ended, which is done or failed.
func (t *Tx) FinishRequest(ctx context.Context, id uint64, state RequestState, result json.RawMessage) error {
	_, err := t.Exec(ctx, t.store.sql("UPDATE {schema}.request SET state=?, result=?, finished_at=UTC_TIMESTAMP(6) WHERE id=? AND stream=?"),
		string(state), jsonOrNull(result), id, t.fence.Stream)
	if err != nil {
		return fmt.Errorf("finish request %d: %w", id, err)
	}
	return nil
}

const requestColumns = "id, kind, args, operator, reason, state, result"

func scanRequests(rows *sql.Rows, err error) ([]Request, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Request
	for rows.Next() {
		var r Request
		if err := rows.Scan(&r.ID, &r.Kind, (*[]byte)(&r.Args), &r.Operator, &r.Reason, &r.State, (*[]byte)(&r.Result)); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// TakeBack ends a request that no leader has taken, and reports false when one has.
func (s *Store) TakeBack(ctx context.Context, id uint64) (bool, error) {
	result, err := s.db.ExecContext(ctx, s.sql("DELETE FROM {schema}.request WHERE id=? AND state=?"), id, string(RequestNew))
	if err != nil {
		return false, fmt.Errorf("take request %d back: %w", id, err)
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// RequestProgress records how far a taken request has got, as its result so far.
func (t *Tx) RequestProgress(ctx context.Context, id uint64, result json.RawMessage) error {
	_, err := t.Exec(ctx, t.store.sql("UPDATE {schema}.request SET result=? WHERE id=? AND stream=?"), jsonOrNull(result), id, t.fence.Stream)
	if err != nil {
		return fmt.Errorf("record the progress of request %d: %w", id, err)
	}
	return nil
}
