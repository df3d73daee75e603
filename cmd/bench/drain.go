package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/towpath/towpath/deploy/lab"
)

// drain measures how fast a backlog in the binlog becomes confirmed messages.
type drain struct {
	rows, rounds int
	size         int
	after        string
	ordering     string
	queue        string
	keys         int

	dir    string
	binary string
	mysql  *lab.MySQLServer
	rabbit *lab.RabbitServer
	vhost  lab.Vhost
	admin  *amqp.Channel
	bodies []string
	config string
	http   string
	start  string // the position before the backlog
}

func newDrain(show func(table) error) *cobra.Command {
	d := &drain{}
	c := &cobra.Command{
		Use:   "drain",
		Short: "A backlog in the binlog, against a plain publisher of the AMQP library",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := d.run(c.Context())
			if err != nil {
				return err
			}
			return show(t)
		},
	}
	f := c.Flags()
	f.IntVar(&d.rows, "rows", 200_000, "rows of the backlog")
	f.IntVar(&d.rounds, "rounds", 5, "pairs to measure")
	f.IntVar(&d.size, "size", 300, "bytes of a body")
	f.StringVar(&d.after, "after", "keep", "after_publish: keep, mark or delete")
	f.StringVar(&d.ordering, "ordering", "strict", "ordering: strict, fast or none")
	f.StringVar(&d.queue, "queue", "quorum", "queue type: quorum or classic")
	f.IntVar(&d.keys, "keys", 10_000, "distinct ordering keys")
	return c
}

func (d *drain) run(ctx context.Context) (table, error) {
	defer d.tearDown()
	if err := d.setUp(ctx); err != nil {
		return table{}, err
	}
	var ours, plain []sample
	for round := range d.rounds {
		measure := []func() error{
			func() error { return d.add(ctx, &ours, d.towpath) },
			func() error { return d.add(ctx, &plain, d.plain) },
		}
		if round%2 == 1 {
			slices.Reverse(measure)
		}
		for _, m := range measure {
			if err := m(); err != nil {
				return table{}, err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d: towpath %.0f/s, plain %.0f/s\n", round+1, d.rounds, ours[round].rate, plain[round].rate)
	}
	return table{
		Title: fmt.Sprintf("drain of %d rows, %d-byte bodies, %s, %s, %d keys, %s queue", d.rows, d.size, d.after, d.ordering, d.keys, d.queue),
		Note: "other: one amqp091-go connection, deferred confirms, 256 in flight, the same bodies from memory.\n" +
			"towpath: a whole process, from its start to the last confirm; MySQL serves the binlog meanwhile.",
		Rows: []line{
			pair("messages a second", "/s", ours, plain, func(s sample) float64 { return s.rate }, ">= 0.8"),
			pair("CPU a message", "us", ours, plain, func(s sample) float64 { return s.cpu }, ""),
			pair("peak memory", "MiB", ours, plain, func(s sample) float64 { return s.memory }, "towpath < 64 MiB"),
		},
	}, nil
}

// sample is one measurement.
type sample struct {
	rate   float64 // messages a second
	cpu    float64 // microseconds a message
	memory float64 // MiB
}

func pair(what, unit string, ours, other []sample, of func(sample) float64, goal string) line {
	var a, b, ratios []float64
	for i := range ours {
		a, b = append(a, of(ours[i])), append(b, of(other[i]))
		ratios = append(ratios, of(ours[i])/of(other[i]))
	}
	return line{What: what, Unit: unit, Ours: median(a), Other: median(b), Ratio: median(ratios), Goal: goal}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// add measures once, on an empty queue, and checks that every message is there.
func (d *drain) add(ctx context.Context, to *[]sample, measure func(context.Context) (sample, error)) error {
	if _, err := d.admin.QueuePurge("bench", false); err != nil {
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
		q, err := d.admin.QueueDeclarePassive("bench", true, false, false, false, nil)
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

// towpath runs the relay over the backlog, from its start to the last confirm.
func (d *drain) towpath(ctx context.Context) (sample, error) {
	db := d.mysql.RootDB()
	if _, err := db.ExecContext(ctx, "UPDATE towpath.checkpoint SET position = ?", d.start); err != nil {
		return sample{}, err
	}
	if d.after == "mark" {
		if _, err := db.ExecContext(ctx, "UPDATE bench.outbox SET status = 'PENDING'"); err != nil {
			return sample{}, err
		}
	}
	began := time.Now()
	r, err := startRelay(d.binary, d.config, d.http)
	if err != nil {
		return sample{}, err
	}
	for r.metric(`towpath_rows_total{end="confirmed"`) < float64(d.rows) {
		if time.Since(began) > 5*time.Minute || ctx.Err() != nil {
			_ = r.cmd.Process.Kill()
			return sample{}, fmt.Errorf("the backlog was not drained, see %s.log", d.config)
		}
		time.Sleep(100 * time.Millisecond) // each look costs the relay, too
	}
	took := time.Since(began)
	c, err := r.stop()
	return sample{
		rate:   float64(d.rows) / took.Seconds(),
		cpu:    float64(c.cpu.Microseconds()) / float64(d.rows),
		memory: c.memory,
	}, err
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
		dc, err := ch.PublishWithDeferredConfirm("", "bench", true, false, amqp.Publishing{
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
	took := time.Since(began)
	return sample{
		rate:   float64(d.rows) / took.Seconds(),
		cpu:    float64((ownCPU() - cpu).Microseconds()) / float64(d.rows),
		memory: peakMemory(os.Getpid()),
	}, ctx.Err()
}

func ownCPU() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (d *drain) setUp(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "towpath-bench-"); err != nil {
		return err
	}
	if d.binary, err = build(ctx, d.dir, "./cmd/towpath"); err != nil {
		return err
	}
	if d.mysql, err = lab.StartMySQL(ctx, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"}); err != nil {
		return err
	}
	if d.rabbit, err = lab.StartRabbit(ctx, lab.RabbitOptions{Kind: lab.Rabbit43}); err != nil {
		return err
	}
	if d.vhost, err = d.rabbit.NewVhost(ctx); err != nil {
		return err
	}
	c, err := amqp.Dial(d.vhost.URL())
	if err != nil {
		return err
	}
	if d.admin, err = c.Channel(); err != nil {
		return err
	}
	if _, err := d.admin.QueueDeclare("bench", true, false, false, false, amqp.Table{"x-queue-type": d.queue}); err != nil {
		return err
	}
	return d.fill(ctx)
}

func (d *drain) tearDown() {
	if d.mysql != nil {
		_ = d.mysql.Close()
	}
	if d.rabbit != nil {
		_ = d.rabbit.Close()
	}
	_ = os.RemoveAll(d.dir)
}

// fill lets a first relay take its position, then commits the backlog.
func (d *drain) fill(ctx context.Context) (err error) {
	db := d.mysql.RootDB()
	for _, statement := range []string{
		"CREATE DATABASE bench",
		`CREATE TABLE bench.outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate VARCHAR(40) NOT NULL, type VARCHAR(40) NOT NULL,
			payload JSON NOT NULL, status VARCHAR(12) NOT NULL DEFAULT 'PENDING')`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if d.http, err = freePort(); err != nil {
		return err
	}
	d.config = filepath.Join(d.dir, "bench.yaml")
	if err := os.WriteFile(d.config, []byte(d.yaml()), 0o600); err != nil {
		return err
	}
	if err := command(ctx, d.binary, "init", "-c", d.config); err != nil {
		return err
	}
	r, err := startRelay(d.binary, d.config, d.http)
	if err != nil {
		return err
	}
	for r.metric("towpath_lane_up{") < 2 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := r.stop(); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT position FROM towpath.checkpoint").Scan(&d.start); err != nil {
		return err
	}
	for i := range 1000 {
		d.bodies = append(d.bodies, fmt.Sprintf(`{"n": %d, "text": "%s"}`, i, strings.Repeat("x", max(0, d.size-24))))
	}
	fmt.Fprintf(os.Stderr, "committing %d rows\n", d.rows)
	return d.insert(ctx, db)
}

func (d *drain) insert(ctx context.Context, db *sql.DB) error {
	for from := 0; from < d.rows; from += 50 { // transactions of 50 rows
		n := min(50, d.rows-from)
		args := make([]any, 0, 3*n)
		for i := from; i < from+n; i++ {
			args = append(args, fmt.Sprintf("key-%d", i%d.keys), "created", d.bodies[i%len(d.bodies)])
		}
		values := strings.TrimSuffix(strings.Repeat("(?,?,?),", n), ",")
		if _, err := db.ExecContext(ctx, "INSERT INTO bench.outbox (aggregate, type, payload) VALUES "+values, args...); err != nil {
			return err
		}
	}
	return nil
}

func (d *drain) yaml() string {
	status, start := "", ""
	switch d.after {
	case "mark":
		status = "\n    status: {column: status, pending: PENDING, sent: SENT}"
	case "keep":
		start = "\n    start: now"
	}
	return fmt.Sprintf(`name: bench
source: {address: "%s", user: root}
broker: {urls: ["%s"]}
http: {listen: "%s"}
tables:
  - table: bench.outbox
    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: "", routing_key: bench, type: "{type}", content_type: application/json}
    ordering: %s
    after_publish: %s%s%s
`, d.mysql.Addr(), d.vhost.URL(), d.http, d.ordering, d.after, start, status)
}
