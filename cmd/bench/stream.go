package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// shape is what the rows of a stream are like, and what becomes of them.
type shape struct {
	after    string // keep, mark or delete
	ordering string // strict, fast or none
	queue    string // quorum or classic
	size     int    // bytes of a body
	keys     int    // distinct ordering keys
	tables   int
}

var usual = shape{after: "keep", ordering: "strict", queue: "quorum", size: 300, keys: 10_000, tables: 1}

func (s shape) String() string {
	return fmt.Sprintf("%d-byte bodies, %s, %s, %d keys, %s queue", s.size, s.after, s.ordering, s.keys, s.queue)
}

// queueName is the one queue of a stream's vhost.
const queueName = "bench"

// stream is outbox tables in a database of their own, a queue in a vhost of its
// own, and the configuration of a relay from the one to the other, whose
// position is taken: what is committed from now on is its backlog.
type stream struct {
	*bed
	shape
	schema string
	db     *sql.DB
	vhost  lab.Vhost
	conn   *amqp.Connection
	admin  *amqp.Channel
	config string
	http   string
	last   int64 // id so far
}

// lay makes a stream. Whatever came of it, remove takes it away.
func (b *bed) lay(ctx context.Context, of shape) (s *stream, err error) {
	s = &stream{bed: b, shape: of}
	if s.schema, err = b.mysql.NewDatabase(ctx); err != nil {
		return s, err
	}
	if s.db, err = sql.Open("mysql", b.mysql.DSN(s.schema, "interpolateParams=true")); err != nil {
		return s, err
	}
	s.db.SetMaxIdleConns(16)
	for n := range s.tables {
		status := ""
		if s.after == "mark" {
			status = ", status VARCHAR(12) NOT NULL DEFAULT 'PENDING', KEY by_status (status, id)"
		}
		if _, err := s.db.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE outbox_%d (id BIGINT PRIMARY KEY, aggregate VARCHAR(40) NOT NULL,
			type VARCHAR(40) NOT NULL, payload JSON NOT NULL%s)`, n, status)); err != nil {
			return s, err
		}
	}
	if s.vhost, err = b.rabbit.NewVhost(ctx); err != nil {
		return s, err
	}
	if s.conn, err = amqp.Dial(s.vhost.URL()); err != nil {
		return s, err
	}
	if s.admin, err = s.conn.Channel(); err != nil {
		return s, err
	}
	if _, err := s.admin.QueueDeclare(queueName, true, false, false, false, amqp.Table{"x-queue-type": s.queue}); err != nil {
		return s, err
	}
	if s.config, s.http, err = s.configure("a"); err != nil {
		return s, err
	}
	if out, err := exec.CommandContext(ctx, b.binary, "init", "-c", s.config).CombinedOutput(); err != nil {
		return s, fmt.Errorf("towpath init: %w: %s", err, out)
	}
	r, err := s.start(ctx)
	if err != nil {
		return s, err
	}
	return s, r.stop()
}

func (s *stream) remove() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if s.vhost.Name != "" {
		_ = s.rabbit.DeleteVhost(ctx, s.vhost)
	}
	if s.db != nil {
		for _, suffix := range []string{"", "_aside", "_state"} {
			_, _ = s.db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+s.schema+suffix) // the server goes, too
		}
		_ = s.db.Close()
	}
}

// configure writes the configuration of a relay, and returns its path and the
// address of its metrics.
func (s *stream) configure(name string) (path, http string, err error) {
	if http, err = freePort(); err != nil {
		return "", "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `name: bench
source: {address: "%s", user: root}
state: {schema: %s_state}
broker: {urls: ["%s"]}
http: {listen: "%s"}
tables:
`, s.mysql.Addr(), s.schema, s.vhost.URL(), http)
	more := map[string]string{
		"keep": "\n    start: now",
		"mark": "\n    status: {column: status, pending: PENDING, sent: SENT}",
	}[s.after]
	for n := range s.tables {
		fmt.Fprintf(&b, `  - table: %s.outbox_%d
    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: "", routing_key: %s, type: "{type}", content_type: application/json}
    ordering: %s
    after_publish: %s%s
`, s.schema, n, queueName, s.ordering, s.after, more)
	}
	path = filepath.Join(s.dir, s.schema+"-"+name+".yaml")
	return path, http, os.WriteFile(path, []byte(b.String()), 0o600)
}

// ports is the next one to try, below the ephemeral range.
var ports atomic.Int64

func freePort() (string, error) {
	for range 2000 {
		address := net.JoinHostPort("127.0.0.1", fmt.Sprint(18000+(int64(os.Getpid())+ports.Add(1))%2000))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no free port between 18000 and 20000")
}

// body is the body of a row.
func (s *stream) body(id int64) string {
	return fmt.Sprintf(`{"n": %d, "text": "%s"}`, id%1000, strings.Repeat("x", max(0, s.size-24)))
}

// insert commits rows first to last in one transaction.
func (s *stream) insert(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, table int, first, last int64) error {
	args := make([]any, 0, 4*(last-first+1))
	for id := first; id <= last; id++ {
		args = append(args, id, fmt.Sprintf("key-%d", id%int64(s.keys)), "created", s.body(id))
	}
	values := strings.TrimSuffix(strings.Repeat("(?,?,?,?),", int(last-first+1)), ",")
	_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO outbox_%d (id, aggregate, type, payload) VALUES %s", table, values), args...)
	return err
}

// commit makes a backlog of n rows, spread over the tables, in transactions of
// up to 100 rows or 1 MiB.
func (s *stream) commit(ctx context.Context, n int) error {
	each := int64(min(100, max(1, (1<<20)/s.size)))
	begin, end := s.last, s.last+int64(n)
	s.last = end
	var turns atomic.Int64
	errs := make(chan error, committers)
	for range committers {
		go func() {
			for {
				turn := turns.Add(1) - 1
				first := begin + turn*each + 1
				if first > end {
					errs <- nil
					return
				}
				if err := s.insert(ctx, s.db, int(turn)%s.tables, first, min(first+each-1, end)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	var all error
	for range committers {
		all = errors.Join(all, <-errs)
	}
	return all
}

// committers write side by side, so that their commits share the disk's syncs.
const committers = 4

// running is a relay's process.
type running struct {
	*program.Process
	http string
}

// start runs the stream's relay and waits until it streams.
func (s *stream) start(ctx context.Context) (*running, error) {
	r, err := s.launch(s.config, s.http)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, "the relay is ready", 10*time.Millisecond, func() (bool, error) {
		if err := r.alive(); err != nil {
			return false, fmt.Errorf("%w, see what it logs to %s.log", err, s.config)
		}
		m, err := program.ReadMetrics(ctx, r.http)
		return err == nil && m.Sum("towpath_lane_up{") >= 1 && program.Ready(ctx, r.http) == "ok", nil
	}); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// launch runs a relay and does not wait.
func (s *stream) launch(config, http string) (*running, error) {
	log, err := os.OpenFile(config+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p, err := program.Start(s.binary, config, log)
	if err != nil {
		return nil, err
	}
	return &running{p, http}, nil
}

func (r *running) alive() error {
	select {
	case <-r.Ended():
		return fmt.Errorf("the relay ended: %v", r.State())
	default:
		return nil
	}
}

// stop ends the relay in good order.
func (r *running) stop() error {
	if r.Stop(30 * time.Second) {
		return errors.New("the relay did not end within 30 s of SIGTERM")
	}
	if !r.State().Success() {
		return fmt.Errorf("the relay ended: %v", r.State())
	}
	return nil
}

// expect waits until the queue holds exactly n messages (counts of quorum queues
// lag behind), and empties it.
func (s *stream) expect(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	held := 0
	if err := await(ctx, "the queue shows all", 20*time.Millisecond, func() (bool, error) {
		q, err := s.admin.QueueDeclarePassive(queueName, true, false, false, false, nil)
		held = q.Messages
		return q.Messages == n, err
	}); err != nil {
		return fmt.Errorf("the queue has %d messages, want %d: %w", held, n, err)
	}
	_, err := s.admin.QueuePurge(queueName, false)
	return err
}

// aside is the same tables in another database, which the relay does not read.
func (s *stream) aside(ctx context.Context) (*stream, error) {
	name := s.schema + "_aside"
	for _, statement := range []string{"CREATE DATABASE IF NOT EXISTS " + name, "CREATE TABLE IF NOT EXISTS " + name + ".outbox_0 LIKE " + s.schema + ".outbox_0"} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	beside := *s
	var err error
	if beside.db, err = sql.Open("mysql", s.mysql.DSN(name, "interpolateParams=true")); err != nil {
		return nil, err
	}
	beside.db.SetMaxIdleConns(16)
	return &beside, nil
}
