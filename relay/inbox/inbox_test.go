package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/towpath/towpath/relay/inbox"
)

func TestADeliveryThatComesAgainIsAcknowledgedAndAppliedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		again := message("a")
		again.Headers["tenant"], again.AppId = "us", "replay" // not content
		r.publish(message("a"), again, message("b"), message("a"))
		stop := r.run(r.new(inbox.Config{Workers: 4}))
		r.reaches("processed_total", "applied", 2)
		r.reaches("processed_total", "duplicate", 2)
		stop()
		r.expectEffects("a", "b")
		if left := r.left(); left != nil {
			t.Errorf("left in the queue: %v", left)
		}
		if n := r.metric("delay_seconds", ""); n != 2 {
			t.Errorf("delay of %v messages, want 2", n)
		}
		if r.metric("waiting", "") != 0 || r.metric("in_progress", "") != 0 || r.metric("oldest_waiting_seconds", "") != 0 {
			t.Error("something waits after the stop")
		}
	})
}

func TestOfManyThatProcessOneMessageAtOnceOneAppliesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := r.new(inbox.Config{})
		var mu sync.Mutex
		outcomes := map[inbox.Outcome]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					outcome, err := in.Once(t.Context(), inbox.Message{ID: "a", Body: []byte("x")})
					if err != nil && strings.Contains(err.Error(), "Deadlock") {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					outcomes[outcome]++
					mu.Unlock()
					return
				}
			})
		}
		all.Wait()
		if outcomes[inbox.Applied] != 1 || outcomes[inbox.Duplicate] != 7 {
			t.Errorf("outcomes %v", outcomes)
		}
		r.expectEffects("a")
	})
}

func TestAKnownIDWithDifferentContentIsIsolated(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		body, kind := message("a"), message("a")
		body.Body, kind.Type = []byte("other"), "order.deleted"
		in := r.new(inbox.Config{Workers: 1})
		r.publish(message("a"), body, kind, message("A"), message("a "))
		r.run(in)
		for range 2 {
			d := r.next(in.IsolationQueue())
			if d.MessageId != "a" || d.Headers[inbox.HeaderReason] != inbox.ReasonContent {
				t.Errorf("isolated %s: %v", d.MessageId, d.Headers)
			}
		}
		r.reaches("processed_total", "applied", 3) // letter case and spaces tell ids apart
		r.expectEffects("A", "a", "a ")
	})
}

func TestContentIsTheHashThatTheDocumentsTellOtherLanguages(t *testing.T) {
	text, err := os.ReadFile("../../deploy/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", inbox.Content("order.created", []byte(`{"id": 1}`))); !strings.Contains(string(text), sum) {
		t.Errorf("deploy/consumers.md does not give %s as an example", sum)
	}
}

func TestABatchIsOneTransactionAndAFailureInItStaysAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.exec("CREATE TABLE batch (message_id VARCHAR(64) PRIMARY KEY, connection BIGINT NOT NULL, started VARCHAR(40) NOT NULL)")
		var ids []string
		for i := range 30 {
			id := fmt.Sprintf("m%02d", i)
			ids = append(ids, id)
			r.publish(message(id))
		}
		r.publish(message("bad"), message("m00"))
		transactions := map[*sql.Tx]int{}
		in := r.new(inbox.Config{Workers: 1, Batch: 10, Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			if m.ID == "bad" {
				return inbox.Permanent(errors.New("bad"))
			}
			transactions[tx]++ // one worker: one goroutine
			return effect(ctx, tx, m)
		}})
		stop := r.run(in)
		r.next(in.IsolationQueue())
		r.reaches("processed_total", "applied", 30)
		r.reaches("processed_total", "duplicate", 1)
		stop()
		r.expectEffects(ids...)
		shared := 0
		for _, n := range transactions {
			if n > 1 {
				shared++
			}
		}
		if shared == 0 {
			t.Error("no transaction held several deliveries")
		}
	})
}

func TestPurgeKeepsTheReplayWindowAndOtherConsumers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.exec(`INSERT INTO towpath_inbox (consumer, message_id, content, processed_at)
			WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i < 900)
			SELECT c, CONCAT(d, '-', i), REPEAT('x', 32), UTC_TIMESTAMP(6) - INTERVAL d HOUR
			FROM n, (SELECT 'shop' AS c UNION SELECT 'other') AS c, (SELECT 47 AS d UNION SELECT 49 UNION SELECT 100) AS d`)
		in := r.new(inbox.Config{Within: time.Hour, ReplayWindow: 48 * time.Hour})
		if _, err := in.Purge(t.Context(), 47*time.Hour); err == nil || !strings.Contains(err.Error(), "replay window") {
			t.Errorf("records younger than the replay window were purged: %v", err)
		}
		n, err := in.Purge(t.Context(), 48*time.Hour)
		if n != 1800 || err != nil || r.metric("purged_total", "") != 1800 {
			t.Errorf("purged %d, %v", n, err)
		}
		var shop, other int
		if err := r.db.QueryRow("SELECT SUM(consumer='shop'), SUM(consumer='other') FROM towpath_inbox").Scan(&shop, &other); err != nil || shop != 900 || other != 2700 {
			t.Errorf("left %d and %d, %v", shop, other, err)
		}
	})
}

func TestAWrongConfigurationIsRefusedWithEachFaultNamed(t *testing.T) {
	db, err := sql.Open("mysql", "root@tcp(127.0.0.1:1)/x")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	_, err = inbox.New(db, inbox.Config{Consumer: "Ünsinn", Workers: 5, Batch: -1, Within: 20 * 24 * time.Hour, Delays: []time.Duration{time.Millisecond}})
	for _, want := range []string{"Consumer must", "Queue must", "Handler is missing", "5 workers on a pool of 4", "Batch must", "each of Delays", "shorter than ReplayWindow"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	in, err := inbox.New(db, inbox.Config{Consumer: "c", Queue: "q", Handler: effect})
	if err != nil || in.Workers != 4 || in.Prefetch() != 8 {
		t.Errorf("%v; %d workers, prefetch %d for a pool of 4", err, in.Workers, in.Prefetch())
	}
}
