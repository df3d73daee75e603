package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

func TestMain(m *testing.M) {
	if os.Getenv(asConsumer) != "" {
		consumeUntilKilled()
		return
	}
	labtest.Main(m)
}

const within = 60 * time.Second // for everything that must happen

// pairs are the servers that tests run on: old with old, new with new.
var pairs = []struct {
	database, broker lab.Kind
}{{lab.MySQL97, lab.Rabbit43}, {lab.MariaDB1011, lab.Rabbit310}}

func onBoth(t *testing.T, test func(*testing.T, *rig)) {
	for _, p := range pairs {
		t.Run(fmt.Sprintf("%s and %s", p.database, p.broker), func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, labtest.MySQL(t, lab.MySQLOptions{Kind: p.database}), labtest.Rabbit(t, lab.RabbitOptions{Kind: p.broker})))
		})
	}
}

// rig is a database with an inbox and a business table, and a vhost with the
// consumer's queue.
type rig struct {
	t      *testing.T
	mysql  *lab.MySQLServer
	rabbit *lab.RabbitServer
	schema string
	direct *sql.DB // past a proxy
	db     *sql.DB // of the consumer
	broker string  // address for the consumer
	vhost  lab.Vhost
	conn   *amqp.Connection
	ch     *amqp.Channel
	reg    *prometheus.Registry

	declared bool // the consumer need not declare its queues
}

const queue = "orders"

func newRig(t *testing.T, mysql *lab.MySQLServer, mq *lab.RabbitServer) *rig {
	t.Helper()
	r := &rig{t: t, mysql: mysql, rabbit: mq, broker: mq.Addr(), reg: prometheus.NewRegistry()}
	r.schema, r.direct = labtest.DB(t, mysql)
	r.db = r.direct
	ddl, err := os.ReadFile("../../deploy/sql/inbox.sql")
	if err != nil {
		t.Fatal(err)
	}
	r.exec(string(ddl))
	// Nothing here keeps an effect from being applied twice, so that it would show.
	r.exec("CREATE TABLE effect (n BIGINT AUTO_INCREMENT PRIMARY KEY, message_id VARCHAR(64) NOT NULL, body VARCHAR(200) NOT NULL)")
	r.vhost = labtest.Vhost(t, mq)
	r.connect()
	r.declare()
	return r
}

func (r *rig) connect() {
	r.t.Helper()
	var err error
	if r.conn, err = amqp.Dial(r.vhost.URL()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.conn.Close() })
	r.channel()
}

func (r *rig) channel() {
	r.t.Helper()
	var err error
	if r.ch, err = r.conn.Channel(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.ch.Confirm(false); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) declare() {
	r.t.Helper()
	if _, err := r.ch.QueueDeclare(queue, true, false, false, false, mainQueue(r.t)); err != nil {
		r.t.Fatal(err)
	}
	if err := r.ch.ExchangeDeclare("shop", "topic", true, false, false, false, nil); err != nil {
		r.t.Fatal(err)
	}
	if err := r.ch.QueueBind(queue, "order.#", "shop", false, nil); err != nil {
		r.t.Fatal(err)
	}
}

// declareTopology does what a consumer that starts does.
func (r *rig) declareTopology(in *inbox.Inbox) {
	r.t.Helper()
	for _, q := range in.Topology() {
		if _, err := r.ch.QueueDeclare(q.Name, true, false, false, false, amqp.Table(q.Arguments)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// mainQueue are the arguments that the package recommends.
func mainQueue(t *testing.T) amqp.Table {
	t.Helper()
	in, err := inbox.New(&sql.DB{}, inbox.Config{Consumer: "shop", Queue: queue, Handler: effect})
	if err != nil {
		t.Fatal(err)
	}
	return in.MainQueue().Arguments
}

func (r *rig) exec(query string, args ...any) {
	r.t.Helper()
	if _, err := r.db.ExecContext(r.t.Context(), query, args...); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
}

// publish sends messages as the relay does and waits for their confirms.
func (r *rig) publish(messages ...amqp.Publishing) {
	r.t.Helper()
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	for i, m := range messages {
		m.DeliveryMode = amqp.Persistent
		var err error
		if confirms[i], err = r.ch.PublishWithDeferredConfirm("shop", "order.created", true, false, m); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, c := range confirms {
		if acked, err := c.WaitContext(r.t.Context()); err != nil || !acked {
			r.t.Fatalf("publish: acked %v, %v", acked, err)
		}
	}
}

func message(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, Type: "order.created", Body: []byte("body of " + id), Timestamp: time.Now(),
		Headers: amqp.Table{"tenant": "eu"}}
}

// effect is the plain handler.
func effect(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect (message_id, body) VALUES (?, ?)", m.ID, string(m.Body))
	return err
}

func (r *rig) new(c inbox.Config) *inbox.Inbox {
	r.t.Helper()
	c.Consumer, c.Queue, c.Metrics = "shop", queue, r.reg
	if c.Handler == nil {
		c.Handler = effect
	}
	in, err := inbox.New(r.db, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return in
}

// run starts the consumer and waits until it consumes; the returned function
// stops it and waits.
func (r *rig) run(in *inbox.Inbox) (stop func()) {
	r.t.Helper()
	consuming := make(chan struct{}, 100)
	in.Log = slog.New(says{"consuming", consuming})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := consumer.Run(ctx, consumer.Config{URLs: []string{r.vhost.URLAt(r.broker)}, Declared: r.declared}, in); err != nil {
			r.t.Errorf("the consumer ended: %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	r.t.Cleanup(stop)
	select {
	case <-consuming:
	case <-time.After(within):
		r.t.Fatal("the consumer does not consume")
	}
	return stop
}

// says is a log that tells when a text was logged.
type says struct {
	text string
	told chan struct{}
}

func (s says) Enabled(context.Context, slog.Level) bool { return true }
func (s says) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s says) WithGroup(string) slog.Handler            { return s }
func (s says) Handle(_ context.Context, r slog.Record) error {
	if r.Message == s.text {
		s.told <- struct{}{}
	}
	return nil
}

// effects lists the messages whose change is committed, one entry for each time.
func (r *rig) effects() (ids []string) {
	r.t.Helper()
	rows, err := r.db.QueryContext(r.t.Context(), "SELECT message_id FROM effect")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// expectEffects compares the effects with the ids, each exactly once.
func (r *rig) expectEffects(ids ...string) {
	r.t.Helper()
	slices.Sort(ids)
	if got := r.effects(); !slices.Equal(got, ids) {
		r.t.Errorf("effects %v, want %v", got, ids)
	}
}

// until waits for a condition.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(within)
	for !condition() {
		if time.Now().After(deadline) {
			r.t.Fatalf("within %v it did not come true that %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// metric sums a metric's series whose labels contain text.
func (r *rig) metric(name, text string) (sum float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "towpath_inbox_"+name && strings.Contains(m.String(), text) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// reaches waits until a metric is n.
func (r *rig) reaches(name, label string, n float64) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s %s is %v", name, label, n), func() bool { return r.metric(name, label) == n })
}

// next takes one message from a queue.
func (r *rig) next(queue string) (d amqp.Delivery) {
	r.t.Helper()
	r.until("queue "+queue+" has a message", func() bool {
		var ok bool
		var err error
		if d, ok, err = r.ch.Get(queue, true); err != nil {
			r.t.Fatal(err)
		}
		return ok
	})
	return d
}

// left drains the consumer's queue, behind a message of its own.
func (r *rig) left() (ids []string) {
	r.t.Helper()
	r.publish(message("end"))
	for {
		d := r.next(queue)
		if d.MessageId == "end" {
			return ids
		}
		ids = append(ids, d.MessageId)
	}
}
