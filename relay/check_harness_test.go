package relay

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// site is a sound set-up on servers of its own settings, with an account of the
// least grants, in which a test sets one thing wrong.
type site struct {
	*testing.T
	server *lab.MySQLServer
	rabbit *lab.RabbitServer
	vhost  lab.Vhost
	db     *sql.DB // root, in schema
	admin  *amqp.Channel
	user   lab.User
	flavor checkpoint.Flavor
	schema string
	state  string
	table  string // the entry
	source string // further lines of source
	url    string // further urls
	id     int    // server_id
}

const (
	soundTable = `
  - table: {schema}.bill
    columns: {id: "{id}", key: "{k}", body: payload}
    publish: {exchange: bills, routing_key: "bill.{k}"}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED, processing: PROCESSING, locked_until: locked_until, sent_at: sent_at, attempts: attempts}
`
	soundBill = `CREATE TABLE bill (id BIGINT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, payload VARCHAR(200) NOT NULL DEFAULT '{}',
		status VARCHAR(12) NOT NULL DEFAULT 'PENDING', locked_until DATETIME(6) NULL, sent_at DATETIME(6) NULL, attempts INT NOT NULL DEFAULT 0, KEY (status)) CHARACTER SET utf8mb4`
)

func newSite(t *testing.T, server *lab.MySQLServer, rabbit *lab.RabbitServer) *site {
	t.Helper()
	s := &site{T: t, server: server, rabbit: rabbit, table: soundTable}
	s.schema, s.db = labtest.DB(t, server)
	s.state = labtest.Database(t, server)
	s.vhost = labtest.Vhost(t, rabbit)
	s.flavor = checkpoint.MySQL
	if server.Kind().IsMariaDB() {
		s.flavor = checkpoint.MariaDB
	}
	if _, _, err := checkpoint.Init(t.Context(), s.db, s.state); err != nil {
		t.Fatal(err)
	}
	s.exec(soundBill)
	s.exec("INSERT INTO bill (k) VALUES (1), (2)")
	user, err := server.NewUser(t.Context(), fmt.Sprintf("SELECT ON %s.bill", s.schema))
	if err != nil {
		t.Fatal(err)
	}
	s.user = user
	s.grant()
	conn, err := amqp.Dial(s.vhost.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if s.admin, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.ExchangeDeclare("bills", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := rabbit.SetPermissions(t.Context(), s.vhost, `^towpath\..*`, ".*", `^towpath\..*`); err != nil {
		t.Fatal(err)
	}
	return s
}

// grant gives the account what `towpath grants` prints.
func (s *site) grant() {
	s.Helper()
	for _, statement := range checkpoint.Grants(s.flavor, s.account(), s.state, OutboxGrants(s.config())) {
		s.exec(statement)
	}
}

func (s *site) account() string { return "'" + s.user.Name + "'@'%'" }

func (s *site) exec(statement string) {
	s.Helper()
	statement = strings.NewReplacer("{schema}", s.schema, "{state}", s.state, "{account}", s.account()).Replace(statement)
	if _, err := s.db.ExecContext(s.Context(), statement); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

func (s *site) config() *configs.Config {
	s.Helper()
	text := strings.ReplaceAll(fmt.Sprintf(`name: shop
source: {address: "%s", user: "%s", password: "%s", server_id: %d%s}
state: {schema: %s}
broker: {urls: ["%s"%s], heartbeat: 2s}
tables:%s`, s.server.Addr(), s.user.Name, s.user.Password, s.id, s.source, s.state, s.vhost.URL(), s.url, s.table), "{schema}", s.schema)
	c, err := configs.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *site) check() []Finding { return Check(s.Context(), s.config()) }

// wants finds the one finding of a level whose text has the words.
func (s *site) wants(level Level, words string) Finding {
	s.Helper()
	all := s.check()
	i := slices.IndexFunc(all, func(f Finding) bool { return f.Level == level && strings.Contains(f.String(), words) })
	if i < 0 {
		s.Fatalf("no %s with %q:\n%s", level, words, listed(all))
	}
	return all[i]
}

func listed(all []Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%-4s  %s\n", f.Level, f)
	}
	return b.String()
}

// sound fails the test unless every finding is ok.
func (s *site) sound() {
	s.Helper()
	if all := s.check(); slices.ContainsFunc(all, func(f Finding) bool { return f.Level != OK }) {
		s.Fatalf("not all is well:\n%s", listed(all))
	}
}

// A flaw is set up, found, and mended by the remedy where that is SQL.
type flaw struct {
	name   string
	set    string // statements, as the administrator
	level  Level
	text   string
	remedy string // "" is mended by undo
	undo   string
	only   checkpoint.Flavor
}

func (s *site) tries(f flaw) {
	s.Helper()
	s.exec(f.set)
	found := s.wants(f.level, f.text)
	if f.remedy != "" {
		if !strings.Contains(found.Remedy, f.remedy) {
			s.Errorf("the remedy is %q, want %q", found.Remedy, f.remedy)
		}
		statement, _, _ := strings.Cut(found.Remedy, ";")
		s.exec(statement)
	}
	if f.undo != "" {
		s.exec(f.undo)
	}
	s.sound()
}

var badSettings = []flaw{
	{name: "row image", set: "SET GLOBAL binlog_row_image = 'MINIMAL'", level: Warn, text: "binlog_row_image: it is MINIMAL: every row", remedy: "binlog_row_image = 'FULL'"},
	{name: "row metadata", set: "SET GLOBAL binlog_row_metadata = 'MINIMAL'", level: Warn, text: "binlog_row_metadata: it is MINIMAL", remedy: "binlog_row_metadata = 'FULL'"},
	{name: "binlog format", set: "SET GLOBAL binlog_format = 'MIXED'", level: Fail, text: "binlog_format: it is MIXED: rows that statements write", remedy: "binlog_format = 'ROW'"},
	{name: "sync_binlog", set: "SET GLOBAL sync_binlog = 100", level: Warn, text: "sync_binlog is 100", remedy: "sync_binlog = 1"},
	{name: "flush log", set: "SET GLOBAL innodb_flush_log_at_trx_commit = 2", level: Warn, text: "innodb_flush_log_at_trx_commit is 2", remedy: "innodb_flush_log_at_trx_commit = 1"},
	{name: "order of commits", set: "SET GLOBAL binlog_order_commits = OFF", level: Warn, text: "binlog_order_commits: it is OFF", remedy: "binlog_order_commits = ON", only: checkpoint.MySQL},
	{name: "retention", set: "SET GLOBAL binlog_expire_logs_seconds = 3600", level: Warn, text: "binary logs are kept for 1h0m0s", remedy: "binlog_expire_logs_seconds = 604800", only: checkpoint.MySQL},
	{name: "retention", set: "SET GLOBAL expire_logs_days = 1", level: Warn, text: "binary logs are kept for 24h0m0s", remedy: "expire_logs_days = 7", only: checkpoint.MariaDB},
	{name: "gtid", set: "SET GLOBAL gtid_mode = ON_PERMISSIVE", level: Warn, text: "gtid_mode: it is ON_PERMISSIVE", undo: "SET GLOBAL gtid_mode = ON", only: checkpoint.MySQL},
	{name: "read only", set: "SET GLOBAL read_only = ON", level: Fail, text: "the server is read-only", undo: "SET GLOBAL read_only = OFF"},
}

// checkedServers are servers whose global settings these tests may change.
func checkedServers(t *testing.T, test func(t *testing.T, server *lab.MySQLServer, rabbit *lab.RabbitServer)) {
	for _, o := range []struct {
		mysql  lab.MySQLOptions
		rabbit lab.Kind
	}{
		{lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL", Args: []string{"--performance-schema=ON"}}, lab.Rabbit43},
		{lab.MySQLOptions{Kind: lab.MariaDB1011, RowMetadata: "FULL"}, lab.Rabbit310},
	} {
		t.Run(string(o.mysql.Kind), func(t *testing.T) {
			t.Parallel()
			test(t, labtest.OwnMySQL(t, o.mysql), labtest.Rabbit(t, lab.RabbitOptions{Kind: o.rabbit}))
		})
	}
}
