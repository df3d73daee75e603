package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// debezium is the outbox table that Debezium's outbox router reads by default.
func debezium(id string) string {
	return "CREATE TABLE outboxevent (id " + id + ` NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL,
		aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload JSON)`
}

func practice(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/sql", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var suggestions = []struct {
	table, sql string
	want       []string
}{
	{"ss_bill_outbox", "practice-a-bills.sql", []string{`id: "{@table}-{id}"`, "key: bill_id", "body: payload", `routing_key: "{event_type}"`, "pending: PENDING", "sent: SENT", "failed: FAILED",
		"withdrawn: [ABANDONED]", "processing: PROCESSING", "locked_until: locked_until", "attempts: retry_count", "next_attempt_at: next_retry_at", "timestamp: created_at", "content_type: application/json"}},
	{"biz_outbox", "practice-b-orders.sql", []string{"id: msg_id", "key: biz_id", `routing_key: "{biz_type}"`, "pending: 0", "sent: 1", "failed: 9", "sent_at: sent_at", "next_attempt_at: next_retry_time"}},
	{"outbox_event", "practice-c-payments.sql", []string{"id: event_id", "key: aggregate_id", `routing_key: "{event_type}"`, "processing: PROCESSING", "locked_until: lease_expires_at", "attempts: attempts"}},
	{"outboxevent", debezium("CHAR(36)"), []string{"id: id", "key: aggregateid", `routing_key: "{aggregatetype}.{type}"`, `type: "{type}"`, "after_publish: keep", "start: now"}},
	{"outboxevent", debezium("BINARY(16)"), []string{`id: "{id:uuid}"`, "key: aggregateid"}},
}

func TestASuggestedConfigurationIsOneThatCheckAccepts(t *testing.T) {
	for i, o := range []lab.MySQLOptions{servers[0], servers[2]} {
		rabbit := labtest.Rabbit(t, lab.RabbitOptions{Kind: []lab.Kind{lab.Rabbit43, lab.Rabbit310}[i]})
		for _, c := range suggestions {
			t.Run(name(o)+"/"+c.table, func(t *testing.T) {
				server := labtest.MySQL(t, o)
				schema, db := labtest.DB(t, server)
				statements := c.sql
				if strings.HasSuffix(c.sql, ".sql") {
					statements = practice(t, c.sql)
				}
				if _, err := db.Exec(statements); err != nil {
					t.Fatal(err)
				}
				vhost := labtest.Vhost(t, rabbit)
				declareExchange(t, vhost, schema)

				code, out := towpath(t, "suggest", "--table", schema+"."+c.table, "--address", server.Addr(), "--user", "root")
				if code != 0 {
					t.Fatalf("exit code %d: %s", code, out)
				}
				for _, want := range c.want {
					if !strings.Contains(out, " "+want) {
						t.Errorf("it does not suggest %q", want)
					}
				}
				// The state goes to a schema of the test's own.
				out = strings.Replace(out, "broker:", "state: {schema: "+labtest.Database(t, server)+"}\nbroker:", 1)
				path := filepath.Join(t.TempDir(), "suggested.yaml")
				if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("TOWPATH_AMQP_URL", vhost.URLAt(rabbit.Addr()))
				if code, said := towpath(t, "init", "-c", path); code != 0 {
					t.Fatalf("init: exit code %d: %s\n%s", code, said, out)
				}
				code, said := towpath(t, "check", "-c", path)
				if code != 0 || strings.Contains(said, "fail ") {
					t.Errorf("check: exit code %d:\n%s\nof\n%s", code, said, out)
				}
				for line := range strings.Lines(said) { // a warning would be of the table, not of these servers
					if strings.HasPrefix(line, "warn") && strings.Contains(line, c.table) {
						t.Error(line)
					}
				}
				// The entry alone goes into a file that is there.
				if code, entry := towpath(t, "suggest", "--table", schema+"."+c.table, "-c", path); code != 0 || !strings.HasSuffix(out, entry) || !strings.HasPrefix(entry, "  - table: ") {
					t.Errorf("with -c: exit code %d: %s", code, entry)
				}
			})
		}
	}
}

func declareExchange(t *testing.T, v lab.Vhost, name string) {
	t.Helper()
	conn, err := amqp.Dial(v.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare(name, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func TestATableThatCannotBeSuggestedForSaysWhy(t *testing.T) {
	server := labtest.MySQL(t, servers[0])
	schema, db := labtest.DB(t, server)
	if _, err := db.Exec("CREATE TABLE bare (a INT, b INT); CREATE TABLE bodiless (id INT PRIMARY KEY, b INT); CREATE TABLE odd (id INT PRIMARY KEY, payload JSON, status VARCHAR(20) DEFAULT 'x y')"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--table", schema + ".none"}, 1, "no such table"},
		{[]string{"--table", schema + ".bare"}, 1, "no column is unique by itself"},
		{[]string{"--table", schema + ".bodiless"}, 1, "no column looks like the body"},
		{[]string{"--table", schema + ".odd"}, 0, "# a guess: no value like it was found"},
		{[]string{"--table", "odd"}, 2, "schema.table"},
		{[]string{"--table", schema + ".odd", "-c", "also.yaml"}, 2, "or -c FILE"},
	} {
		args := append([]string{"suggest", "--address", server.Addr(), "--user", "root"}, c.args...)
		if code, out := towpath(t, args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out)
		}
	}
	if code, out := towpath(t, "suggest", "--table", fmt.Sprint(schema, ".odd")); code != 2 {
		t.Errorf("without a server: exit code %d: %s", code, out)
	}
}
