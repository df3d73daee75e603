package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab/labtest"
)

// It sets the environment and cuts every connection of the broker, so it does
// not run beside other tests.
func TestSecretsAndPayloadsAppearNowhere(t *testing.T) {
	r := newRig(t, labtest.MySQL(t, servers[0]), labtest.Rabbit(t, newestRabbit))
	secrets := map[string]string{
		"MYSQL": "sekret-mysql-7f3a", "WRONG": "sekret-wrong-51cc", "AMQP": "sekret-amqp-90be", "TOKEN": "sekret-token-44d1", "FILE": "sekret-file-c0de", "PUBLIC": "queue-name",
	}
	const payload = "sekret-payload-e1f2"
	r.exec("CREATE USER 'sekretary'@'%' IDENTIFIED BY '" + secrets["MYSQL"] + "'")
	t.Cleanup(func() { _, _ = r.mysql.RootDB().Exec("DROP USER 'sekretary'@'%'") })
	r.exec("GRANT ALL ON *.* TO 'sekretary'@'%'")
	if _, err := r.rabbit.Eval(t.Context(), fmt.Sprintf(`ok = rabbit_auth_backend_internal:change_password(<<"%s">>, <<"%s">>, <<"test">>).`, r.vhost.User.Name, secrets["AMQP"])); err != nil {
		t.Fatal(err)
	}
	for name, value := range secrets {
		t.Setenv("SEKRET_"+name, value)
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(secrets["FILE"]), 0o600); err != nil {
		t.Fatal(err)
	}
	sound := r.config()
	replaced(t, sound, "user: root}", `user: sekretary, password: "${SEKRET_MYSQL}"}`,
		r.vhost.User.Name+":"+r.vhost.Password+"@", r.vhost.User.Name+":${SEKRET_AMQP}@",
		"log: {format: console}", "log: {format: json, level: debug}",
		`http: {listen: `, `http: {token_file: "`+tokenFile+`", listen: `,
		"checkpoint: {every", "drain_timeout: 2s\ncheckpoint: {every")
	variant := func(pairs ...string) string {
		text, err := os.ReadFile(sound)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "variant.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		replaced(t, path, pairs...)
		return path
	}
	var said strings.Builder
	runs := func(args ...string) {
		_, out := towpath(t, args...)
		fmt.Fprintf(&said, "%v:\n%s\n", args, out)
	}
	runs("init", "-c", sound)

	// A relay that works, with a row of each fate and its broker's connections cut.
	r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (1, 'created', ?), (2, ?, ?)", `{"a":"`+payload+`"}`, "created", `{"b":"`+payload+`"}`)
	p := start(t, sound)
	p.says(`"publishing"`, 1)
	r.inbox.holds([]string{"1", "2"})
	r.exec("ALTER TABLE outbox MODIFY type VARCHAR(400)")
	r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (3, ?, ?)", strings.Repeat(payload, 20), `{"c":"`+payload+`"}`)
	r.failed(1)
	if err := r.rabbit.CloseConnections(t.Context(), "a test"); err != nil {
		t.Fatal(err)
	}
	p.says(`"lane down"`, 1)
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/api/v1/status"} {
		_, text := p.get(path)
		said.WriteString(text)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	said.Write(line)
	for _, args := range [][]string{{"check"}, {"check", "--json"}, {"grants"}, {"suggest", "--table", r.schema + ".outbox"}, {"status"}} {
		runs(append(args, "-c", sound)...)
	}
	p.signal(os.Interrupt)
	<-p.ended
	said.WriteString(p.text())

	// And ones that fail, each in its own way.
	for _, c := range [][]string{
		{`password: "${SEKRET_MYSQL}"`, `password: "${SEKRET_WRONG}"`},
		{"${SEKRET_AMQP}@", "${SEKRET_WRONG}@"},
		{"${SEKRET_AMQP}@", "${SEKRET_WRONG}:x@"},
		{"source: {address: \"" + r.source, "source: {address: \"127.0.0.1:1"},
		{r.broker, "127.0.0.1:1"},
		{`routing_key: orders`, `routing_key: "${SEKRET_PUBLIC}"`},
		{`type: "{type}"`, `type: "{${SEKRET_PUBLIC}}"`},
		{"heartbeat: 2s", "heartbeat: ${SEKRET_WRONG}"},
		{"urls: [\"amqp://", "urls: [\"http://"},
		{"urls: [\"amqp://", "urls: [\"amqp://%zz"},
	} {
		runs("check", "-c", variant(c...))
	}
	all := said.String()
	if !strings.Contains(all, "ok    source") || !strings.Contains(all, "Access denied") || !strings.Contains(all, "towpath_leading") || !strings.Contains(all, `"level":"debug"`) {
		t.Errorf("the runs did not say what they should:\n%.4000s", all)
	}
	for name, value := range secrets {
		if name == "PUBLIC" { // the name of a queue
			continue
		}
		if i := strings.Index(all, value); i >= 0 {
			t.Errorf("the secret %s is shown: ...%s...", name, all[max(0, i-300):min(len(all), i+60)])
		}
	}
	if i := strings.Index(all, payload); i >= 0 {
		t.Errorf("a payload is shown: ...%s...", all[max(0, i-300):min(len(all), i+60)])
	}
	var parked int
	if err := r.db.QueryRow("SELECT COUNT(*) FROM "+r.state+".parked WHERE reason LIKE ?", "%"+payload+"%").Scan(&parked); err != nil || parked != 0 {
		t.Errorf("%d reasons of parked rows show a payload: %v", parked, err)
	}
}
