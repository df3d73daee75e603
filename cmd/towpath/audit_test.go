package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

func TestTheAuditIsListedNewestFirstAndChosenByActionPersonAndTime(t *testing.T) {
	r := oneServer(t)
	config := r.config()
	r.init(config)
	if code, out := towpath(t, "audit", "-c", config); code != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("of nothing: exit code %d: %s", code, out)
	}
	r.exec("INSERT INTO " + r.state + `.audit (stream, at, term, holder, action, operator, reason, detail) VALUES
		('shop', UTC_TIMESTAMP(6) - INTERVAL 3 HOUR, 1, 'a/1/x', 'gap', '', '', '{"kind": "purged"}'),
		('shop', UTC_TIMESTAMP(6) - INTERVAL 2 HOUR, 1, 'a/1/x', 'replay', 'ann', 'new consumer', '{"sent": 7}'),
		('other', UTC_TIMESTAMP(6) - INTERVAL 2 HOUR, 1, 'a/1/x', 'replay', 'ann', 'of another stream', '{}'),
		('shop', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, 2, 'b/2/y', 'resume', 'bob', 'bell \a and line\nbreak', '{}')`)
	listed := func(args ...string) (actions string) {
		t.Helper()
		code, out := towpath(t, append([]string{"audit", "-c", config, "--json"}, args...)...)
		if code != 0 {
			t.Fatalf("audit %v: exit code %d: %s", args, code, out)
		}
		for line := range strings.Lines(out) {
			var e checkpoint.Audit
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("audit %v: %v: %s", args, err, line)
			}
			actions += e.Action + " "
		}
		return actions
	}
	for want, args := range map[string][]string{
		"resume replay gap ": nil,
		"resume replay ":     {"--limit", "2"},
		"gap ":               {"--action", "gap"},
		"replay ":            {"--operator", "ann"},
		"resume ":            {"--since", "90m"},
		"replay gap ":        {"--until", "90m"},
		"":                   {"--operator", "ann", "--action", "resume"},
	} {
		if got := listed(args...); got != want {
			t.Errorf("audit %v lists %q, want %q", args, got, want)
		}
	}
	code, out := towpath(t, "audit", "-c", config)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[0], "AT ") ||
		!strings.Contains(lines[1], "bob") || !strings.Contains(lines[1], "line?break") || strings.Contains(out, "\a") || !strings.Contains(lines[2], `{"sent": 7}`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for want, args := range map[string][]string{
		"neither a time":        {"--since", "yesterday"},
		"--limit must be at le": {"--limit", "0"},
	} {
		if code, out := towpath(t, append([]string{"audit", "-c", config}, args...)...); code != exitUsage || !strings.Contains(out, want) {
			t.Errorf("audit %v: exit code %d: %s", args, code, out)
		}
	}
}
