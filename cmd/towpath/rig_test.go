package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// asTowpath makes the test binary behave as the program: the tests run it as
// processes of their own, which they can kill.
const asTowpath = "TOWPATH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asTowpath) != "" {
		os.Exit(run(os.Args[1:]))
	}
	labtest.Main(m)
}

// rig is one stream's surroundings: a database with an outbox table, a vhost
// with a queue, a configuration, and what arrived.
type rig struct {
	t      *testing.T
	mysql  *lab.MySQLServer
	rabbit *lab.RabbitServer
	db     *sql.DB
	schema string
	state  string
	vhost  lab.Vhost
	inbox  *inbox

	// What the configuration says; a test may change it before it is written.
	source, broker string // addresses
	options        string // further lines at the top level
	table          string // lines of the table's entry
}

const markTable = `    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: "", routing_key: orders, type: "{type}", content_type: application/json}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED}
`

func newRig(t *testing.T, mysql *lab.MySQLServer, rabbit *lab.RabbitServer) *rig {
	t.Helper()
	r := &rig{t: t, mysql: mysql, rabbit: rabbit, source: mysql.Addr(), table: markTable,
		options: "checkpoint: {every: 50ms, idle: 1s}\nlease: {ttl: 3s, yield_after: 60s}\n"}
	r.schema, r.db = labtest.DB(t, mysql)
	r.state = labtest.Database(t, mysql)
	r.vhost = labtest.Vhost(t, rabbit)
	r.broker = rabbit.Addr()
	r.exec(`CREATE TABLE outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate BIGINT NOT NULL, type VARCHAR(40) NOT NULL DEFAULT 'created',
		payload JSON NOT NULL, status VARCHAR(12) NOT NULL DEFAULT 'PENDING')`)
	r.inbox = consume(t, r.vhost, "orders")
	return r
}

func (r *rig) exec(query string, args ...any) sql.Result {
	r.t.Helper()
	result, err := r.db.ExecContext(r.t.Context(), query, args...)
	if err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
	return result
}

// config writes the configuration and returns its path.
func (r *rig) config() string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "towpath.yaml")
	text := fmt.Sprintf(`name: shop
source: {address: "%s", user: root}
state: {schema: %s}
broker: {urls: ["%s"], heartbeat: 2s}
http: {listen: "127.0.0.1:%d"}
log: {format: console}
%stables:
  - table: %s.outbox
%s`, r.source, r.state, r.vhost.URLAt(r.broker), freePort(r.t), r.options, r.schema, r.table)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func freePort(t *testing.T) int {
	t.Helper()
	for range 50 {
		port := 20000 + int(time.Now().UnixNano()/1000%9000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// towpath runs one command to its end and returns its exit code and all that it printed.
func towpath(t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), asTowpath+"=1")
	out, err := c.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// process is a running `towpath run`.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	http  string
	ended chan struct{}

	mu      sync.Mutex
	log     bytes.Buffer
	changed chan struct{}
}

// start runs a relay of the configuration.
func start(t *testing.T, config string) *process {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, ended: make(chan struct{}), changed: make(chan struct{})}
	p.http = regexp.MustCompile(`127\.0\.0\.1:\d+"}\nlog`).FindString(string(text))
	p.http = strings.TrimSuffix(p.http, "\"}\nlog")
	p.cmd = exec.Command(os.Args[0], "run", "-c", config)
	p.cmd.Env = append(os.Environ(), asTowpath+"=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of process %d:\n%s", p.cmd.Process.Pid, p.text())
		}
	})
	return p
}

// Write gathers the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	close(p.changed)
	p.changed = make(chan struct{})
	return len(b), nil
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop ends the process in good order.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.t.Fatal("the process did not end within 30 s of SIGTERM")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("the process ended with exit code %d after SIGTERM", code)
	}
}

// says waits until the log has a text, the nth time.
func (p *process) says(text string, nth int) {
	p.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		p.mu.Lock()
		found := strings.Count(p.log.String(), text) >= nth
		changed := p.changed
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-p.ended:
			p.t.Fatalf("the process ended before its log said %q", text)
		case <-deadline:
			p.t.Fatalf("the log did not say %q within 60 s", text)
		}
	}
}

// publishing waits until the process may publish.
func (p *process) publishing() { p.t.Helper(); p.says("\tpublishing\t", 1) }

// get asks the HTTP side, 0 and "" while it does not answer.
func (p *process) get(path string) (int, string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + p.http + path)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(answer.Body)
	return answer.StatusCode, b.String()
}

// metric reads one series, 0 while the HTTP side does not answer.
func (p *process) metric(name string) (value float64) {
	_, text := p.get("/metrics")
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, name) {
			fmt.Sscan(l[strings.LastIndexByte(l, ' '):], &value)
		}
	}
	return value
}

// inbox records every message that arrives, in order.
type inbox struct {
	t *testing.T

	mu      sync.Mutex
	arrived []string // message ids, duplicates included
	bodies  map[string]string
	changed chan struct{}
}

// consume declares a queue and records what arrives in it until the test ends;
// it connects again after the broker was away.
func consume(t *testing.T, v lab.Vhost, queue string) *inbox {
	t.Helper()
	in := &inbox{t: t, bodies: map[string]string{}, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	ready := make(chan struct{})
	wg.Go(func() {
		for ctx.Err() == nil {
			in.session(ctx, v, queue, ready)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatal("the consumer could not connect")
	}
	return in
}

func (in *inbox) session(ctx context.Context, v lab.Vhost, queue string, ready chan struct{}) {
	c, err := amqp.DialConfig(v.URL(), amqp.Config{Heartbeat: 2 * time.Second})
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.CloseDeadline(time.Now().Add(time.Second)) })()
	ch, err := c.Channel()
	if err != nil {
		return
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	select {
	case <-ready:
	default:
		close(ready)
	}
	for d := range deliveries {
		in.mu.Lock()
		in.arrived = append(in.arrived, d.MessageId)
		in.bodies[d.MessageId] = string(d.Body)
		close(in.changed)
		in.changed = make(chan struct{})
		in.mu.Unlock()
		if d.Ack(false) != nil {
			return
		}
	}
}

// ids returns what has arrived so far.
func (in *inbox) ids() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.arrived)
}

// holds waits until every one of the ids has arrived.
func (in *inbox) holds(ids []string) {
	in.t.Helper()
	deadline := time.After(90 * time.Second)
	for {
		in.mu.Lock()
		missing := 0
		for _, id := range ids {
			if _, ok := in.bodies[id]; !ok {
				missing++
			}
		}
		changed := in.changed
		in.mu.Unlock()
		if missing == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			in.t.Fatalf("%d of %d messages did not arrive within 90 s", missing, len(ids))
		}
	}
}

// account compares what arrived with what was committed, id by id, and returns
// the number of duplicates.
func (in *inbox) account(committed []string) (duplicates int) {
	in.t.Helper()
	want := map[string]int{}
	for _, id := range committed {
		want[id] = 0
	}
	for _, id := range in.ids() {
		if _, ok := want[id]; !ok {
			in.t.Errorf("message %s arrived, which nobody committed (P1)", id)
			continue
		}
		want[id]++
	}
	for id, n := range want {
		if n == 0 {
			in.t.Errorf("message %s was committed and never arrived (P2)", id)
		}
		duplicates += max(0, n-1)
	}
	return duplicates
}
