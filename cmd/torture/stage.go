package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// stage is the servers, with schemas, queues, accounts, and a proxy on either
// side of each relay.
type stage struct {
	options options
	out     io.Writer

	dir      string
	binary   string
	mysql    *lab.MySQLServer
	rabbit   *lab.RabbitServer
	vhost    lab.Vhost
	schema   string
	state    string
	account  lab.User // the relay's
	db       *sql.DB  // the producers'
	relays   []*relay
	releases []func() error // undo the set-up, last first
}

const exchange = "torture"

func (s *stage) release(f func() error) { s.releases = append(s.releases, f) }

// tearDown ends what was started and removes what was made.
func (s *stage) tearDown() error {
	var errs []error
	for len(s.releases) > 0 {
		last := len(s.releases) - 1
		errs = append(errs, s.releases[last]())
		s.releases = s.releases[:last]
	}
	return errors.Join(errs...)
}

// setUp makes everything ready. Whatever it did, also half of it, tearDown undoes.
func (s *stage) setUp(ctx context.Context) error {
	if err := lab.Setup(ctx, s.out, s.options.source, s.options.broker); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"prepare the program", s.build},
		{"start " + string(s.options.source), s.startMySQL},
		{"start " + string(s.options.broker), s.startRabbit},
		{"create tables, queues and accounts", s.create},
		{"configure the relays", s.configure},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (s *stage) build(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "towpath-torture-"); err != nil {
		return err
	}
	tags := []string{"killpoints"}
	if s.options.broken != "" {
		tags = append(tags, "broken")
	}
	s.binary, err = program.Build(ctx, s.dir, tags...)
	return err
}

func (s *stage) startMySQL(ctx context.Context) (err error) {
	o := lab.MySQLOptions{Kind: s.options.source, GTID: true, RowMetadata: "FULL", Args: []string{"--max-binlog-size=4M"}}
	if s.mysql, err = lab.StartMySQL(ctx, o); err != nil {
		return err
	}
	s.release(s.mysql.Close)
	return nil
}

func (s *stage) startRabbit(ctx context.Context) (err error) {
	if s.rabbit, err = lab.StartRabbit(ctx, lab.RabbitOptions{Kind: s.options.broker}); err != nil {
		return err
	}
	s.release(s.rabbit.Close)
	s.vhost, err = s.rabbit.NewVhost(ctx)
	return err
}

func (s *stage) create(ctx context.Context) (err error) {
	if s.schema, err = s.mysql.NewDatabase(ctx); err != nil {
		return err
	}
	s.state = s.schema + "_towpath"
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	statements := []string{"CREATE TABLE business (id BIGINT UNSIGNED PRIMARY KEY)"}
	for _, t := range tables {
		statement, err := t.statement(root)
		if err != nil {
			return err
		}
		statements = append(statements, statement)
	}
	admin, err := sql.Open("mysql", s.mysql.DSN(s.schema, "multiStatements=true"))
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, statement := range statements {
		if _, err := admin.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if s.account, err = s.mysql.NewUser(ctx); err != nil {
		return err
	}
	privilege := "SESSION_VARIABLES_ADMIN"
	if s.options.source.IsMariaDB() {
		privilege = "BINLOG ADMIN"
	}
	shop, err := s.mysql.NewUser(ctx, "SELECT, INSERT, UPDATE, DELETE ON "+s.schema+".*", privilege+" ON *.*")
	if err != nil {
		return err
	}
	if s.db, err = sql.Open("mysql", s.mysql.UserDSN(shop, s.schema, "timeout=5s", "readTimeout=30s")); err != nil {
		return err
	}
	s.db.SetMaxIdleConns(16)
	s.release(s.db.Close)
	return s.declare(ctx)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of this project (run it there): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// onChannel does something on a channel of its own.
func (s *stage) onChannel(do func(*amqp.Channel) error) error {
	c, err := amqp.DialConfig(s.vhost.URL(), amqp.Config{Heartbeat: 3 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return err
	}
	defer c.CloseDeadline(time.Now().Add(time.Second))
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}

// declare makes a queue for each table. What a queue confirmed must survive a
// kill of the broker, which takes a moment to note that there is a new queue.
func (s *stage) declare(ctx context.Context) error {
	for _, t := range tables {
		if err := s.declareQueue(t.label); err != nil {
			return err
		}
	}
	if err := s.bind(); err != nil {
		return err
	}
	return s.rabbit.SaveQueues(ctx)
}

func (s *stage) declareQueue(name string) error {
	args := amqp.Table{"x-queue-type": "quorum"}
	if s.options.broker == lab.Rabbit43 {
		args["x-delivery-limit"] = -1 // a message is not to be dropped because its consumer died often
	}
	return s.onChannel(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

// bind makes the exchange and binds each table's queue to it.
func (s *stage) bind() error {
	return s.onChannel(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
			return err
		}
		for _, t := range tables {
			if err := ch.QueueBind(t.label, t.binding(), exchange, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// awaitConsumed waits until a queue that nothing is routed to holds nothing, and
// its consumer has acknowledged all: three looks in a row say so.
func (s *stage) awaitConsumed(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for empty := 0; empty < 3; {
		list, err := s.rabbit.Ctl(ctx, "list_queues", "-q", "-p", s.vhost.Name, "name", "messages")
		if err != nil {
			return err
		}
		empty++
		for line := range strings.Lines(list) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == queue && f[1] != "0" {
				empty = 0
			}
		}
		pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("queue %s is not consumed: %w", queue, ctx.Err())
		}
	}
	return nil
}

func (t *table) binding() string { return t.label + ".ok.#" }

// sendEndMarkers puts a message behind all that the queues hold.
func (s *stage) sendEndMarkers(ctx context.Context) error {
	return s.onChannel(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, t := range tables {
			c, err := ch.PublishWithDeferredConfirm("", t.label, true, false, amqp.Publishing{MessageId: endMarker, DeliveryMode: amqp.Persistent})
			if err != nil {
				return err
			}
			if acked, err := c.WaitContext(ctx); err != nil || !acked {
				return fmt.Errorf("send the end marker to %s: confirmed %t, %w", t.label, acked, err)
			}
		}
		return nil
	})
}

// configure writes a configuration for each relay, whose servers are behind
// proxies of its own, and makes state tables and grants as their commands print.
func (s *stage) configure(ctx context.Context) error {
	for n := range relayCount {
		r := &relay{number: n, binary: s.binary, config: filepath.Join(s.dir, fmt.Sprintf("relay-%d.yaml", n)), broken: s.options.broken, pids: map[int]string{}}
		var err error
		if r.source, err = lab.StartProxy(s.mysql.Addr()); err != nil {
			return err
		}
		s.release(r.source.Close)
		if r.broker, err = lab.StartProxy(s.rabbit.Addr()); err != nil {
			return err
		}
		s.release(r.broker.Close)
		if r.http, err = freePort(); err != nil {
			return err
		}
		if err := os.WriteFile(r.config, []byte(s.yaml(r)), 0o600); err != nil {
			return err
		}
		s.relays = append(s.relays, r)
	}
	grants := []string{"grants"}
	if s.options.source.IsMariaDB() {
		grants = append(grants, "--mariadb")
	}
	for _, args := range [][]string{{"init", "--print"}, grants} {
		statements, err := s.towpath(ctx, args...)
		if err != nil {
			return err
		}
		if _, err := s.mysql.RootDB().ExecContext(ctx, statements); err != nil {
			return fmt.Errorf("run what %q prints: %w", "towpath "+args[0], err)
		}
	}
	return nil
}

// towpath runs a command of the program and returns what it prints.
func (s *stage) towpath(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, s.binary, append(args, "-c", s.relays[0].config)...)
	c.Env = append(os.Environ(), publisherVariable+"=none")
	var errors strings.Builder
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("towpath %s: %w: %s", args[0], err, errors.String())
	}
	return string(out), nil
}

// freePort finds a loopback port that nobody listens on, below the ephemeral range.
func freePort() (string, error) {
	for range 50 {
		address := net.JoinHostPort("127.0.0.1", fmt.Sprint(20000+time.Now().UnixNano()/1000%9000))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no free port between 20000 and 29000")
}

// yaml is a configuration with short times, so that much happens in a minute.
func (s *stage) yaml(r *relay) string {
	var b strings.Builder
	fmt.Fprintf(&b, `name: torture
source: {address: "%s", user: %s, password: %s, transaction_bytes: 64KiB}
state: {schema: %s}
broker: {urls: ["%s"], heartbeat: 2s, connections: 2, in_flight: 64, confirm_timeout: 30s}
checkpoint: {every: 100ms, idle: 2s}
lease: {ttl: 3s, yield_after: 20s}
drain_timeout: 3s
http: {listen: "%s"}
log: {format: console}
tables:
`, r.source.Addr(), s.account.Name, s.account.Password, s.state, s.vhost.URLAt(r.broker.Addr()), r.http)
	for _, t := range tables {
		fmt.Fprintf(&b, `  - table: %s.%s
    name: %s
    ordering: %s
%s    retry: {base: 300ms, factor: 2, max: 3s, attempts: 8}
    fallback: {every: 2s, batch: 200}
`, s.schema, t.name, t.label, t.ordering, strings.Replace(t.yaml, "exchange: torture,", `exchange: torture, app_id: "${`+publisherVariable+`}",`, 1))
	}
	return b.String()
}

// left counts, by table, rows whose state says that they were not sent.
func (s *stage) left(ctx context.Context) (map[string]int, error) {
	left := map[string]int{}
	count := func(what, query string) error {
		var n int
		if err := s.mysql.RootDB().QueryRowContext(ctx, query).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			left[what] = n
		}
		return nil
	}
	for _, t := range tables {
		if t.unsent == "" {
			continue
		}
		if err := count(t.label, fmt.Sprintf("SELECT COUNT(*) FROM %s.%s WHERE %s", s.schema, t.name, t.unsent)); err != nil {
			return nil, err
		}
	}
	return left, count("parked", fmt.Sprintf("SELECT COUNT(*) FROM %s.parked WHERE state IN ('waiting', 'failed')", s.state))
}
