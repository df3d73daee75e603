package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// replaced writes text over a file.
func replaced(t *testing.T, path string, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("%s has no %q", path, pairs[i])
		}
	}
	if err := os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSQLInTheNameOfATableIsRefusedInTheConfigurationAndQuotedOnTheServer(t *testing.T) {
	r := oneServer(t)
	for _, name := range []string{"outbox`; DROP TABLE outbox; -- ", "outbox WHERE 1=1", "out box", "x'; DROP DATABASE " + r.schema} {
		code, out := towpath(t, "check", "--offline", "-c", r.edited(r.schema+".outbox", `"`+r.schema+"."+name+`"`))
		if code != 1 || !strings.Contains(out, "tables[0].table") {
			t.Errorf("table %q: exit code %d: %s", name, code, out)
		}
	}
	for _, old := range []string{"body: payload", "column: status"} {
		key, _, _ := strings.Cut(old, ":")
		if code, out := towpath(t, "check", "--offline", "-c", r.edited(old, key+": \"payload` = 1; DROP TABLE outbox; -- \"")); code != 1 {
			t.Errorf("a column's name: exit code %d: %s", code, out)
		}
	}

	// A glob can match a table of any name: it is quoted everywhere.
	const odd = "we``ird'; DROP TABLE witness; -- outbox"
	r.exec("CREATE TABLE witness (id INT)")
	r.exec("CREATE TABLE `" + odd + "` LIKE outbox")
	config := r.edited(r.schema+".outbox", r.schema+`.*outbox`)
	r.init(config)
	if code, out := towpath(t, "check", "-c", config); code != 0 {
		t.Errorf("check: exit code %d: %s", code, out)
	}
	r.exec("INSERT INTO `" + odd + "` (id, aggregate, payload) VALUES (1, 1, '{}')") // found by the first sweep
	p := start(t, config)
	p.publishing()
	r.inbox.holds([]string{"1"})
	r.exec("INSERT INTO `" + odd + "` (id, aggregate, payload) VALUES (2, 1, '{}')")
	r.inbox.holds([]string{"2"})
	p.stop()
	var sent, witness int
	if err := r.db.QueryRow("SELECT (SELECT COUNT(*) FROM `"+odd+"` WHERE status = 'SENT'), (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'witness')").Scan(&sent, &witness); err != nil {
		t.Fatal(err)
	}
	if sent != 2 || witness != 1 {
		t.Errorf("%d rows are marked, want 2; the witness is there %d times", sent, witness)
	}
}

func TestAValueCannotBecomeAHeaderARouteOrALogLineOfItsOwn(t *testing.T) {
	r := oneServer(t)
	r.exec("ALTER TABLE outbox MODIFY type VARCHAR(400), ADD COLUMN meta JSON")
	conn, err := amqp.Dial(r.vhost.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"plain", "other"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	deliveries, err := ch.Consume("plain", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	config := r.edited(`routing_key: orders, type: "{type}"`, `routing_key: plain, type: "{type}", headers: {kind: "{type}"}, headers_from: meta`)
	p := r.running(config)
	const crafted = "a\r\nx-evil: 1\r\n\r\nGET / \x1b[31m"
	r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (1, ?, '{}')", crafted)
	select {
	case d := <-deliveries:
		if d.Type != crafted || d.Headers["kind"] != crafted || len(d.Headers) != 1 {
			t.Errorf("type %q, headers %q", d.Type, d.Headers)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no message within 30 s")
	}
	// RabbitMQ takes CC and BCC as further routing keys: such a row is refused.
	r.exec(`INSERT INTO outbox (aggregate, type, payload, meta) VALUES (2, 'created', '{}', '{"CC": ["other"]}'), (3, 'created', '{}', '{"BCC": "other"}')`)
	// A value too long for a property, with line breaks in it, is refused as well.
	r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (4, ?, '{}')", strings.Repeat("x", 280)+"\n{\"level\":\"error\",\"forged\":1}")
	r.failed(3)
	p.stop()
	for line := range strings.Lines(p.text()) {
		if strings.HasPrefix(line, `{"level"`) || strings.Contains(line, "x-evil") {
			t.Errorf("a value made a line of the log: %q", line)
		}
	}
	if q, err := ch.QueueDeclarePassive("other", true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("%d messages by way of CC: %v", q.Messages, err)
	}
}

func TestTheHTTPSideAsksForItsTokenBoundsRequestsAndHasNoProfiler(t *testing.T) {
	r := oneServer(t)
	config := r.config()
	replaced(t, config, `http: {listen: "127.0.0.1:`, `http: {token_file: "`+config+`.token", listen: "0.0.0.0:`)
	if err := os.WriteFile(config+".token", []byte("right-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := r.running(config)
	text, _ := os.ReadFile(config)
	_, port, _ := strings.Cut(string(text), "0.0.0.0:")
	port, _, _ = strings.Cut(port, `"`)
	p.http = "127.0.0.1:" + port
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string, header http.Header, body io.Reader) int {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.http+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			q.Header[k] = v
		}
		a, err := client.Do(q)
		if err != nil {
			t.Logf("%s %s: %v", method, path, err)
			return 0
		}
		defer a.Body.Close()
		_, _ = io.Copy(io.Discard, a.Body)
		return a.StatusCode
	}
	auth := func(v ...string) http.Header { return http.Header{"Authorization": v} }
	for _, h := range []http.Header{nil, auth("Bearer wrong-token"), auth("Bearer"), auth("Bearer "), auth("right-token"), auth("Basic right-token"), auth("Bearer right-token2"), auth("Bearer right-toke"), auth("Bearer right-token\t"), auth("bearer  right-token")} {
		if code := ask("GET", "/api/v1/status", h, nil); code != 401 && !(h != nil && strings.HasSuffix(h.Get("Authorization"), "\t")) {
			t.Errorf("status with %q is %d, want 401", h, code)
		}
	}
	if code := ask("GET", "/api/v1/status", auth("Bearer right-token"), nil); code != 200 {
		t.Errorf("status with the token is %d", code)
	}
	if err := os.WriteFile(config+".token", []byte("changed-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := ask("GET", "/api/v1/status", auth("Bearer right-token"), nil); code != 401 {
		t.Errorf("status with the former token is %d", code)
	}
	if code := ask("GET", "/api/v1/status", auth("Bearer changed-token"), nil); code != 200 {
		t.Errorf("status with the changed token is %d", code)
	}
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/debug/pprof/": 404, "/debug/vars": 404, "/": 404, "/../etc/passwd": 404} {
		if code := ask("GET", path, nil, nil); code != want {
			t.Errorf("%s is %d, want %d", path, code, want)
		}
	}
	if code := ask("POST", "/metrics", nil, strings.NewReader("x")); code != 405 {
		t.Errorf("a POST is %d", code)
	}
	if code := ask("GET", "/metrics", http.Header{"X-Large": {strings.Repeat("x", 64<<10)}}, nil); code != 431 {
		t.Errorf("a large header is %d", code)
	}
	// One that sends no whole request is cut off.
	slow, err := net.Dial("tcp", p.http)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	if err := slow.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, slow); err != nil {
		t.Errorf("a slow request was not ended: %v", err)
	}
	// And one with an endless body does not keep the relay from answering.
	endless, err := net.Dial("tcp", p.http)
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	fmt.Fprint(endless, "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n")
	if line, err := bufio.NewReader(endless).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Errorf("a request with a body: %q %v", line, err)
	}
	p.stop()
}

func TestExpiredCertificatesAreRefusedWhereTheyAreChecked(t *testing.T) {
	mysql := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL", TLS: true})
	rabbit := labtest.OwnRabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43, TLS: true})
	r := newRig(t, mysql, rabbit)
	config := r.config()
	replaced(t, config,
		"user: root}", fmt.Sprintf(`user: root, tls: {mode: verify, ca: "%s"}}`, mysql.Certificates().CA),
		r.vhost.URLAt(r.broker), r.vhost.TLSURLAt(rabbit.TLSAddr()),
		"heartbeat: 2s}", fmt.Sprintf(`heartbeat: 2s, tls: {ca: "%s"}}`, rabbit.Certificates().CA))
	r.init(config)
	if code, out := towpath(t, "check", "-c", config); code != 0 || strings.Contains(out, "fail ") {
		t.Fatalf("good certificates: exit code %d: %s", code, out)
	}
	expire := func(c *lab.Certificates) {
		t.Helper()
		ended, err := c.Ended("ended", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{ended.Cert: c.Server.Cert, ended.Key: c.Server.Key} {
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	expire(rabbit.Certificates())
	if err := rabbit.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func(what, config string) {
		t.Helper()
		if code, out := towpath(t, "check", "-c", config); code != 1 || !strings.Contains(out, "fail  "+what) || !strings.Contains(out, "certificate has expired") {
			t.Errorf("%s with an expired certificate: exit code %d: %s", what, code, out)
		}
	}
	refused("amqps://", config)
	// A relay waits, and publishes nothing over such a connection.
	p := start(t, config)
	p.says("certificate has expired", 1)
	r.exec("INSERT INTO outbox (aggregate, payload) VALUES (1, '{}')")
	if p.metric(`towpath_lane_up{lane="0"`) != 0 {
		t.Error("a lane is up")
	}
	p.kill()

	expire(mysql.Certificates())
	if err := mysql.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("source", config)
	if code, out := towpath(t, "run", "-c", config); code != 1 || !strings.Contains(out, "certificate has expired") {
		t.Errorf("run: exit code %d: %s", code, out)
	}
	// preferred and required encrypt and check nothing: it says so in the documentation.
	replaced(t, config, "mode: verify, ca: \""+mysql.Certificates().CA+"\"", "mode: required")
	if _, out := towpath(t, "check", "-c", config); !strings.Contains(out, "ok    source") {
		t.Errorf("mode required: %s", out)
	}
}

func TestAServerThatAsksForAFileOfTheClientsGetsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(file, []byte("root:secret-of-the-client\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := lab.StartInfileServer(file)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := oneServer(t)
	r.source = server.Addr()
	config := r.config()
	for _, args := range [][]string{{"check", "-c", config}, {"init", "-c", config}, {"suggest", "--table", "a.b", "-c", config}} {
		if code, out := towpath(t, args...); code != 1 || strings.Contains(out, "secret-of") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
	if asked, got := server.Asked(); asked == 0 || len(got) > 0 {
		t.Errorf("asked %d times, it got %q", asked, got)
	}
}
