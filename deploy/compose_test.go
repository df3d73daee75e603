package deploy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay"
)

// TestTheComposeFilesTogetherRelayAMessage loads what compose.yaml gives its
// servers into real ones, checks, and relays a row. No container is started.
func TestTheComposeFilesTogetherRelayAMessage(t *testing.T) {
	t.Parallel()
	// With the options and the configuration file of compose.yaml.
	o := lab.MySQLOptions{Kind: lab.MySQL97}
	for _, arg := range at(t, documents(t, "compose.yaml")[0], "services", "mysql", "command").([]any) {
		o.Args = append(o.Args, arg.(string))
	}
	mysql := labtest.OwnMySQL(t, o)
	definitions, err := filepath.Abs("compose/definitions.json")
	if err != nil {
		t.Fatal(err)
	}
	conf := strings.Replace(read(t, "compose/rabbitmq.conf"), "/etc/rabbitmq/definitions.json", definitions, 1)
	rabbit := labtest.OwnRabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43, Config: strings.Split(strings.TrimSpace(conf), "\n")})
	// As the image's entry point runs them, in this order.
	if _, err := mysql.RootDB().Exec("CREATE DATABASE shop; USE shop;" + read(t, "sql/state.sql") + read(t, "sql/outbox_event.sql") +
		read(t, "compose/account.sql") + read(t, "sql/grants-mysql.sql")); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"TOWPATH_MYSQL_PASSWORD": "towpath", "TOWPATH_AMQP_PASSWORD": "towpath", "TOWPATH_TOKEN": "for-this-alone",
		"TOWPATH_MYSQL_ADDRESS": mysql.Addr(), "TOWPATH_AMQP_URL": "amqp://" + rabbit.Addr() + "/shop"}
	c, err := configs.Parse("towpath.yaml", []byte(read(t, "compose/towpath.yaml")), func(name string) (string, bool) {
		value, ok := set[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range relay.Check(t.Context(), c) {
		if f.Level != relay.OK {
			t.Errorf("check: %s: %s", f.Level, f)
		}
	}

	conn, err := amqp.Dial("amqp://shop:shop@" + rabbit.Addr() + "/shop")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("orders", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.New(c, prometheus.NewRegistry(), zap.NewNop()).Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// The insert that compose.yaml shows.
	compose := read(t, "compose.yaml")
	_, insert, _ := strings.Cut(compose, "#     \"")
	insert, _, _ = strings.Cut(insert, "\"\n")
	if _, err := mysql.RootDB().Exec("USE shop;" + strings.ReplaceAll(insert, `\"`, `"`)); err != nil {
		t.Fatalf("%s: %v", insert, err)
	}
	select {
	case d := <-deliveries:
		var body struct{ Total int }
		if err := json.Unmarshal(d.Body, &body); err != nil || body.Total != 42 || d.RoutingKey != "order.created" || d.Type != "order.created" || len(d.MessageId) != 36 {
			t.Errorf("got %s: %v", fmt.Sprintf("%+v", d), err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no message arrived within 30 s")
	}
}
