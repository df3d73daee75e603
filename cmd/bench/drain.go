package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
)

// drain measures how fast a backlog in the binlog becomes confirmed messages.
type drain struct {
	stage
	rows, rounds int
	size         int
	after        string
	ordering     string
	queue        string
	keys         int
	tables       int
	against      string

	ours, keep *stream
	bodies     []string
}

// stream is a relay of a name of its own and where it begins with the backlog.
type stream struct {
	*member
	name, after string
	start       string // the position before the backlog
}

func newDrain(show func(table) error) *cobra.Command {
	d := &drain{}
	c := &cobra.Command{
		Use:   "drain",
		Short: "A backlog in the binlog, against a plain publisher or a polling relay",
		Args:  cobra.NoArgs,
		RunE:  measure(d, show),
	}
	f := c.Flags()
	f.IntVar(&d.rows, "rows", 200_000, "rows of the backlog")
	f.IntVar(&d.rounds, "rounds", 5, "pairs to measure")
	f.IntVar(&d.size, "size", 300, "bytes of a body")
	f.StringVar(&d.after, "after", "keep", "after_publish: keep, mark or delete")
	f.StringVar(&d.ordering, "ordering", "strict", "ordering: strict, fast or none")
	f.StringVar(&d.queue, "queue", "quorum", "queue type: quorum or classic")
	f.IntVar(&d.keys, "keys", 10_000, "distinct ordering keys")
	f.IntVar(&d.tables, "tables", 1, "outbox tables that the rows are spread over")
	f.StringVar(&d.against, "against", "plain", "plain: a publisher of the AMQP library; polling: a tuned polling relay; keep: this relay with after_publish keep")
	return c
}

// others is what the relay can be held against, and what is said of it.
var others = map[string]string{
	"plain":   "one amqp091-go connection, deferred confirms, 256 in flight, the same bodies from memory.",
	"polling": "a polling relay: 500 rows by SKIP LOCKED, published with confirms, marked, and the next 500 without a pause.",
	"keep":    "the same relay with after_publish keep.",
}

func (d *drain) run(ctx context.Context) (table, error) {
	if others[d.against] == "" {
		return table{}, fmt.Errorf("--against %q: it is plain, polling or keep", d.against)
	}
	defer d.tearDown()
	if err := d.setUp(ctx); err != nil {
		return table{}, err
	}
	against := map[string]func(context.Context) (sample, error){"plain": d.plain, "polling": d.polling,
		"keep": func(ctx context.Context) (sample, error) { return d.towpath(ctx, d.keep) }}[d.against]
	var ours, other []sample
	for round := range d.rounds {
		if d.after == "delete" && round > 0 { // what was sent is gone
			if err := d.insert(ctx); err != nil {
				return table{}, err
			}
		}
		measure := []func() error{
			func() error {
				return d.add(ctx, &ours, func(ctx context.Context) (sample, error) { return d.towpath(ctx, d.ours) })
			},
			func() error { return d.add(ctx, &other, against) },
		}
		if round%2 == 1 {
			slices.Reverse(measure)
		}
		for _, m := range measure {
			if err := m(); err != nil {
				return table{}, err
			}
		}
		progress("round %d of %d: towpath %.0f/s, %s %.0f/s", round+1, d.rounds, ours[round].rate, d.against, other[round].rate)
	}
	goal := map[string]string{"plain": ">= 0.8", "keep": ">= 0.6"}[d.against]
	t := table{
		Title: fmt.Sprintf("drain of %d rows, %d-byte bodies, %s, %s, %d keys, %s queue", d.rows, d.size, d.after, d.ordering, d.keys, d.queue),
		Note:  "other: " + others[d.against] + "\ntowpath: a whole process, from its start to the last confirm; MySQL serves the binlog meanwhile.",
		Rows: []line{
			pair("messages a second", "/s", ours, other, func(s sample) float64 { return s.rate }, goal),
			pair("CPU a message", "us", ours, other, func(s sample) float64 { return s.cpu }, ""),
			pair("peak memory", "MiB", ours, other, func(s sample) float64 { return s.memory }, "towpath < 64 MiB"),
		},
	}
	return t, nil
}

// add measures once, on an empty queue, and checks that every message is there.
func (d *drain) add(ctx context.Context, to *[]sample, measure func(context.Context) (sample, error)) error {
	if _, err := d.admin.QueuePurge(theQueue, false); err != nil {
		return err
	}
	s, err := measure(ctx)
	if err != nil {
		return err
	}
	*to = append(*to, s)
	return d.expect(ctx)
}

// expect waits until the queue shows exactly the backlog: counts of quorum
// queues lag behind.
func (d *drain) expect(ctx context.Context) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		q, err := d.admin.QueueDeclarePassive(theQueue, true, false, false, false, nil)
		if err != nil {
			return err
		}
		if q.Messages == d.rows {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the queue has %d messages, want %d", q.Messages, d.rows)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// towpath runs a relay over the backlog, from its start to the last confirm.
func (d *drain) towpath(ctx context.Context, r *stream) (sample, error) {
	if err := d.rewind(ctx, r); err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := r.member.start(); err != nil {
		return sample{}, err
	}
	if err := r.await(ctx, "has confirmed all", func(m program.Metrics) bool {
		return m.Sum(`towpath_rows_total{end="confirmed"`) >= float64(d.rows)
	}); err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	c, err := r.stop()
	return sample{
		rate:   float64(d.rows) / took.Seconds(),
		cpu:    float64(c.cpu.Microseconds()) / float64(d.rows),
		memory: c.memory,
	}, err
}

// rewind makes all rows unsent again, by the position and their status. With
// delete the backlog is another one in each round, and all streams go on.
func (d *drain) rewind(ctx context.Context, r *stream) error {
	if d.after == "delete" {
		return nil
	}
	if r.after == "mark" {
		for i := range d.tables {
			if err := d.exec(ctx, "UPDATE bench."+d.table(i)+" SET status = 'PENDING'"); err != nil {
				return err
			}
		}
	}
	_, err := d.db.ExecContext(ctx, "UPDATE towpath.checkpoint SET position = ? WHERE stream = ?", r.start, r.name)
	return err
}

// plain publishes the same bodies as one writes it with the library alone.
func (d *drain) plain(ctx context.Context) (sample, error) {
	c, err := amqp.Dial(d.vhost.URL())
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return sample{}, err
	}
	if err := ch.Confirm(false); err != nil {
		return sample{}, err
	}
	confirms := make(chan *amqp.DeferredConfirmation, 256-1)
	failed := make(chan int)
	go func() {
		n := 0
		for c := range confirms {
			if !c.Wait() {
				n++
			}
		}
		failed <- n
	}()
	began, cpu := time.Now(), ownCPU()
	for i := range d.rows {
		dc, err := ch.PublishWithDeferredConfirm("", theQueue, true, false, amqp.Publishing{
			MessageId: fmt.Sprint(i + 1), Type: "created", ContentType: "application/json",
			DeliveryMode: amqp.Persistent, Body: []byte(d.bodies[i%len(d.bodies)]),
		})
		if err != nil {
			return sample{}, err
		}
		confirms <- dc
	}
	close(confirms)
	if n := <-failed; n > 0 {
		return sample{}, fmt.Errorf("plain publisher: %d messages were not confirmed", n)
	}
	return d.own(began, cpu), ctx.Err()
}

// own is what this process has done and used.
func (d *drain) own(began time.Time, cpu time.Duration) sample {
	return sample{
		rate:   float64(d.rows) / time.Since(began).Seconds(),
		cpu:    float64((ownCPU() - cpu).Microseconds()) / float64(d.rows),
		memory: peakMemory(os.Getpid()),
	}
}

// polling marks every row unsent and lets a polling relay send them.
func (d *drain) polling(ctx context.Context) (sample, error) {
	if err := d.exec(ctx, "UPDATE bench.outbox SET status = 'PENDING'"); err != nil {
		return sample{}, err
	}
	began, cpu := time.Now(), ownCPU()
	p := poller{stage: &d.stage, table: "outbox", batch: 500}
	for sent := 0; sent < d.rows; {
		n, err := p.round(ctx)
		if err != nil {
			return sample{}, err
		}
		sent += n
	}
	return d.own(began, cpu), nil
}

func (d *drain) setUp(ctx context.Context) (err error) {
	if err := d.stage.setUp(ctx, d.queue); err != nil {
		return err
	}
	for i := range 1000 {
		d.bodies = append(d.bodies, fmt.Sprintf(`{"n": %d, "text": "%s"}`, i, strings.Repeat("x", max(0, d.size-24))))
	}
	return d.fill(ctx)
}

// fill lets a first relay take its position, then commits the backlog.
func (d *drain) fill(ctx context.Context) (err error) {
	for i := range d.tables {
		if err := d.exec(ctx, createOutbox(d.table(i))); err != nil {
			return err
		}
	}
	if d.ours, err = d.begin(ctx, "bench", d.after); err != nil {
		return err
	}
	if d.against == "keep" {
		if d.keep, err = d.begin(ctx, "keep", "keep"); err != nil {
			return err
		}
	}
	progress("committing %d rows", d.rows)
	return d.insert(ctx)
}

// begin lets a relay take its position.
func (d *drain) begin(ctx context.Context, name, after string) (r *stream, err error) {
	r = &stream{name: name, after: after}
	if r.member, err = d.configure(setting{stream: name, tables: "outbox*", ordering: d.ordering, after: after}); err != nil {
		return nil, err
	}
	if err := d.initialize(ctx, r.member); err != nil {
		return nil, err
	}
	return r, d.db.QueryRowContext(ctx, "SELECT position FROM towpath.checkpoint WHERE stream = ?", name).Scan(&r.start)
}

func (d *drain) table(i int) string {
	if i == 0 {
		return "outbox"
	}
	return fmt.Sprintf("outbox_%d", i)
}

// insert commits the backlog in transactions of 50 rows, fewer of large ones.
func (d *drain) insert(ctx context.Context) error {
	each := max(1, min(50, 1<<20/d.size))
	for from := 0; from < d.rows; from += each {
		n := min(each, d.rows-from)
		args := make([]any, 0, 3*n)
		for i := from; i < from+n; i++ {
			args = append(args, fmt.Sprintf("key-%d", i%d.keys), "created", d.bodies[i%len(d.bodies)])
		}
		values := strings.TrimSuffix(strings.Repeat("(?,?,?),", n), ",")
		if _, err := d.db.ExecContext(ctx, "INSERT INTO bench."+d.table(from/each%d.tables)+" (aggregate, type, payload) VALUES "+values, args...); err != nil {
			return err
		}
	}
	return nil
}
