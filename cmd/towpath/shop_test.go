package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// shop commits orders with outbox rows until it is stopped, and keeps a ledger
// of what it committed, exactly: a transaction whose outcome it does not know
// is looked up.
type shop struct {
	r      *rig
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	committed []string
	byKey     map[int][]string // in commit order: each key has one writer
	changed   chan struct{}    // closed at the next commit
}

// trade starts writers, each with keys of its own.
func (r *rig) trade(writers int) *shop {
	ctx, cancel := context.WithCancel(context.Background())
	s := &shop{r: r, cancel: cancel, byKey: map[int][]string{}, changed: make(chan struct{})}
	r.t.Cleanup(func() { s.stop() })
	for w := range writers {
		s.wg.Go(func() { s.write(ctx, w, rand.New(rand.NewPCG(uint64(w), 42))) })
	}
	return s
}

func (s *shop) write(ctx context.Context, w int, random *rand.Rand) {
	pace := time.NewTicker(5 * time.Millisecond) // a shop, not a benchmark: tests run beside each other
	defer pace.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		key := w*10 + random.IntN(3)
		rows := 1 + random.IntN(4)
		_ = s.transaction(ctx, key, rows, random.IntN(5) == 0) // if the database is away, the shop tries on
	}
}

// transaction inserts rows of one key, and commits or rolls back.
func (s *shop) transaction(ctx context.Context, key, rows int, rollback bool) error {
	tx, err := s.r.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var ids []string
	for i := range rows {
		result, err := tx.Exec("INSERT INTO outbox (aggregate, payload) VALUES (?, ?)", key, fmt.Sprintf(`{"row": %d}`, i))
		if err != nil {
			return err
		}
		id, err := result.LastInsertId()
		if err != nil {
			return err
		}
		ids = append(ids, fmt.Sprint(id))
	}
	if rollback {
		return nil
	}
	if err := tx.Commit(); err != nil {
		if !s.there(ids[0]) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = append(s.committed, ids...)
	s.byKey[key] = append(s.byKey[key], ids...)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// there looks a row up, once the database answers again.
func (s *shop) there(id string) bool {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var n int
		err := s.r.db.QueryRow("SELECT COUNT(*) FROM outbox WHERE id = ?", id).Scan(&n)
		if err == nil {
			return n == 1
		}
		if time.Now().After(deadline) {
			s.r.t.Errorf("the database did not answer within a minute: %v", err)
			return false
		}
	}
}

// stop ends trading and returns what was committed.
func (s *shop) stop() []string {
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// traded waits until so many rows more were committed.
func (s *shop) traded(n int) {
	s.r.t.Helper()
	deadline := time.After(time.Minute)
	for want := -1; ; {
		s.mu.Lock()
		if want < 0 {
			want = len(s.committed) + n
		}
		have, changed := len(s.committed), s.changed
		s.mu.Unlock()
		if have >= want {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.r.t.Fatalf("%d rows were to be committed within a minute, %d were", want, have)
		}
	}
}

// accounted ends trading, waits until all that was committed has arrived, and
// compares both id by id and key by key.
func (s *shop) accounted() (committed []string, duplicates int) {
	s.r.t.Helper()
	committed = s.stop()
	s.r.inbox.holds(committed)
	duplicates = s.r.inbox.account(committed)
	s.inOrder()
	return committed, duplicates
}

// inOrder checks that the first arrival of each key's rows is in commit order (P6).
func (s *shop) inOrder() {
	s.r.t.Helper()
	first := map[string]int{}
	for i, id := range s.r.inbox.ids() {
		if _, seen := first[id]; !seen {
			first[id] = i
		}
	}
	for key, ids := range s.byKey {
		for i := 1; i < len(ids); i++ {
			if first[ids[i]] < first[ids[i-1]] {
				s.r.t.Errorf("key %d: row %s arrived before row %s, which was committed first (P6)", key, ids[i], ids[i-1])
			}
		}
	}
}
