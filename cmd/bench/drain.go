package main

import (
	"context"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/cobra"

	"github.com/towpath/towpath/cmd/internal/program"
)

// drain measures how fast a backlog in the binlog becomes confirmed messages.
type drain struct {
	shape
	rows, rounds int
	against      string
}

// others is what a drain can be held against, and what is said of it.
var others = map[string]string{
	"plain": "one amqp091-go connection, deferred confirms, 256 in flight, the same bodies from memory; its memory is this program's.",
	"keep":  "the same relay with after_publish keep.",
}

func newDrain() (*cobra.Command, measure) {
	d := &drain{shape: usual}
	c := &cobra.Command{Use: "drain", Short: "A backlog in the binlog, against a plain publisher of the AMQP library, or against keep"}
	f := c.Flags()
	f.IntVar(&d.rows, "rows", 200_000, "rows of the backlog")
	f.IntVar(&d.rounds, "rounds", 5, "pairs to measure")
	f.IntVar(&d.size, "size", d.size, "bytes of a body")
	f.StringVar(&d.after, "after", d.after, "after_publish: keep, mark or delete")
	f.StringVar(&d.ordering, "ordering", d.ordering, "ordering: strict, fast or none")
	f.StringVar(&d.queue, "queue", d.queue, "queue type: quorum or classic")
	f.IntVar(&d.keys, "keys", d.keys, "distinct ordering keys")
	f.IntVar(&d.tables, "tables", d.tables, "outbox tables that the rows are spread over")
	f.StringVar(&d.against, "against", "plain", "plain: a publisher of the AMQP library; keep: this relay with after_publish keep")
	return c, d
}

func (d *drain) run(ctx context.Context, b *bed) (table, error) {
	note := others[d.against]
	if note == "" {
		return table{}, fmt.Errorf("--against %q: it is plain or keep", d.against)
	}
	s, err := b.lay(ctx, d.shape)
	defer s.remove()
	if err != nil {
		return table{}, err
	}
	other := s.counted(s.plain)
	if d.against == "keep" {
		of := d.shape
		of.after = "keep"
		keep, err := b.lay(ctx, of)
		defer keep.remove()
		if err != nil {
			return table{}, err
		}
		other = keep.counted(keep.drain)
	}
	var ours, theirs []sample
	for round := range d.rounds {
		if err := compete(ctx, round, d.rows, s.counted(s.drain), other, &ours, &theirs); err != nil {
			return table{}, err
		}
		progress(b, "drain, round %d of %d: towpath %.0f/s, %s %.0f/s", round+1, d.rounds, ours[round].whole, d.against, theirs[round].whole)
	}
	return table{
		Title: fmt.Sprintf("drain of %d rows, %s", d.rows, d.shape),
		Note: "other: " + note + "\n" +
			"towpath: a whole process, from its start to the last confirm, while the database serves the binlog; \"streaming\" is\n" +
			"without its start, from when its first confirms were seen.",
		Rows: []line{
			pair("messages a second", "/s", ours, theirs, func(s sample) float64 { return s.whole }, ">= 1"),
			pair("messages a second, streaming", "/s", ours, theirs, func(s sample) float64 { return s.rate }, ">= 1"),
			pair("CPU a message", "us", ours, theirs, func(s sample) float64 { return s.wholeCPU }, "<= 1"),
			pair("CPU a message, streaming", "us", ours, theirs, func(s sample) float64 { return s.cpu }, "<= 1"),
			pair("CPU of the database a message", "us", ours, theirs, func(s sample) float64 { return s.database }, ""),
			pair("CPU of the broker a message", "us", ours, theirs, func(s sample) float64 { return s.broker }, ""),
			pair("peak memory", "MiB", ours, theirs, func(s sample) float64 { return s.memory }, "towpath < 64 MiB"),
		},
	}, nil
}

// sample is one drain: messages a second, microseconds of CPU a message, MiB.
type sample struct {
	whole, rate      float64 // from the start of the process; from the first confirms
	wholeCPU, cpu    float64 // likewise
	database, broker float64 // CPU, over the whole
	memory           float64 // peak of the relay
	mysqlMemory      float64 // peaks of the servers, so far
	brokerMemory     float64
}

// contender sends n messages and measures that.
type contender func(ctx context.Context, n int) (sample, error)

// counted is a contender whose messages are counted, all and no more.
func (s *stream) counted(measure contender) contender {
	return func(ctx context.Context, n int) (sample, error) {
		one, err := measure(ctx, n)
		if err != nil {
			return one, err
		}
		return one, s.expect(ctx, n)
	}
}

// compete lets two send as many messages, one after the other.
func compete(ctx context.Context, round, n int, one, other contender, ours, theirs *[]sample) error {
	return inTurns(round, func() error { return add(ctx, one, n, ours) }, func() error { return add(ctx, other, n, theirs) })
}

func add(ctx context.Context, c contender, n int, to *[]sample) error {
	one, err := c(ctx, n)
	*to = append(*to, one)
	return err
}

// meter notes what the servers have used when a measurement begins.
type meter struct {
	began         time.Time
	mysql, rabbit usage
}

func (b *bed) meter() meter { return meter{time.Now(), used(b.mysql.PID()), used(b.rabbit.PID())} }

// read fills in what n messages took on the whole.
func (b *bed) read(m meter, n int, cpu time.Duration, s *sample) {
	each := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(n) }
	mysql, rabbit := used(b.mysql.PID()), used(b.rabbit.PID())
	s.whole, s.wholeCPU = float64(n)/time.Since(m.began).Seconds(), each(cpu)
	s.database, s.broker = each(mysql.cpu-m.mysql.cpu), each(rabbit.cpu-m.rabbit.cpu)
	s.mysqlMemory, s.brokerMemory = mysql.peak, rabbit.peak
}

// drain commits n rows and runs the relay until the last of them is confirmed.
func (s *stream) drain(ctx context.Context, n int) (one sample, err error) {
	if err := s.commit(ctx, n); err != nil {
		return one, err
	}
	m := s.meter()
	r, err := s.launch(s.config, s.http)
	if err != nil {
		return one, err
	}
	defer r.Kill()
	var first struct {
		confirmed float64
		at        time.Time
		cpu       time.Duration
	}
	var last usage
	err = await(ctx, "the backlog is drained", 20*time.Millisecond, func() (bool, error) { // each look costs the relay, too
		if err := r.alive(); err != nil {
			return false, fmt.Errorf("%w, see %s.log", err, s.config)
		}
		metrics, err := program.ReadMetrics(ctx, r.http)
		if err != nil {
			return false, nil
		}
		confirmed := metrics.Sum(`towpath_rows_total{end="confirmed"`)
		if confirmed > 0 && first.at.IsZero() {
			first.confirmed, first.at, first.cpu = confirmed, time.Now(), used(r.PID()).cpu
		}
		if confirmed < float64(n) {
			return false, nil
		}
		last = used(r.PID())
		s.read(m, n, last.cpu, &one)
		return true, nil
	})
	if err != nil {
		return one, err
	}
	one.memory, one.rate, one.cpu = last.peak, one.whole, one.wholeCPU
	if rest := float64(n) - first.confirmed; rest > float64(n)/2 {
		one.rate = rest / time.Since(first.at).Seconds()
		one.cpu = float64((last.cpu - first.cpu).Microseconds()) / rest
	}
	return one, r.stop()
}

// plain publishes n bodies as one does it with the library alone.
func (s *stream) plain(ctx context.Context, n int) (one sample, err error) {
	conn, ch, err := confirming(s.vhost.URL())
	if err != nil {
		return one, err
	}
	defer conn.Close()
	var bodies [][]byte
	for id := range min(int64(n), 1000) {
		bodies = append(bodies, []byte(s.body(id)))
	}
	confirms := make(chan *amqp.DeferredConfirmation, 256-1)
	failed := make(chan int, 1)
	go func() {
		n := 0
		for c := range confirms {
			if !c.Wait() {
				n++
			}
		}
		failed <- n
	}()
	m, before := s.meter(), used(os.Getpid()).cpu
	for i := range n {
		var dc *amqp.DeferredConfirmation
		if dc, err = ch.PublishWithDeferredConfirm("", queueName, true, false, amqp.Publishing{MessageId: fmt.Sprint(i + 1), Type: "created",
			ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: bodies[i%len(bodies)]}); err != nil {
			break
		}
		confirms <- dc
	}
	close(confirms)
	if refused := <-failed; err == nil && refused > 0 {
		err = fmt.Errorf("plain publisher: %d messages were not confirmed", refused)
	}
	own := used(os.Getpid())
	s.read(m, n, own.cpu-before, &one)
	one.rate, one.cpu, one.memory = one.whole, one.wholeCPU, own.peak
	return one, err
}
