package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

// stage is what the demo plays on: servers, schemas, accounts, the program.
type stage struct {
	options options
	out     io.Writer

	dir        string // program and configuration; removed at the end
	binary     string
	config     string
	mysql      *lab.MySQLServer
	rabbit     *lab.RabbitServer
	vhost      lab.Vhost
	schema     string // the shop's
	state      string // the relay's
	account    string // the relay's
	shopDB     *sql.DB
	consumerDB *sql.DB        // the consumer's tables lie in the shop's schema
	releases   []func() error // undo the set-up, last first
}

// options are the command line's.
type options struct {
	database, broker lab.Kind
	duration         time.Duration // 0: until it is ended
	rate             float64       // orders a second
}

// setUp makes everything ready. Whatever it did, also half of it, tearDown undoes.
func (s *stage) setUp(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"", func(ctx context.Context) error { return lab.Setup(ctx, s.out, s.options.database, s.options.broker) }},
		{"build the relay", s.build},
		{"start " + title(s.options.database), s.startMySQL},
		{"start " + title(s.options.broker), s.startRabbit},
		{"create the shop, the state tables, an account with the least grants", s.createShop},
	} {
		began := time.Now()
		if step.what != "" {
			fmt.Fprintf(s.out, "%s ... ", step.what)
		}
		err := step.do(ctx)
		switch {
		case err != nil && step.what != "":
			fmt.Fprintln(s.out, "failed")
			return fmt.Errorf("%s: %w", step.what, err)
		case err != nil:
			return err
		case step.what != "":
			fmt.Fprintf(s.out, "%.1f s\n", time.Since(began).Seconds())
		}
	}
	return nil
}

func title(k lab.Kind) string {
	return map[lab.Kind]string{
		lab.MySQL97: "MySQL 9.7", lab.MariaDB1011: "MariaDB 10.11", lab.Rabbit310: "RabbitMQ 3.10", lab.Rabbit43: "RabbitMQ 4.3",
	}[k]
}

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

func (s *stage) release(f func() error) { s.releases = append(s.releases, f) }

func (s *stage) build(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "towpath-demo-"); err != nil {
		return err
	}
	s.release(func() error { return os.RemoveAll(s.dir) })
	s.binary, err = program.Build(ctx, s.dir)
	return err
}

func (s *stage) startMySQL(ctx context.Context) (err error) {
	if s.mysql, err = lab.StartMySQL(ctx, lab.MySQLOptions{Kind: s.options.database, GTID: true, RowMetadata: "FULL"}); err != nil {
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

// createShop does what a user does before the first run: make the account,
// write the file, run what init and grants print.
func (s *stage) createShop(ctx context.Context) (err error) {
	if s.schema, err = s.mysql.NewDatabase(ctx); err != nil {
		return err
	}
	s.state = s.schema + "_towpath"
	if s.mysql.PID() == 0 { // a running server that was given: nothing may stay on it
		s.release(s.dropShop)
	}
	if s.shopDB, err = sql.Open("mysql", s.mysql.DSN(s.schema)); err != nil {
		return err
	}
	s.release(s.shopDB.Close)
	for _, table := range shopTables {
		if _, err := s.shopDB.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	if err := s.createInbox(ctx); err != nil {
		return err
	}
	account, err := s.mysql.NewUser(ctx)
	if err != nil {
		return err
	}
	s.account = account.Name
	s.config = filepath.Join(s.dir, "shop.yaml")
	if err := os.WriteFile(s.config, []byte(s.yaml(account)), 0o600); err != nil {
		return err
	}
	grants := []string{"grants"}
	if s.options.database.IsMariaDB() {
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

// createInbox makes the tables of the consumer.
func (s *stage) createInbox(ctx context.Context) (err error) {
	root, err := program.Root(ctx)
	if err != nil {
		return err
	}
	ddl, err := os.ReadFile(filepath.Join(root, "deploy", "sql", "inbox.sql"))
	if err != nil {
		return err
	}
	if s.consumerDB, err = sql.Open("mysql", s.mysql.DSN(s.schema, "interpolateParams=true")); err != nil {
		return err
	}
	s.release(s.consumerDB.Close)
	for _, table := range []string{string(ddl), effects} {
		if _, err := s.consumerDB.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) dropShop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := s.mysql.RootDB().ExecContext(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s; DROP DATABASE IF EXISTS %s; DROP USER IF EXISTS '%s'@'%%'",
		s.schema, s.state, s.account))
	return errors.Join(err, s.rabbit.DeleteVhost(ctx, s.vhost))
}

// towpath runs a command of the program and returns what it prints.
func (s *stage) towpath(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, s.binary, append(args, "-c", s.config)...)
	c.Env = append(c.Environ(), "DEMO_HTTP=127.0.0.1:1") // not listened on
	var errors strings.Builder
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("towpath %s: %w: %s", args[0], err, errors.String())
	}
	return string(out), nil
}

func (s *stage) yaml(account lab.User) string {
	return fmt.Sprintf(`name: demo
source: {address: "%s", user: %s, password: %s}
state: {schema: %s}
broker: {urls: ["%s"]}
http: {listen: "${DEMO_HTTP}"}
tables:
  - table: %[6]s.order_outbox
    name: orders
    columns: {id: id, key: customer, body: payload}
    publish: {exchange: shop, routing_key: "{event_type}", type: "{event_type}", content_type: application/json}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, sent_at: sent_at}
  - table: %[6]s.payment_outbox
    name: payments
    columns: {id: event_id, key: account, body: payload}
    publish: {exchange: shop, routing_key: payment.made, content_type: application/json}
    after_publish: delete
  - table: %[6]s.mail_outbox
    name: mails
    columns: {id: msg_id, body: body}
    publish: {exchange: shop, routing_key: "mail.{template}", headers: {template: "{template}"}}
    ordering: none
    after_publish: mark
    status: {column: state, pending: 0, sent: 1}
`, s.mysql.Addr(), account.Name, account.Password, s.state, s.vhost.URL(), s.schema)
}

// unsent counts rows that are not marked or deleted, and all committed rows
// that are still there, of the tables that are marked.
func (s *stage) unsent(ctx context.Context) (n int, err error) {
	err = s.shopDB.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM order_outbox WHERE status <> 'SENT') +
		(SELECT COUNT(*) FROM payment_outbox) +
		(SELECT COUNT(*) FROM mail_outbox WHERE state <> 1)`).Scan(&n)
	return n, err
}
