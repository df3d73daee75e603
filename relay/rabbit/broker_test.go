package rabbit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/towpath/towpath/deploy/lab"
)

// deadAddress is a loopback address where nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestAnyUrlThatAnswersWillDo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		opt := options(v.URLAt(deadAddress(t)), "not an url", v.URL(), v.URLAt(deadAddress(t)))
		r := start(t, opt)
		expect(t, "address", r.phase(Up).Peer.Address, mq.Addr())
	})
}

func TestARefusedLoginIsAnOutageThatEndsByItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		const wrong = "wr0ng-s3cret"
		var right atomic.Bool
		opt := options(fmt.Sprintf("amqp://%s/%s", mq.Addr(), v.Name))
		opt.Credentials = func() (string, string, error) {
			if right.Load() {
				return v.User.Name, v.Password, nil
			}
			return v.User.Name, wrong, nil
		}
		core, logs := observer.New(zapcore.DebugLevel)
		opt.Logger = zap.New(core)
		r := start(t, opt)
		r.send(message(1, "q"))
		down := r.phase(Down)
		if !strings.Contains(down.Reason, v.User.Name) || !strings.Contains(down.Reason, "check user and password") {
			t.Errorf("the reason does not help: %s", down.Reason)
		}
		right.Store(true)
		r.all()
		expect(t, "delivered", r.counts()[Delivered], 1)
		for _, entry := range logs.All() {
			if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, wrong) || strings.Contains(text, v.Password) {
				t.Errorf("a secret is in the log: %s", text)
			}
		}
		for _, s := range r.states {
			if text := fmt.Sprint(s); strings.Contains(text, wrong) || strings.Contains(text, v.Password) {
				t.Errorf("a secret is in a state: %s", text)
			}
		}
	})
}

func TestAMissingVhostAndUnreadableCredentialsSaySo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		r := start(t, options(strings.Replace(v.URL(), v.Name, "nowhere", 1)))
		if down := r.phase(Down); !strings.Contains(down.Reason, "nowhere") {
			t.Errorf("the reason does not name the vhost: %s", down.Reason)
		}
		opt := options(fmt.Sprintf("amqp://%s/%s", mq.Addr(), v.Name))
		opt.Credentials = func() (string, string, error) { return "", "", errors.New("open /run/secret: no such file") }
		r = start(t, opt)
		if down := r.phase(Down); !strings.Contains(down.Reason, "no such file") {
			t.Errorf("the reason does not name the file: %s", down.Reason)
		}
	})
}

func TestNoErrorQuotesAnUrl(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"amqp://user:s3cret@127.0.0.1:x/v", "amqp://user:s3cret@[::1/v", "amqp://user:s3cret#@host/", "amqp://user:%s3cret@host/",
		"http://user:s3cret@host/", "amqp://user:s3cret@host:99999999999/", "amqp://user:s3cret@127.0.0.1:1/v",
	} {
		_, err := Broker{URLs: []string{url}}.Probe(t.Context())
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}

func TestALaneSpeaksTLSAndLogsInByItsCertificate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		config := func(own ...lab.KeyPair) func() (*tls.Config, error) {
			return func() (*tls.Config, error) {
				c, err := mq.Certificates().ClientConfig(own...)
				if err == nil {
					c.ServerName = "" // the url's host is checked
				}
				return c, err
			}
		}

		opt := options(v.TLSURLAt(mq.TLSAddr()))
		opt.TLS = config()
		r := start(t, opt)
		r.send(messages(0, 1000, "q")...)
		r.all()
		expect(t, "delivered with a password", r.counts()[Delivered], 1000)
		r.stop()

		pair, err := mq.Certificates().Client(v.User.Name)
		if err != nil {
			t.Fatal(err)
		}
		opt = options(fmt.Sprintf("amqps://%s/%s", mq.TLSAddr(), v.Name))
		opt.Credentials = func() (string, string, error) { return "", "", nil }
		opt.TLS = config(pair)
		r = start(t, opt)
		r.send(messages(1000, 1010, "q")...)
		r.all()
		expect(t, "delivered with a certificate", r.counts()[Delivered], 10)
		r.stop()

		opt.TLS = nil // the lab's authority is unknown to the system
		r = start(t, opt)
		if down := r.phase(Down); !strings.Contains(down.Reason, "shake hands over TLS") {
			t.Errorf("an unknown authority: %s", down.Reason)
		}
		expect(t, "duplicates", inOrder(t, consumed(t, ch, "q", 1010), 0, 1010), 0)
	})
}

func TestAProbeTellsWhatTheBrokerWouldRefuseAndChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, mq *lab.RabbitServer, v lab.Vhost) {
		ch := admin(t, v)
		declare(t, ch, "q", "quorum", nil)
		for _, name := range []string{"open", "closed"} {
			if err := ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind("q", "", name, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		permit := func(configure, write, read string) {
			if err := mq.SetPermissions(t.Context(), v, configure, write, read); err != nil {
				t.Fatal(err)
			}
		}
		permit(`towpath\..*`, "open|missing", `towpath\..*`)
		p, err := options(v.URL()).Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		expect(t, "vhost", p.Peer().Vhost, v.Name)
		if err := p.MayFence("towpath.check"); err != nil {
			t.Error(err)
		}
		if err := p.MayFence("elsewhere"); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("a fence without permission: %v", err)
		}
		if err := p.MayPublish("open", "k"); err != nil {
			t.Error(err)
		}
		if err := p.MayPublish("closed", "k"); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("publishing without permission: %v", err)
		}
		if err := p.MayPublish("missing", "k"); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("publishing to a missing exchange: %v", err)
		}
		exists, known, err := p.QueueExists("q")
		if err != nil || known && !exists {
			t.Errorf("a queue that is there: %v %v %v", exists, known, err)
		}
		expect(t, "without configure the broker answers", known, mq.Kind() != lab.Rabbit43)
		permit(".*", "open", `.*`)
		if exists, known, err := p.QueueExists("q"); err != nil || !known || !exists {
			t.Errorf("a queue that is there: %v %v %v", exists, known, err)
		}
		if exists, known, err := p.QueueExists("none"); err != nil || !known || exists {
			t.Errorf("a queue that is not there: %v %v %v", exists, known, err)
		}
		if _, there, err := ch.Get("q", true); err != nil || there {
			t.Errorf("the probe published: %v %v", there, err)
		}
		if n, err := mq.Eval(t.Context(), fmt.Sprintf(`length(rabbit_amqqueue:list(<<"%s">>)).`, v.Name)); err != nil || n != "1" {
			t.Errorf("%s queues, %v", n, err)
		}
	})
}
