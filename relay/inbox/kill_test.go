package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/outbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

// asConsumer makes the test binary a consumer process: its value is "exact",
// for one that kills itself between a commit and its acknowledgement, or "run",
// for one that is killed from outside at any moment, or "point" (see points).
const asConsumer = "TOWPATH_TEST_AS_CONSUMER"

// atTheKillPoint is what a process says before it kills itself there.
const atTheKillPoint = "killed at the point\n"

// consumeUntilKilled is the consumer process.
func consumeUntilKilled() {
	if os.Getenv(asConsumer) == "point" {
		consumeToPoint()
		return
	}
	db, err := sql.Open("mysql", os.Getenv("DSN"))
	must(err)
	db.SetMaxOpenConns(4)
	in, err := inbox.New(db, inbox.Config{Consumer: "shop", Queue: queue, Handler: effectUnlessPoison, Workers: 4, Batch: 1 + rand.IntN(3)})
	must(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if os.Getenv(asConsumer) == "run" {
		must(consumer.Run(ctx, consumer.Config{URLs: []string{os.Getenv("URL")}}, in))
		return
	}
	conn, err := amqp.Dial(os.Getenv("URL"))
	must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(err)
	must(ch.Confirm(false))
	must(ch.Qos(in.Prefetch(), 0, false))
	messages, err := ch.Consume(queue, "", false, false, false, false, nil)
	must(err)
	deliveries := make(chan inbox.Delivery)
	go func() {
		defer close(deliveries)
		for m := range messages {
			d := consumer.Delivery(m)
			d.Acknowledger = deadly{d.Acknowledger}
			deliveries <- d
		}
	}()
	in.Run(ctx, deliveries, &copies{channel: ch})
}

// copies publishes copies one after the other.
type copies struct {
	sync.Mutex
	channel *amqp.Channel
}

func (c *copies) Publish(ctx context.Context, queue string, m inbox.Message, expiration time.Duration) error {
	c.Lock()
	defer c.Unlock()
	return publishCopy(ctx, c.channel, queue, m, expiration)
}

// publishCopy waits for the confirm.
func publishCopy(ctx context.Context, ch *amqp.Channel, queue string, m inbox.Message, expiration time.Duration) error {
	out := amqp.Publishing{MessageId: m.ID, Type: m.Type, Headers: m.Headers, Body: m.Body, DeliveryMode: amqp.Persistent}
	if expiration > 0 {
		out.Expiration = fmt.Sprint(expiration.Milliseconds())
	}
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, out)
	if err != nil {
		return err
	}
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		return fmt.Errorf("the broker did not take the copy: %w", err)
	}
	return nil
}

func effectUnlessPoison(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
	if strings.Contains(string(m.Body), "poison") {
		return inbox.Permanent(errors.New("bad"))
	}
	return effect(ctx, tx, m)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// deadly kills the process instead of acknowledging, once in a while.
type deadly struct{ inbox.Acknowledger }

func (a deadly) Ack(tag uint64, multiple bool) error {
	if rand.IntN(60) == 0 {
		kill()
	}
	return a.Acknowledger.Ack(tag, multiple)
}

// kill ends this process as kill -9 does.
func kill() {
	_, _ = os.Stderr.WriteString(atTheKillPoint)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// keepRunning starts a program again and again until ctx ends, then stops it in
// good order. Random kills it from outside after up to that long, 0 never.
func keepRunning(t *testing.T, ctx context.Context, random time.Duration, kills *atomic.Int64, program string, env []string, args ...string) {
	for ctx.Err() == nil {
		var log strings.Builder
		c := exec.Command(program, args...)
		c.Env, c.Stderr = append(os.Environ(), env...), &log
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Error(err)
			return
		}
		ended := make(chan struct{})
		var killing sync.WaitGroup
		killing.Go(func() {
			kill := make(<-chan time.Time)
			if random > 0 {
				kill = time.After(random/2 + rand.N(random/2))
			}
			select {
			case <-ended:
			case <-kill:
				_ = c.Process.Kill()
			case <-ctx.Done():
				_ = c.Process.Signal(syscall.SIGTERM)
			}
		})
		err := c.Wait()
		close(ended)
		killing.Wait()
		switch {
		case c.ProcessState.Sys().(syscall.WaitStatus).Signaled():
			if random > 0 || strings.HasSuffix(log.String(), atTheKillPoint) {
				kills.Add(1)
			}
		case ctx.Err() == nil:
			t.Errorf("%s %v ended by itself: %v\n%s", program, args, err, log.String())
			return
		}
	}
}

func TestEffectsAreExactThoughConsumersDieBetweenCommitAndAcknowledgementAndRelaysDieToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, labtest.MySQL(t, lab.MySQLOptions{Kind: lab.MySQL97}), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	ddl, err := os.ReadFile("../../deploy/sql/practice-b-orders.sql")
	if err != nil {
		t.Fatal(err)
	}
	r.exec(string(ddl))
	program, config, state := r.relay()
	in := r.new(inbox.Config{})
	r.declareTopology(in)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var exact, outside, relays atomic.Int64
	var all sync.WaitGroup
	env := []string{"DSN=" + r.mysql.DSN(r.schema, "interpolateParams=true"), "URL=" + r.vhost.URL()}
	for range 2 {
		all.Go(func() { keepRunning(t, ctx, 0, &exact, os.Args[0], append(env, asConsumer+"=exact")) })
	}
	all.Go(func() {
		keepRunning(t, ctx, 800*time.Millisecond, &outside, os.Args[0], append(env, asConsumer+"=run"))
	})
	all.Go(func() { keepRunning(t, ctx, 3*time.Second, &relays, program, nil, "run", "-c", config) })

	r.until("the relay has a position", func() bool {
		var n int
		return r.db.QueryRow("SELECT COUNT(*) FROM "+state+".checkpoint").Scan(&n) == nil && n > 0
	})
	effects := func() (n int) {
		if err := r.db.QueryRow("SELECT COUNT(DISTINCT message_id) FROM effect").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// The shop trades until each kind of death has happened often enough.
	var committed, poison []string
	for exact.Load() < 5 || outside.Load() < 3 || relays.Load() < 2 {
		committed = append(committed, r.trade(20, `{"n": 1}`)...)
		poison = append(poison, r.trade(1, `{"poison": 1}`)...)
		r.until("the consumers keep up", func() bool { return effects() > len(committed)-200 || t.Failed() })
		if t.Failed() {
			break
		}
	}
	r.until("every committed message has its effect", func() bool { return effects() >= len(committed) || t.Failed() })
	// Each poison message is isolated, more than once if its consumer died with it.
	isolated := map[string]bool{}
	for len(isolated) < len(poison) {
		isolated[r.next(in.IsolationQueue()).MessageId] = true
	}
	cancel()
	all.Wait()
	r.expectEffects(committed...)
	if got := slices.Sorted(maps.Keys(isolated)); !slices.Equal(got, slices.Sorted(slices.Values(poison))) {
		t.Errorf("isolated %v, want %v", got, poison)
	}
	t.Logf("%d effects, %d isolated; %d consumers died at the kill point, %d at random, and %d relays", len(committed), len(poison), exact.Load(), outside.Load(), relays.Load())
}

// trade commits orders with messages of a body, and returns the messages' ids.
func (r *rig) trade(n int, body string) (ids []string) {
	r.t.Helper()
	for i := range n {
		tx, err := r.db.BeginTx(r.t.Context(), nil)
		if err != nil {
			r.t.Fatal(err)
		}
		id, err := outbox.Orders().Insert(r.t.Context(), tx, outbox.Message{Key: fmt.Sprint(i), Type: "order.created", Body: []byte(body)})
		if err != nil {
			r.t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// relay builds the program, prepares its state and writes its configuration.
func (r *rig) relay() (program, config, state string) {
	r.t.Helper()
	state = labtest.Database(r.t, r.mysql)
	dir := r.t.TempDir()
	program, config = filepath.Join(dir, "towpath"), filepath.Join(dir, "towpath.yaml")
	text := fmt.Sprintf(`name: shop
source: {address: %q, user: root}
state: {schema: %s}
broker: {urls: [%q], heartbeat: 2s}
lease: {ttl: 3s}
http: {listen: "127.0.0.1:0"}
tables:
  - table: %s.biz_outbox
    columns: {id: msg_id, key: biz_id, body: payload}
    publish: {exchange: shop, routing_key: "{biz_type}", type: "{biz_type}", timestamp: created_at}
    ordering: fast
    after_publish: mark
    status: {column: status, pending: 0, sent: 1, failed: 9, sent_at: sent_at}
`, r.mysql.Addr(), state, r.vhost.URL(), r.schema)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	for _, command := range [][]string{{"go", "build", "-o", program, "github.com/towpath/towpath/cmd/towpath"}, {program, "init", "-c", config}} {
		if out, err := exec.CommandContext(r.t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			r.t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return program, config, state
}
