package main

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

var servers = []lab.MySQLOptions{
	{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"},
	{Kind: lab.MySQL97, GTID: false, RowMetadata: "MINIMAL"},
	{Kind: lab.MariaDB1011},
}

func name(o lab.MySQLOptions) string {
	if o.Kind == lab.MySQL97 && !o.GTID {
		return string(o.Kind) + "-file"
	}
	return string(o.Kind)
}

var newestRabbit = lab.RabbitOptions{Kind: lab.Rabbit43}

// eachServer runs a test on every kind of source side by side, with rigs of
// their own.
func eachServer(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	rabbits := []lab.RabbitOptions{newestRabbit, newestRabbit, {Kind: lab.Rabbit310}}
	for i, o := range servers {
		t.Run(name(o), func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, labtest.MySQL(t, o), labtest.Rabbit(t, rabbits[i])))
		})
	}
}

// oneServer lets a test run beside others, with a rig on the newest servers.
func oneServer(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return newRig(t, labtest.MySQL(t, servers[0]), labtest.Rabbit(t, newestRabbit))
}

// proxied puts a proxy before a server until the test ends.
func proxied(t *testing.T, address string) *lab.Proxy {
	t.Helper()
	p, err := lab.StartProxy(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func (r *rig) init(config string) {
	r.t.Helper()
	if code, out := towpath(r.t, "init", "-c", config); code != 0 {
		r.t.Fatalf("init: exit code %d: %s", code, out)
	}
}

func (r *rig) count(query string) (n int) {
	r.t.Helper()
	if err := r.db.QueryRow(query).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// eventually asks until the answer is yes.
func (r *rig) eventually(what string, yes func() bool) {
	r.t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// running makes the state tables and runs a relay, which may publish when this returns.
func (r *rig) running(config string) *process {
	r.t.Helper()
	r.init(config)
	p := start(r.t, config)
	p.publishing()
	return p
}

// standby runs a further relay of the stream, which waits when this returns.
func (r *rig) standby() *process {
	r.t.Helper()
	p := start(r.t, r.config())
	p.says("standing by", 1)
	return p
}

// marked waits until so many rows are marked as sent, failed until so many are
// marked as failed, parked until so many are parked and not ended.
func (r *rig) marked(want int) { r.t.Helper(); r.counts(want, "outbox WHERE status = 'SENT'") }
func (r *rig) failed(want int) { r.t.Helper(); r.counts(want, "outbox WHERE status = 'FAILED'") }
func (r *rig) parked(want int) {
	r.t.Helper()
	r.counts(want, r.state+".parked WHERE state IN ('waiting', 'failed')")
}

// counts waits until a table has so many rows of a kind.
func (r *rig) counts(want int, rows string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d rows are in %s", want, rows), func() bool { return r.count("SELECT COUNT(*) FROM "+rows) == want })
}

// channel opens a connection to the rig's vhost until the test ends.
func (r *rig) channel() *amqp.Channel {
	r.t.Helper()
	conn, err := amqp.Dial(r.vhost.URL())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	return ch
}

func (r *rig) bind(queue, key, exchange string) {
	r.t.Helper()
	if err := r.channel().QueueBind(queue, key, exchange, false, nil); err != nil {
		r.t.Fatal(err)
	}
}
