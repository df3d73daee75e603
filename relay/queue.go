package relay

import (
	"context"
	"sync"
)

// queue hands values from one goroutine to another in batches: the taker gets
// everything that has gathered since it last came. Its weight is bounded; the
// giver waits while it is full (P7).
type queue[T any] struct {
	mu     sync.Mutex
	items  []T
	weight int64
	limit  int64
	ready  chan struct{} // has a token while items is not empty
	room   chan struct{} // has a token after a take
}

func newQueue[T any](limit int64) *queue[T] {
	return &queue[T]{limit: limit, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put waits for room, then adds v. A value heavier than the whole limit goes in
// alone. There is one giver.
func (q *queue[T]) put(ctx context.Context, v T, weight int64) error {
	for {
		q.mu.Lock()
		if q.weight == 0 || q.weight+weight <= q.limit {
			q.items = append(q.items, v)
			q.weight += weight
			q.mu.Unlock()
			signal(q.ready)
			return nil
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add adds values whose number something else bounds, and never waits.
func (q *queue[T]) add(values []T) {
	q.mu.Lock()
	q.items = append(q.items, values...)
	q.mu.Unlock()
	signal(q.ready)
}

// take returns all that has gathered, nil when there is nothing. into is an
// earlier result that the caller is done with; its storage is used again.
func (q *queue[T]) take(into []T) []T {
	clear(into)
	q.mu.Lock()
	items := q.items
	q.items = into[:0]
	q.weight = 0
	q.mu.Unlock()
	signal(q.room)
	return items
}

// signal leaves a token without waiting.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
