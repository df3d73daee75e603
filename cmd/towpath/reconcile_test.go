package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	consumed "github.com/towpath/towpath/relay/inbox"
)

func TestReconcileTellsCronByItsExitCodeAndAlertsByItsMetrics(t *testing.T) {
	r := oneServer(t)
	ddl, err := os.ReadFile("../../deploy/sql/inbox.sql")
	if err != nil {
		t.Fatal(err)
	}
	r.exec(string(ddl))
	r.exec("ALTER TABLE outbox ADD COLUMN created_at DATETIME(6) NOT NULL")
	r.exec("INSERT INTO outbox (aggregate, payload, status, created_at) VALUES (1,'{}','SENT',UTC_TIMESTAMP(6) - INTERVAL 1 HOUR), (1,'{}','SENT',UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)")
	process := func(id string) {
		content := consumed.Content("created", []byte("{}"))
		r.exec("INSERT INTO towpath_inbox VALUES ('billing', ?, ?, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)", id, content[:])
	}
	process("1")
	figures := filepath.Join(t.TempDir(), "towpath.prom")
	r.table = markTable + "    fallback: {every: 1s}\n"
	config := r.config()
	common := []string{"reconcile", "-c", config, "--consumer", "billing", "--time-column", "created_at"}
	complete := slices.Concat(common, []string{"--complete-since", "2026-01-01T00:00:00Z"})

	code, out := towpath(t, slices.Concat(complete, []string{"--json", "--metrics-file", figures})...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var difference struct {
		Class string `json:"class"`
		ID    string `json:"message_id"`
	}
	var summary struct{ Sent, Processed, Missing int }
	if code != 1 || len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &difference) != nil || json.Unmarshal([]byte(lines[1]), &summary) != nil {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	if difference.Class != "missing" || difference.ID != "2" || summary.Sent != 2 || summary.Processed != 1 || summary.Missing != 1 {
		t.Errorf("output:\n%s", out)
	}
	text, err := os.ReadFile(figures)
	if err != nil || !strings.Contains(string(text), `towpath_reconcile_missing{consumer="billing",table="`+r.schema+`.outbox"} 1`) {
		t.Errorf("metrics: %v\n%s", err, text)
	}

	// What is missing is sent again, under its own id, and audited.
	replay := slices.Concat(complete, []string{"--replay-missing", "--operator", "ann", "--reason", "queue was purged"})
	if code, out := towpath(t, replay[:len(replay)-2]...); code != exitUsage || !strings.Contains(out, "--reason are required") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := towpath(t, "init", "-c", config); code != 0 {
		t.Fatal(out)
	}
	// One more is missing that the application has moved on: it is left alone.
	r.exec("INSERT INTO outbox (aggregate, payload, status, created_at) VALUES (1,'{}','DONE',UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)")
	start(t, config).publishing()
	if code, out := towpath(t, replay...); code != 1 || !strings.Contains(out, "missing 2, unknown 0, different 0, unjudged 0, unsent 0, marked done 0, replayed 1,") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	r.inbox.holds([]string{"2"})
	var audited string
	if err := r.db.QueryRow("SELECT CONCAT_WS('|', action, operator, reason, JSON_EXTRACT(detail, '$.args.ids'), JSON_EXTRACT(detail, '$.result.sent')) FROM " + r.state +
		".audit WHERE action='replay'").Scan(&audited); err != nil || audited != `replay|ann|queue was purged|["2", "3"]|1` {
		t.Errorf("audit: %s, %v", audited, err)
	}
	r.counts(1, "outbox WHERE id = 2 AND status = 'SENT'")
	if ids := r.inbox.ids(); !slices.Equal(ids, []string{"2"}) {
		t.Errorf("messages %v", ids)
	}

	var status string
	if err := r.db.QueryRow("SELECT status FROM outbox WHERE id=3").Scan(&status); err != nil || status != "DONE" {
		t.Errorf("the application's status is now %s, %v", status, err)
	}
	process("2")
	process("3")
	// The inbox at an address of its own, with a password that no command line shows.
	user, err := r.mysql.NewUser(t.Context(), "SELECT ON "+r.schema+".towpath_inbox")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(user.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out = towpath(t, slices.Concat(complete, []string{"--mark-done", "DONE", "--operator", "ann", "--reason", "nightly",
		"--inbox-address", r.mysql.Addr(), "--inbox-user", user.Name, "--inbox-password-file", secret})...)
	if code != 0 || !strings.Contains(out, "sent 3, processed 3, missing 0, unknown 0, different 0, unjudged 0, unsent 0, marked done 2") {
		t.Errorf("exit code %d:\n%s", code, out)
	}

	for want, args := range map[string][]string{
		"--consumer is missing":      {"reconcile", "-c", config},
		"is no time as":              slices.Concat(common, []string{"--from", "yesterday"}),
		"go with --inbox-address":    slices.Concat(common, []string{"--inbox-user", "x"}),
		"--inbox-table wants schema": slices.Concat(common, []string{"--inbox-table", "inbox"}),
		"--reason are required":      slices.Concat(common, []string{"--mark-done", "DONE"}),
	} {
		if code, out := towpath(t, args...); code != exitUsage || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, want %q:\n%s", args, code, want, out)
		}
	}
	for want, args := range map[string][]string{
		"has no table":           slices.Concat(common, []string{"--table", "no.such"}),
		"gives it another":       slices.Concat(complete, []string{"--mark-done", "SENT", "--operator", "ann", "--reason", "x"}),
		"no column nope":         {"reconcile", "-c", config, "--consumer", "billing", "--time-column", "nope"},
		"has neither publish.ti": {"reconcile", "-c", config, "--consumer", "billing"},
	} {
		if code, out := towpath(t, args...); code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, want %q:\n%s", args, code, want, out)
		}
	}
}
