package lab_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

var brokers = []lab.Kind{lab.Rabbit310, lab.Rabbit43}

func containsAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

func connect(t *testing.T, url string) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return conn, ch
}

func declare(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": queue}); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, ch *amqp.Channel, queue string) *amqp.DeferredConfirmation {
	t.Helper()
	confirmed, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	return confirmed
}

func TestABroker(t *testing.T) {
	for _, kind := range brokers {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.OwnRabbit(t, lab.RabbitOptions{Kind: kind, TLS: true})
			for does, test := range map[string]func(*testing.T, *lab.RabbitServer, lab.Vhost){
				"is silent while a queue is suspended":          suspendedQueue,
				"nacks what a killed queue had not confirmed":   killedQueue,
				"blocks publishers while its memory is short":   memoryAlarm,
				"refuses new connections and keeps those open":  suspendedListeners,
				"closes connections as an operator does":        closedConnections,
				"shows the lab's certificate and takes clients": clientCertificate,
				"evaluates expressions and runs its tool":       evaluated,
				"answers nothing while paused":                  paused,
				"keeps confirmed messages over kill and start":  killed,
			} {
				t.Run(does, func(t *testing.T) { test(t, s, labtest.Vhost(t, s)) })
			}
		})
	}
}

func suspendedQueue(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	_, ch := connect(t, v.URL())
	for _, queue := range []string{"classic", "quorum"} {
		declare(t, ch, queue)
		must(t, s.SuspendQueue(t.Context(), v, queue))
		confirmed := publish(t, ch, queue)
		select {
		case <-confirmed.Done():
			t.Errorf("a suspended %s queue confirmed", queue)
		case <-time.After(100 * time.Millisecond):
		}
		must(t, s.ResumeQueue(t.Context(), v, queue))
		if ok, err := confirmed.WaitContext(t.Context()); err != nil || !ok {
			t.Errorf("after resume, %s: %v, %v", queue, ok, err)
		}
	}
}

func killedQueue(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	_, ch := connect(t, v.URL())
	declare(t, ch, "classic")
	must(t, s.SuspendQueue(t.Context(), v, "classic"))
	unconfirmed := publish(t, ch, "classic")
	must(t, ch.ExchangeDeclare("barrier", "fanout", false, true, false, false, nil)) // the broker has seen the publish
	must(t, s.KillQueue(t.Context(), v, "classic"))
	if ok, err := unconfirmed.WaitContext(t.Context()); err != nil || ok {
		t.Errorf("a killed queue answered %v, %v; want a nack", ok, err)
	}
}

func memoryAlarm(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	conn, ch := connect(t, v.URL())
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 2))
	declare(t, ch, "classic")
	must(t, s.SetMemoryAlarm(t.Context(), true))
	publish(t, ch, "classic") // a connection is told at its first publish
	expectBlocked(t, blocked, true)
	must(t, s.SetMemoryAlarm(t.Context(), false))
	expectBlocked(t, blocked, false)
}

func suspendedListeners(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	_, ch := connect(t, v.URL())
	must(t, s.SuspendListeners(t.Context()))
	if other, err := amqp.Dial(v.URL()); err == nil {
		other.Close()
		t.Error("a suspended listener took a connection")
	}
	declare(t, ch, "classic")
	must(t, s.ResumeListeners(t.Context()))
	connect(t, v.URL())
}

func closedConnections(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	conn, _ := connect(t, v.URL())
	if n, err := s.Connections(t.Context(), v); err != nil || n != 1 {
		t.Errorf("%d connections, %v; want 1", n, err)
	}
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	must(t, s.CloseConnections(t.Context(), "for a test"))
	select {
	case e := <-closed:
		if e == nil || e.Code != amqp.ConnectionForced {
			t.Errorf("closed with %v, want 320", e)
		}
	case <-time.After(10 * time.Second):
		t.Error("the connection stays open")
	}
}

func clientCertificate(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	client, err := s.Certificates().Client(v.User.Name)
	must(t, err)
	config, err := s.Certificates().ClientConfig(client)
	must(t, err)
	conn, err := amqp.DialTLS(v.TLSURLAt(s.TLSAddr()), config)
	must(t, err)
	must(t, conn.Close())
}

func evaluated(t *testing.T, s *lab.RabbitServer, _ lab.Vhost) {
	if out, err := s.Eval(t.Context(), "A = 1, {A + 1, <<\"ü\"/utf8>>}."); err != nil || out != `{2,<<"ü"/utf8>>}` {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := s.Eval(t.Context(), "1 = 2."); err == nil || !strings.Contains(err.Error(), "badmatch") {
		t.Errorf("error %v, want badmatch", err)
	}
	if out, err := s.Ctl(t.Context(), "eval", "1+1."); err != nil || strings.TrimSpace(out) != "2" {
		t.Errorf("%q, %v", out, err)
	}
}

func paused(t *testing.T, s *lab.RabbitServer, _ lab.Vhost) {
	must(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Eval(ctx, "ok."); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline's", err)
	}
	must(t, s.Resume())
	if out, err := s.Eval(t.Context(), "ok."); err != nil || out != "ok" {
		t.Errorf("%s, %v", out, err)
	}
}

func killed(t *testing.T, s *lab.RabbitServer, v lab.Vhost) {
	_, ch := connect(t, v.URL())
	for _, queue := range []string{"classic", "quorum"} {
		declare(t, ch, queue)
		if ok, err := publish(t, ch, queue).WaitContext(t.Context()); err != nil || !ok {
			t.Fatalf("confirm from %s: %v, %v", queue, ok, err)
		}
	}
	must(t, s.SaveQueues(t.Context()))
	must(t, s.Kill())
	must(t, s.Start(t.Context()))
	_, ch = connect(t, v.URL())
	for _, queue := range []string{"classic", "quorum"} {
		deliveries, err := ch.ConsumeWithContext(t.Context(), queue, "", true, false, false, false, nil)
		must(t, err)
		select {
		case <-deliveries:
		case <-time.After(20 * time.Second):
			t.Fatalf("the message in %s is gone", queue)
		}
	}
}

func expectBlocked(t *testing.T, blocked <-chan amqp.Blocking, want bool) {
	t.Helper()
	select {
	case b := <-blocked:
		if b.Active != want {
			t.Errorf("blocked: %v, want %v", b.Active, want)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("no word of blocked=%v", want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAForeignBrokerGivesVhostsThroughItsManagementPlugin(t *testing.T) {
	port := "19672"
	s := labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43, Plugins: []string{"rabbitmq_management"},
		Config: []string{"management.tcp.ip = 127.0.0.1", "management.tcp.port = " + port}})
	t.Setenv(lab.Rabbit43.Env(), "guest:guest@"+s.Addr())
	foreign := labtest.OwnRabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43})
	if _, err := foreign.NewVhost(t.Context()); err == nil || !strings.Contains(err.Error(), lab.Rabbit43.Env()+"_MANAGEMENT") {
		t.Errorf("error %v, want the name of the variable to set", err)
	}
	t.Setenv(lab.Rabbit43.Env()+"_MANAGEMENT", "127.0.0.1:"+port)
	v := labtest.Vhost(t, foreign)
	_, ch := connect(t, v.URL())
	declare(t, ch, "quorum")
	must(t, foreign.SetPermissions(t.Context(), v, "", "", ""))
	for verb, err := range map[string]error{"kill": foreign.Kill(), "eval": func() error { _, err := foreign.Eval(t.Context(), "1."); return err }()} {
		if !errors.Is(err, lab.ErrForeign) {
			t.Errorf("%s: %v, want a refusal", verb, err)
		}
	}
	if err := fmt.Sprint(s.Eval(t.Context(), "rabbit_vhost:list_names().")); !strings.Contains(err, v.Name) {
		t.Errorf("vhosts %s, want %s among them", err, v.Name)
	}
}
