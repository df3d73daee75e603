package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// stage is what a benchmark of the relay plays on: servers, one queue, and the
// program that is measured.
type stage struct {
	dir    string
	binary string
	mysql  *lab.MySQLServer
	db     *sql.DB // as root
	rabbit *lab.RabbitServer
	vhost  lab.Vhost
	conn   *amqp.Connection
	admin  *amqp.Channel

	members []*member // all that were configured
}

// theQueue is where all messages of a benchmark go.
const theQueue = "bench"

func (s *stage) setUp(ctx context.Context, queueType string) (err error) {
	if s.dir, err = os.MkdirTemp("", "towpath-bench-"); err != nil {
		return err
	}
	if s.binary, err = program.Build(ctx, s.dir); err != nil {
		return err
	}
	if s.mysql, err = lab.StartMySQL(ctx, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"}); err != nil {
		return err
	}
	if s.db, err = sql.Open("mysql", s.mysql.DSN("", "interpolateParams=true")); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(16)
	s.db.SetMaxIdleConns(16)
	if s.rabbit, err = lab.StartRabbit(ctx, lab.RabbitOptions{Kind: lab.Rabbit43}); err != nil {
		return err
	}
	if s.vhost, err = s.rabbit.NewVhost(ctx); err != nil {
		return err
	}
	if s.conn, err = amqp.Dial(s.vhost.URL()); err != nil {
		return err
	}
	if s.admin, err = s.conn.Channel(); err != nil {
		return err
	}
	if _, err = s.admin.QueueDeclare(theQueue, true, false, false, false, amqp.Table{"x-queue-type": queueType}); err != nil {
		return err
	}
	return s.exec(ctx, "CREATE DATABASE bench")
}

func (s *stage) tearDown() {
	s.killAll()
	if s.conn != nil {
		_ = s.conn.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	if s.mysql != nil {
		_ = s.mysql.Close()
	}
	if s.rabbit != nil {
		_ = s.rabbit.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// killAll ends all relays that run.
func (s *stage) killAll() {
	for _, m := range s.members {
		if m.process != nil {
			m.process.Kill()
		}
	}
}

func (s *stage) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60s: %w", statement, err)
		}
	}
	return nil
}

// createOutbox is an outbox table as an application has it.
func createOutbox(name string) string {
	return "CREATE TABLE bench." + name + ` (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate VARCHAR(40) NOT NULL, type VARCHAR(40) NOT NULL,
		payload JSON NOT NULL, status VARCHAR(12) NOT NULL DEFAULT 'PENDING', KEY (status, id))`
}

// setting is the configuration of a relay whose tables match a pattern.
type setting struct {
	stream, tables, ordering, after string
}

// configure writes a relay's configuration.
func (s *stage) configure(c setting) (*member, error) {
	http, err := freePort()
	if err != nil {
		return nil, err
	}
	status, start := "", ""
	switch c.after {
	case "mark":
		status = "\n    status: {column: status, pending: PENDING, sent: SENT}"
	case "keep":
		start = "\n    start: now"
	}
	text := fmt.Sprintf(`name: %s
source: {address: "%s", user: root}
broker: {urls: ["%s"]}
http: {listen: "%s"}
tables:
  - table: bench.%s
    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: "", routing_key: %s, type: "{type}", content_type: application/json}
    ordering: %s
    after_publish: %s%s%s
`, c.stream, s.mysql.Addr(), s.vhost.URL(), http, c.tables, theQueue, c.ordering, c.after, start, status)
	m := &member{binary: s.binary, http: http, config: filepath.Join(s.dir, strings.ReplaceAll(http, ":", "-")+".yaml")}
	s.members = append(s.members, m)
	return m, os.WriteFile(m.config, []byte(text), 0o600)
}

// initialize makes the state tables and lets a first relay take its position.
func (s *stage) initialize(ctx context.Context, m *member) error {
	if err := command(ctx, m.binary, "init", "-c", m.config); err != nil {
		return err
	}
	if err := m.start(); err != nil {
		return err
	}
	if err := m.await(ctx, "streams", func(m program.Metrics) bool { return m.Sum("towpath_streaming") == 1 }); err != nil {
		return err
	}
	_, err := m.stop()
	return err
}

// member is a relay that can be started again and again.
type member struct {
	binary, config, http string
	process              *program.Process
}

// cost is what a process has used up.
type cost struct {
	cpu    time.Duration
	memory float64 // peak resident, MiB
}

func (m *member) start() error {
	log, err := os.OpenFile(m.config+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	m.process, err = program.Start(m.binary, m.config, log)
	return err
}

// stop ends the relay in good order and says what it has cost.
func (m *member) stop() (cost, error) {
	memory := peakMemory(m.process.PID())
	if killed := m.process.Stop(30 * time.Second); killed {
		return cost{}, fmt.Errorf("the relay did not end within 30 s, see %s.log", m.config)
	}
	s := m.process.State()
	if !s.Success() {
		return cost{}, fmt.Errorf("the relay ended with %s, see %s.log", s, m.config)
	}
	return cost{cpu: s.UserTime() + s.SystemTime(), memory: memory}, nil
}

// await waits until the relay's metrics say that something is so. Each look
// costs the relay, too.
func (m *member) await(ctx context.Context, what string, ok func(program.Metrics) bool) error {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		if metrics, err := program.ReadMetrics(ctx, m.http); err == nil && ok(metrics) {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			m.process.Kill()
			return fmt.Errorf("waited in vain until the relay %s, see %s.log", what, m.config)
		}
		select {
		case <-m.process.Ended():
			return fmt.Errorf("the relay ended before it %s, see %s.log", what, m.config)
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// peakMemory is a process's largest resident set so far, in MiB.
func peakMemory(pid int) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(l, "VmHWM:"); found {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

func ownCPU() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

var lastPort atomic.Int32

// freePort finds a loopback port that nobody listens on, below the ephemeral
// range, another one at each call.
func freePort() (string, error) {
	for port := 18000 + lastPort.Add(1); port < 19000; port = 18000 + lastPort.Add(1) {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no free port between 18000 and 19000")
}
