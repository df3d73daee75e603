package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

var ports sync.Map // given out by freePort

// freePort finds a port that no other test of this process was given, outside of
// the range in which package lab starts its servers.
func freePort(t *testing.T) int {
	t.Helper()
	for range 200 {
		port := 10000 + rand.IntN(10000)
		if _, given := ports.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// programEnv is the environment of the program under test. A process that was
// built with the race detector waits a second at its end unless it is told not to.
func programEnv(more ...string) []string {
	return append(os.Environ(), append([]string{asTowpath + "=1", "GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE")}, more...)...)
}

// towpath runs one command to its end and returns its exit code and all that it printed.
func towpath(t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = programEnv()
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
	p.cmd.Env = programEnv()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if strings.Contains(p.text(), "WARNING: DATA RACE") {
			t.Error("the process had a data race")
		}
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
