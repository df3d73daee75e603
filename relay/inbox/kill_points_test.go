package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

// points are the moments in a delivery's life at which a consumer is killed,
// and the message that it is killed with.
var points = []struct {
	point, id string
	again     int // deliveries that the next consumer recognizes, at least
	isolated  int // copies of the poison message in isolation
}{
	{"received", "victim", 0, 1},     // nothing was begun
	{"recorded", "victim", 0, 1},     // the record is written, the handler begins
	{"changed", "victim", 0, 1},      // the handler has made its change
	{"committing", "victim", 1, 1},   // the server has committed, and its answer did not arrive
	{"committed", "victim", 1, 1},    // it did, and nothing was acknowledged
	{"acknowledged", "victim", 0, 1}, // the acknowledgement is written to the connection
	{"copying", "poison", 0, 1},      // for isolation
	{"copied", "poison", 0, 2},       // the copy is confirmed, the original not acknowledged
	{"copying", "later", 0, 1},       // for a retry
	{"copied", "later", 1, 1},
}

func TestAConsumerThatIsKilledAtAnyPointLeavesExactEffects(t *testing.T) {
	for _, p := range points {
		t.Run(p.point+" "+p.id, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				in := r.new(inbox.Config{Workers: 1, Delays: pointDelays, Handler: pointHandler})
				r.declareTopology(in)
				r.publish(message("a"), message("later"), message("victim"), message("poison"), message("b"))
				batch := "1"
				if strings.Contains(t.Name(), string(lab.MariaDB1011)) && p.point != "committing" { // with others behind it there is no commit yet
					batch = "3"
				}
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				c := exec.CommandContext(ctx, os.Args[0])
				c.Env = append(os.Environ(), asConsumer+"=point", "POINT="+p.point+" "+p.id, "BATCH="+batch,
					"MYSQL="+r.mysql.Addr(), "SCHEMA="+r.schema, "URL="+r.vhost.URL())
				c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if said, err := c.CombinedOutput(); err == nil || !strings.HasSuffix(string(said), atTheKillPoint) {
					t.Fatalf("it was not killed at the point: %v\n%s", err, said)
				}
				r.until("the broker has seen the death", func() bool {
					n, err := r.rabbit.Connections(ctx, r.vhost)
					return err == nil && n == 1
				})

				r.run(in)
				want := []string{"a", "b", "later", "victim"}
				r.until("every message has its effect", func() bool {
					return len(slices.Compact(r.effects())) >= len(want) && r.waiting(in.IsolationQueue()) >= p.isolated && r.waiting(in.RetryQueue(pointDelays[0])) == 0
				})
				r.publish(message("last")) // behind all that came again
				r.until("the queue is empty", func() bool { return slices.Contains(r.effects(), "last") })
				r.expectEffects(append(want, "last")...)
				if n := r.metric("processed_total", "duplicate"); int(n) < p.again {
					t.Errorf("%v deliveries were recognized, want %d at least", n, p.again)
				}
				for range p.isolated {
					if d := r.next(in.IsolationQueue()); d.MessageId != "poison" || string(d.Body) != "body of poison" {
						t.Errorf("isolated %s", d.MessageId)
					}
				}
				if n := r.waiting(in.IsolationQueue()); n > 0 {
					t.Errorf("%d more are isolated", n)
				}
			})
		})
	}
}

// waiting counts the messages of a queue that wait for a consumer.
func (r *rig) waiting(queue string) int {
	r.t.Helper()
	q, err := r.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return q.Messages
}

var pointDelays = []time.Duration{100 * time.Millisecond}

// pointHandler knows a message that fails for ever and one that fails once.
func pointHandler(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
	switch {
	case m.ID == "poison":
		return inbox.Permanent(errors.New("bad"))
	case m.ID == "later" && m.Headers["x-towpath-failures"] == nil:
		return errors.New("not now")
	}
	return effect(ctx, tx, m)
}

// pointed is a consumer process that kills itself at one point.
type pointed struct {
	at      string // point and message id
	commits *lab.Proxy
	direct  *sql.DB // past the proxy
	channel *amqp.Channel
}

// consumeToPoint is that process.
func consumeToPoint() {
	var p pointed
	var err error
	p.at = os.Getenv("POINT")
	p.commits, err = lab.StartProxy(os.Getenv("MYSQL"))
	must(err)
	open := func(address string) *sql.DB {
		db, err := sql.Open("mysql", "root@tcp("+address+")/"+os.Getenv("SCHEMA"))
		must(err)
		db.SetMaxOpenConns(1)
		return db
	}
	p.direct = open(os.Getenv("MYSQL"))
	in, err := inbox.New(open(p.commits.Addr()), inbox.Config{Consumer: "shop", Queue: queue, Workers: 1, Batch: int(os.Getenv("BATCH")[0] - '0'),
		Delays: pointDelays, Handler: p.handle})
	must(err)
	conn, err := amqp.Dial(os.Getenv("URL"))
	must(err)
	p.channel, err = conn.Channel()
	must(err)
	must(p.channel.Confirm(false))
	must(p.channel.Qos(in.Prefetch(), 0, false))
	messages, err := p.channel.Consume(queue, "", false, false, false, false, nil)
	must(err)
	deliveries := make(chan inbox.Delivery)
	go func() {
		for m := range messages {
			p.is("received", m.MessageId)
			d := consumer.Delivery(m)
			d.Acknowledger = pointedAck{&p, m}
			deliveries <- d
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), within) // an end even if the point never comes
	defer cancel()
	in.Run(ctx, deliveries, &p)
}

// is kills the process if this is its point.
func (p *pointed) is(point, id string) {
	if p.at == point+" "+id {
		kill()
	}
}

func (p *pointed) handle(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
	p.is("recorded", m.ID)
	if err := pointHandler(ctx, tx, m); err != nil {
		return err
	}
	p.is("changed", m.ID)
	if p.at == "committing "+m.ID {
		p.commits.Set(lab.Fault{HoldDown: true})
		go func() {
			for n := 0; n == 0; time.Sleep(time.Millisecond) {
				must(p.direct.QueryRow("SELECT COUNT(*) FROM effect WHERE message_id=?", m.ID).Scan(&n))
			}
			kill()
		}()
	}
	return nil
}

// Publish implements inbox.Publisher; there is one worker.
func (p *pointed) Publish(ctx context.Context, queue string, m inbox.Message, expiration time.Duration) error {
	p.is("copying", m.ID)
	if err := publishCopy(ctx, p.channel, queue, m, expiration); err != nil {
		return err
	}
	p.is("copied", m.ID)
	return nil
}

type pointedAck struct {
	p *pointed
	m amqp.Delivery
}

func (a pointedAck) Ack(tag uint64, multiple bool) error {
	a.p.is("committed", a.m.MessageId)
	err := a.m.Acknowledger.Ack(tag, multiple)
	a.p.is("acknowledged", a.m.MessageId)
	return err
}
