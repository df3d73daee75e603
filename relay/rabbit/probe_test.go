package rabbit

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func probing(t *testing.T, url string) *Probe {
	t.Helper()
	p, err := options(url).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestAQueuesDeclarationIsReadWithoutChangingOrMakingAnything(t *testing.T) {
	queues := []struct {
		name       string
		durable    bool
		autoDelete bool
		args       amqp.Table
		losing     []string // in the reasons, in order
	}{
		{"plain", true, false, nil, nil},
		{"quorum", true, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(5)}, nil},
		{"limits", true, false, amqp.Table{"x-max-length": int64(10), "x-message-ttl": int64(60000), "x-expires": int64(1800000), "x-max-priority": int64(3)},
			[]string{"x-message-ttl: messages older than 60000 ms", "x-expires: unused for 1800000", "x-max-length: above 10 messages"}},
		{"rejecting", true, false, amqp.Table{"x-queue-type": "quorum", "x-max-length-bytes": int64(1000), "x-overflow": "reject-publish", "x-dead-letter-exchange": "it's"}, nil},
		{"bytes", true, false, amqp.Table{"x-max-length-bytes": int64(1000), "x-overflow": "drop-head", "x-single-active-consumer": true}, []string{"x-max-length-bytes: above 1000 bytes"}},
		{"stream", true, false, amqp.Table{"x-queue-type": "stream", "x-max-length-bytes": int64(1 << 30)}, []string{"x-max-length-bytes"}},
		{"brief", false, true, nil, []string{"not durable", "auto_delete"}},
	}
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		conn, err := amqp.Dial(v.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		p := probing(t, v.URL())
		for _, q := range queues {
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.QueueDeclare(q.name, q.durable, q.autoDelete, false, false, q.args); err != nil {
				if !q.durable && mq.Kind() == lab.Rabbit43 { // it refuses such queues altogether
					continue
				}
				t.Fatal(err)
			}
			got, known, err := p.QueueDeclaration(q.name)
			if err != nil || !known {
				t.Errorf("%s: known %v: %v", q.name, known, err)
				continue
			}
			for k, want := range q.args {
				if k == "x-overflow" && want == "drop-head" || k == "x-single-active-consumer" {
					continue // not asked for, and told only on the way
				}
				if got.Arguments[k] != want {
					t.Errorf("%s: argument %s is %v, declared was %v", q.name, k, got.Arguments[k], want)
				}
			}
			if got.Durable != q.durable || got.AutoDelete != q.autoDelete || len(got.Arguments) > len(q.args)+1 {
				t.Errorf("%s: read %+v", q.name, got)
			}
			reasons := got.Losing()
			if len(reasons) != len(q.losing) {
				t.Fatalf("%s loses by %q, want %q", q.name, reasons, q.losing)
			}
			for i, want := range q.losing {
				if !strings.Contains(reasons[i], want) {
					t.Errorf("%s loses by %q, want %q", q.name, reasons[i], want)
				}
			}
		}
		if _, known, err := p.QueueDeclaration("missing"); known || err != nil {
			t.Errorf("a queue that is not there: known %v: %v", known, err)
		}
		if exists, _, err := p.QueueExists("missing"); exists || err != nil {
			t.Errorf("it was made: %v: %v", exists, err)
		}
		if err := mq.SetPermissions(t.Context(), v, `towpath\..*`, ".*", ""); err != nil {
			t.Fatal(err)
		}
		if _, known, err := probing(t, v.URL()).QueueDeclaration("plain"); known || err != nil {
			t.Errorf("without the permission configure: known %v: %v", known, err)
		}
	})
}

func TestTwoBrokersOfOneNameAreToldFromOneCluster(t *testing.T) {
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		if same, err := probing(t, v.URL()).SameCluster(probing(t, v.URL()), "towpath.test.check"); !same || err != nil {
			t.Errorf("two connections to one broker: same %v: %v", same, err)
		}
		other := labtest.Vhost(t, mq) // two vhosts share as little as two brokers
		if same, err := probing(t, v.URL()).SameCluster(probing(t, other.URL()), "towpath.test.check"); same || err != nil {
			t.Errorf("two vhosts: same %v: %v", same, err)
		}
		if queues, err := mq.Ctl(t.Context(), "list_queues", "-q", "-p", v.Name, "name"); err != nil || strings.Contains(queues, "towpath.") {
			t.Errorf("queues are left: %s, %v", queues, err)
		}
	})
}
