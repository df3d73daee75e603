package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"
)

// polling measures the practice that Towpath replaces.
type polling struct {
	rows    int // of a backlog
	rounds  int
	seconds int // of a load
	every   time.Duration
}

func newPolling() (*cobra.Command, measure) {
	m := &polling{}
	c := &cobra.Command{Use: "polling", Short: "Drain and latency, against relays that poll the table"}
	f := c.Flags()
	f.IntVar(&m.rows, "rows", 20_000, "rows of the backlog")
	f.IntVar(&m.rounds, "rounds", 2, "pairs to measure")
	f.IntVar(&m.seconds, "seconds", 5, "of one measurement of latency")
	f.DurationVar(&m.every, "every", 5*time.Second, "pause of the slow relay")
	return c, m
}

// poller reads unsent rows in batches, publishes them, marks them.
type poller struct {
	name   string
	batch  int
	pause  time.Duration // between two looks; 0: looks again at once
	locks  string
	drains time.Duration // how long a drain is watched at most
	load   int           // rows a second that it can keep up with
}

func (m *polling) pollers() []poller {
	return []poller{
		{name: fmt.Sprintf("100 rows every %s", m.every), batch: 100, pause: m.every, drains: 2 * m.every, load: 10},
		{name: "SKIP LOCKED, 500 rows, no pause", batch: 500, locks: " FOR UPDATE SKIP LOCKED", drains: time.Minute, load: 200},
	}
}

func (m *polling) run(ctx context.Context, b *bed) (table, error) {
	of := usual
	of.after = "mark"
	s, err := b.lay(ctx, of)
	defer s.remove()
	if err != nil {
		return table{}, err
	}
	t := table{
		Title: fmt.Sprintf("against relays that poll: drain of %d rows, and %d s of load, %s", m.rows, m.seconds, of),
		Note: "other: a relay that polls: SELECT by status and id, publish, wait for the confirms, UPDATE of the batch, COMMIT. The slow one's\n" +
			"drain is watched for two of its pauses only. Its load is what it can keep up with; the rates are those of the lines.",
	}
	for _, p := range m.pollers() {
		var ours, theirs []float64
		for round := range m.rounds {
			if err := inTurns(round, func() error {
				one, err := s.drain(ctx, m.rows)
				if err != nil {
					return err
				}
				ours = append(ours, one.whole)
				return s.expect(ctx, m.rows)
			}, func() error {
				rate, err := s.pollBacklog(ctx, p, m.rows)
				theirs = append(theirs, rate)
				return err
			}); err != nil {
				return table{}, err
			}
			progress(b, "polling, drain, round %d of %d: towpath %.0f/s, %s %.0f/s", round+1, m.rounds, ours[round], p.name, theirs[round])
		}
		t.Rows = append(t.Rows, pair("drain, against "+p.name, "/s", ours, theirs, func(v float64) float64 { return v }, ""))
	}
	w, err := s.watch()
	if err != nil {
		return table{}, err
	}
	defer w.close()
	for _, p := range m.pollers() {
		var ours, theirs []waits
		for round := range m.rounds {
			lasts := time.Duration(m.seconds) * time.Second
			if err := inTurns(round,
				func() error { return s.relayed(ctx, w, p.load, lasts, &ours) },
				func() error { return s.polled(ctx, w, p, lasts, &theirs) }); err != nil {
				return table{}, err
			}
			progress(b, "polling, latency, round %d of %d: p99 %.1f ms, %s %.1f ms", round+1, m.rounds, ours[round].sent.at(0.99), p.name, theirs[round].sent.at(0.99))
		}
		t.Rows = append(t.Rows, waitLines(fmt.Sprintf("%d/s, against %s:", p.load, p.name), ours, theirs, "")...)
	}
	return t, nil
}

// pollBacklog commits a backlog that no relay reads, lets a poller drain it and
// returns its rate.
func (s *stream) pollBacklog(ctx context.Context, p poller, rows int) (rate float64, err error) {
	beside, err := s.aside(ctx)
	if err != nil {
		return 0, err
	}
	defer beside.db.Close()
	if _, err := beside.db.ExecContext(ctx, "TRUNCATE TABLE outbox_0"); err != nil {
		return 0, err
	}
	if err := beside.commit(ctx, rows); err != nil {
		return 0, err
	}
	s.last = beside.last
	ctx, cancel := context.WithTimeout(ctx, p.drains)
	defer cancel()
	done := 0
	began := time.Now()
	if err := p.poll(ctx, beside, func(n int) bool { done += n; return done < rows }); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return float64(done) / took.Seconds(), s.expect(context.WithoutCancel(ctx), done)
}

// polled puts a load on a poller.
func (s *stream) polled(ctx context.Context, w *watcher, p poller, lasts time.Duration, to *[]waits) error {
	beside, err := s.aside(ctx)
	if err != nil {
		return err
	}
	defer beside.db.Close()
	if _, err := beside.db.ExecContext(ctx, "TRUNCATE TABLE outbox_0"); err != nil {
		return err
	}
	polling, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.poll(polling, beside, func(int) bool { return true }) }()
	trips, err := beside.loaded(ctx, w, p.load, lasts, nil)
	s.last = beside.last
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	*to = append(*to, waitsOf(trips))
	return nil
}

// poll relays until goOn says no, which is told the size of each batch, or ctx ends.
func (p poller) poll(ctx context.Context, s *stream, goOn func(n int) bool) error {
	conn, ch, err := confirming(s.vhost.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		n, err := p.once(context.WithoutCancel(ctx), s.db, ch) // a batch that is begun is ended
		if err != nil || !goOn(n) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.pause):
		}
	}
}

// once relays one batch.
func (p poller) once(ctx context.Context, db *sql.DB, ch *amqp.Channel) (n int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT id, type, payload FROM outbox_0 WHERE status = 'PENDING' ORDER BY id LIMIT %d%s", p.batch, p.locks))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []string
	var confirms []*amqp.DeferredConfirmation
	for rows.Next() {
		var id, kind string
		var body []byte
		if err := rows.Scan(&id, &kind, &body); err != nil {
			return 0, err
		}
		c, err := ch.PublishWithDeferredConfirm("", queueName, true, false, amqp.Publishing{MessageId: id, Type: kind,
			ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			return 0, err
		}
		ids, confirms = append(ids, id), append(confirms, c)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, c := range confirms {
		if acked, err := c.WaitContext(ctx); err != nil || !acked {
			return 0, fmt.Errorf("a message was not confirmed: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE outbox_0 SET status = 'SENT' WHERE id IN ("+strings.Join(ids, ",")+")"); err != nil {
		return 0, err
	}
	return len(ids), tx.Commit()
}
