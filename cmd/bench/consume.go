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

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

// consume measures what the inbox costs a consumer.
type consume struct {
	messages, rounds int
	database         string

	db     *sql.DB
	vhost  lab.Vhost
	admin  *amqp.Channel
	rabbit *lab.RabbitServer
	mysql  *lab.MySQLServer
	number int // of messages published so far
}

func newConsume(show func(table) error) *cobra.Command {
	b := &consume{}
	c := &cobra.Command{
		Use:   "consume",
		Short: "Effects a second with an inbox, against a plain consumer with the same business write",
		Args:  cobra.NoArgs,
		RunE:  measure(b, show),
	}
	f := c.Flags()
	f.IntVar(&b.messages, "messages", 5000, "messages of one measurement")
	f.IntVar(&b.rounds, "rounds", 5, "pairs to measure")
	f.StringVar(&b.database, "database", string(lab.MySQL97), "mysql97 or mariadb1011")
	return c
}

func (b *consume) run(ctx context.Context) (table, error) {
	defer b.tearDown()
	if err := b.setUp(ctx); err != nil {
		return table{}, err
	}
	t := table{
		Title: fmt.Sprintf("%d messages, one INSERT each, %s, quorum queue", b.messages, b.database),
		Note: "other: a plain amqp091-go consumer with as many goroutines and the same prefetch, one transaction and one\n" +
			"acknowledgement a message, and no inbox. Both commit with sync_binlog=1 and innodb_flush_log_at_trx_commit=1.",
	}
	for _, v := range []struct{ workers, batch int }{{1, 1}, {16, 1}, {1, 20}, {16, 20}} {
		var ours, plain []sample
		for round := range b.rounds {
			measure := []func() error{
				func() error { return b.measure(ctx, &ours, v.workers, v.batch, b.inbox) },
				func() error { return b.measure(ctx, &plain, v.workers, v.batch, b.plain) },
			}
			if round%2 == 1 {
				slices.Reverse(measure)
			}
			for _, m := range measure {
				if err := m(); err != nil {
					return table{}, err
				}
			}
			progress("%d workers, batch %d, round %d of %d: inbox %.0f/s, plain %.0f/s", v.workers, v.batch, round+1, b.rounds, ours[round].rate, plain[round].rate)
		}
		t.Rows = append(t.Rows, pair(fmt.Sprintf("%d workers, batches of %d", v.workers, v.batch), "/s", ours, plain, func(s sample) float64 { return s.rate }, ""))
	}
	return t, nil
}

const consumeQueue = "bench"

func (b *consume) setUp(ctx context.Context) (err error) {
	if b.mysql, err = lab.StartMySQL(ctx, lab.MySQLOptions{Kind: lab.Kind(b.database)}); err != nil {
		return err
	}
	if b.rabbit, err = lab.StartRabbit(ctx, lab.RabbitOptions{Kind: lab.Rabbit43}); err != nil {
		return err
	}
	if b.vhost, err = b.rabbit.NewVhost(ctx); err != nil {
		return err
	}
	schema, err := b.mysql.NewDatabase(ctx)
	if err != nil {
		return err
	}
	if b.db, err = sql.Open("mysql", b.mysql.DSN(schema, "interpolateParams=true", "multiStatements=true")); err != nil {
		return err
	}
	b.db.SetMaxOpenConns(20)
	b.db.SetMaxIdleConns(20)
	ddl, err := os.ReadFile(filepath.Join("deploy", "sql", "inbox.sql"))
	if err != nil {
		return fmt.Errorf("run it in the repository's root: %w", err)
	}
	if _, err := b.db.ExecContext(ctx, string(ddl)+"CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, message_id CHAR(36) NOT NULL, body VARCHAR(400) NOT NULL)"); err != nil {
		return err
	}
	conn, err := amqp.Dial(b.vhost.URL())
	if err != nil {
		return err
	}
	if b.admin, err = conn.Channel(); err != nil {
		return err
	}
	if err := b.admin.Confirm(false); err != nil {
		return err
	}
	_, err = b.admin.QueueDeclare(consumeQueue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	return err
}

func (b *consume) tearDown() {
	if b.db != nil {
		_ = b.db.Close()
	}
	if b.rabbit != nil {
		_ = b.rabbit.Close()
	}
	if b.mysql != nil {
		_ = b.mysql.Close()
	}
}

// measure fills the queue, lets a consumer empty it, and checks the effects.
func (b *consume) measure(ctx context.Context, samples *[]sample, workers, batch int, consume func(ctx context.Context, workers, batch int, effect func()) error) error {
	if _, err := b.db.ExecContext(ctx, "TRUNCATE TABLE effect"); err != nil {
		return err
	}
	// A quorum queue can lose acknowledgements that come right before the end of
	// a connection: what is delivered again is of the former measurement.
	if _, err := b.admin.QueuePurge(consumeQueue, false); err != nil {
		return err
	}
	first := b.number
	if err := b.fill(ctx); err != nil {
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
			if done.Add(1) == int64(b.messages) {
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
	if err := b.db.QueryRow("SELECT COUNT(DISTINCT message_id) FROM effect WHERE message_id > ?", fmt.Sprintf("%036d", first)).Scan(&n); err != nil {
		return err
	}
	if n != b.messages {
		return fmt.Errorf("%d effects of %d messages", n, b.messages)
	}
	*samples = append(*samples, sample{rate: float64(b.messages) / took.Seconds()})
	return nil
}

func (b *consume) fill(ctx context.Context) error {
	body := slices.Repeat([]byte("x"), 300)
	var last *amqp.DeferredConfirmation
	for range b.messages {
		b.number++
		c, err := b.admin.PublishWithDeferredConfirm("", consumeQueue, true, false, amqp.Publishing{
			MessageId: fmt.Sprintf("%036d", b.number), Type: "order.created", DeliveryMode: amqp.Persistent, Body: body})
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
func (b *consume) inbox(ctx context.Context, workers, batch int, effect func()) error {
	in, err := inbox.New(b.db, inbox.Config{Consumer: "bench", Queue: consumeQueue, Workers: workers, Batch: batch,
		Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			defer effect()
			return write(ctx, tx, m.ID, m.Body)
		}})
	if err != nil {
		return err
	}
	return consumer.Run(ctx, consumer.Config{URLs: []string{b.vhost.URL()}}, in)
}

// plain is the same consumer without an inbox.
func (b *consume) plain(ctx context.Context, workers, batch int, effect func()) error {
	conn, err := amqp.Dial(b.vhost.URL())
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
				case m := <-messages:
					if err := b.one(m, effect); err != nil {
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

func (b *consume) one(m amqp.Delivery, effect func()) error {
	ctx := context.Background() // what is begun is ended
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := write(ctx, tx, m.MessageId, m.Body); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	defer effect()
	return m.Ack(false)
}
