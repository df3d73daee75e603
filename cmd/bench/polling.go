package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// poller is the practice that the relay replaces: rows are looked for by their
// status, locked, published with confirms, and marked in the same transaction.
type poller struct {
	stage *stage
	table string
	batch int
	pause time.Duration // after each look

	ch *amqp.Channel
}

// run looks until ctx ends.
func (p *poller) run(ctx context.Context) error {
	for {
		if _, err := p.round(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.pause):
		}
	}
}

// round sends one batch and says how many rows it had.
func (p *poller) round(ctx context.Context) (int, error) {
	if p.ch == nil {
		ch, err := p.stage.conn.Channel()
		if err != nil {
			return 0, err
		}
		if err := ch.Confirm(false); err != nil {
			return 0, err
		}
		p.ch = ch
	}
	tx, err := p.stage.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, "SELECT id, type, payload FROM bench."+p.table+" WHERE status = 'PENDING' ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED", p.batch)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []any
	var confirms []*amqp.DeferredConfirmation
	for rows.Next() {
		var id, kind string
		var body []byte
		if err := rows.Scan(&id, &kind, &body); err != nil {
			return 0, err
		}
		c, err := p.ch.PublishWithDeferredConfirm("", theQueue, true, false, amqp.Publishing{
			MessageId: id, Type: kind, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			return 0, err
		}
		ids, confirms = append(ids, id), append(confirms, c)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, c := range confirms {
		if !c.Wait() {
			return 0, fmt.Errorf("polling relay: a message was not confirmed")
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE bench."+p.table+" SET status = 'SENT' WHERE id IN ("+strings.TrimSuffix(strings.Repeat("?,", len(ids)), ",")+")", ids...); err != nil {
		return 0, err
	}
	return len(ids), tx.Commit()
}
