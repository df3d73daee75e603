package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

// consume measures what the inbox costs a consumer.
type consume struct {
	messages, rounds int

	db     *sql.DB
	vhost  lab.Vhost
	conn   *amqp.Connection
	admin  *amqp.Channel
	number int // of messages published so far
}

func newConsume() (*cobra.Command, measure) {
	m := &consume{}
	c := &cobra.Command{Use: "consume", Short: "Effects a second with an inbox, against a plain consumer with the same business write"}
	f := c.Flags()
	f.IntVar(&m.messages, "messages", 5000, "messages of one measurement")
	f.IntVar(&m.rounds, "rounds", 5, "pairs to measure")
	return c, m
}

func (m *consume) run(ctx context.Context, b *bed) (table, error) {
	defer m.tearDown()
	if err := m.setUp(ctx, b); err != nil {
		return table{}, err
	}
	t := table{
		Title: fmt.Sprintf("%d messages, one INSERT each, %s, quorum queue", m.messages, b.kind),
		Note: "other: a plain amqp091-go consumer with as many goroutines and the same prefetch, one transaction and one\n" +
			"acknowledgement a message, and no inbox. Both commit with sync_binlog=1 and innodb_flush_log_at_trx_commit=1.",
	}
	for _, v := range []struct{ workers, batch int }{{1, 1}, {16, 1}, {1, 20}, {16, 20}} {
		var ours, plain []float64
		for round := range m.rounds {
			if err := inTurns(round,
				func() error { return m.measure(ctx, &ours, v.workers, v.batch, m.inbox) },
				func() error { return m.measure(ctx, &plain, v.workers, v.batch, m.plain) }); err != nil {
				return table{}, err
			}
			progress(b, "consume, %d workers, batch %d, round %d of %d: inbox %.0f/s, plain %.0f/s", v.workers, v.batch, round+1, m.rounds, ours[round], plain[round])
		}
		t.Rows = append(t.Rows, pair(fmt.Sprintf("%d workers, batches of %d", v.workers, v.batch), "/s", ours, plain, func(v float64) float64 { return v }, ""))
	}
	return t, nil
}

const consumeQueue = "bench"

func (m *consume) setUp(ctx context.Context, on *bed) (err error) {
	if m.vhost, err = on.rabbit.NewVhost(ctx); err != nil {
		return err
	}
	schema, err := on.mysql.NewDatabase(ctx)
	if err != nil {
		return err
	}
	if m.db, err = sql.Open("mysql", on.mysql.DSN(schema, "interpolateParams=true", "multiStatements=true")); err != nil {
		return err
	}
	m.db.SetMaxOpenConns(20)
	m.db.SetMaxIdleConns(20)
	root, err := program.Root(ctx)
	if err != nil {
		return err
	}
	ddl, err := os.ReadFile(filepath.Join(root, "deploy", "sql", "inbox.sql"))
	if err != nil {
		return err
	}
	if _, err := m.db.ExecContext(ctx, string(ddl)+"CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, message_id CHAR(36) NOT NULL, body VARCHAR(400) NOT NULL)"); err != nil {
		return err
	}
	if m.conn, m.admin, err = confirming(m.vhost.URL()); err != nil {
		return err
	}
	_, err = m.admin.QueueDeclare(consumeQueue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	return err
}

func (m *consume) tearDown() {
	if m.db != nil {
		_ = m.db.Close()
	}
	if m.conn != nil {
		_ = m.conn.Close()
	}
}

// measure fills the queue, lets a consumer empty it, and checks the effects.
func (m *consume) measure(ctx context.Context, samples *[]float64, workers, batch int, consume func(ctx context.Context, workers, batch int, effect func()) error) error {
	if _, err := m.db.ExecContext(ctx, "TRUNCATE TABLE effect"); err != nil {
		return err
	}
	// A quorum queue can lose acknowledgements that come right before the end of
	// a connection: what is delivered again is of the former measurement.
	if _, err := m.admin.QueuePurge(consumeQueue, false); err != nil {
		return err
	}
	first := m.number
	if err := m.fill(ctx); err != nil {
		return err
	}
	runtime.GC()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	all := make(chan struct{})
	started := time.Now()
	finished := make(chan error, 1)
	go func() {
		finished <- consume(ctx, workers, batch, func() {
			if done.Add(1) == int64(m.messages) {
				close(all)
			}
		})
	}()
	select {
	case <-all:
	case err := <-finished:
		return fmt.Errorf("the consumer ended early: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
	cancel()
	if err := <-finished; err != nil {
		return err
	}
	took := time.Since(started)
	var n int
	if err := m.db.QueryRow("SELECT COUNT(DISTINCT message_id) FROM effect WHERE message_id > ?", fmt.Sprintf("%036d", first)).Scan(&n); err != nil {
		return err
	}
	if n != m.messages {
		return fmt.Errorf("%d effects of %d messages", n, m.messages)
	}
	*samples = append(*samples, float64(m.messages)/took.Seconds())
	return nil
}

func (m *consume) fill(ctx context.Context) error {
	body := slices.Repeat([]byte("x"), 300)
	var last *amqp.DeferredConfirmation
	for range m.messages {
		m.number++
		c, err := m.admin.PublishWithDeferredConfirm("", consumeQueue, true, false, amqp.Publishing{
			MessageId: fmt.Sprintf("%036d", m.number), Type: "order.created", DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			return err
		}
		last = c
	}
	_, err := last.WaitContext(ctx)
	return err
}

func write(ctx context.Context, tx *sql.Tx, id string, body []byte) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect (message_id, body) VALUES (?, ?)", id, string(body))
	return err
}

// inbox counts an effect when its handler has ended: the transaction in
// progress and its acknowledgement are within the stop that follows.
func (m *consume) inbox(ctx context.Context, workers, batch int, effect func()) error {
	in, err := inbox.New(m.db, inbox.Config{Consumer: "bench", Queue: consumeQueue, Workers: workers, Batch: batch,
		Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			defer effect()
			return write(ctx, tx, m.ID, m.Body)
		}})
	if err != nil {
		return err
	}
	return consumer.Run(ctx, consumer.Config{URLs: []string{m.vhost.URL()}}, in)
}

// plain is the same consumer without an inbox.
func (m *consume) plain(ctx context.Context, workers, batch int, effect func()) error {
	conn, err := amqp.Dial(m.vhost.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(2*workers*batch, 0, false); err != nil {
		return err
	}
	messages, err := ch.Consume(consumeQueue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make(chan error, workers)
	for range workers {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case d := <-messages:
					if err := m.one(d, effect); err != nil {
						errs <- err
						return
					}
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

func (m *consume) one(d amqp.Delivery, effect func()) error {
	ctx := context.Background() // what is begun is ended
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := write(ctx, tx, d.MessageId, d.Body); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	defer effect()
	return d.Ack(false)
}
