package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// poller sends the outbox as shops do without Towpath: it claims pending rows,
// publishes them with confirms, and marks each as sent.
type poller struct {
	r       *rig
	channel *amqp.Channel
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// poller starts one, on the exchange that is named as the schema.
func (r *rig) poller() *poller {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	p := &poller{r: r, channel: r.channel(), cancel: cancel}
	if err := p.channel.Confirm(false); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.stop)
	p.done.Go(func() {
		poll := time.NewTicker(20 * time.Millisecond)
		defer poll.Stop()
		for ctx.Err() == nil {
			if rows := p.claim(); rows != nil {
				p.send(rows, true)
			}
			select {
			case <-poll.C:
			case <-ctx.Done():
			}
		}
	})
	return p
}

// stop ends the poller between two polls.
func (p *poller) stop() { p.cancel(); p.done.Wait() }

// crash ends the poller in the middle of its work: it has claimed rows, sent
// some of them, and marked none. It returns the number of those.
func (p *poller) crash(s *shop) (unmarked int) {
	p.r.t.Helper()
	p.stop()
	if err := s.transaction(p.r.t.Context(), 99, 3, false); err != nil {
		p.r.t.Fatal(err)
	}
	rows := p.claim()
	if len(rows) < 3 {
		p.r.t.Fatalf("the poller claimed %d rows", len(rows))
	}
	p.send(rows[:2], false)
	return 2
}

type polled struct{ id, kind, body string }

// claim takes pending rows for two seconds.
func (p *poller) claim() (rows []polled) {
	tx, err := p.r.db.Begin()
	if err != nil {
		p.r.t.Error(err)
		return nil
	}
	defer tx.Rollback()
	found, err := tx.Query("SELECT id, type, payload FROM outbox WHERE status='PENDING' ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED")
	if err != nil {
		p.r.t.Error(err)
		return nil
	}
	defer found.Close()
	for found.Next() {
		var row polled
		if err := found.Scan(&row.id, &row.kind, &row.body); err != nil {
			p.r.t.Error(err)
			return nil
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.id)
	}
	if _, err = tx.Exec("UPDATE outbox SET status='PROCESSING', locked_until=UTC_TIMESTAMP(3) + INTERVAL 2 SECOND WHERE id IN (" + strings.Join(ids, ",") + ")"); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		p.r.t.Error(err)
		return nil
	}
	return rows
}

func (p *poller) send(rows []polled, mark bool) {
	for _, row := range rows {
		if err := p.publish(row); err != nil {
			p.r.t.Errorf("the poller: %v", err)
			return
		}
		if !mark {
			continue
		}
		if _, err := p.r.db.Exec("UPDATE outbox SET status='SENT', locked_until=NULL WHERE id=?", row.id); err != nil {
			p.r.t.Errorf("the poller: %v", err)
		}
	}
}

func (p *poller) publish(row polled) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	confirm, err := p.channel.PublishWithDeferredConfirmWithContext(ctx, p.r.schema, row.kind, true, false, amqp.Publishing{
		MessageId: row.id, Type: row.kind, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(row.body)})
	if err != nil {
		return err
	}
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		return fmt.Errorf("row %s: confirmed %v: %w", row.id, acked, err)
	}
	return nil
}
