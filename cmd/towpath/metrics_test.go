package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// served runs a relay, sends a row, and returns its /metrics.
func served(t *testing.T) string {
	t.Helper()
	r := oneServer(t)
	config := r.config()
	p := r.running(config)
	s := r.trade(1)
	s.traded(10)
	r.inbox.holds(s.stop())
	code, text := p.get("/metrics")
	if code != 200 {
		t.Fatalf("/metrics is %d", code)
	}
	p.stop()
	return text
}

func TestEveryQueryOfTheDashboardAndTheAlertsNamesARealMetric(t *testing.T) {
	text := served(t)
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	labels := labelsOf(text)
	queries := dashboardQueries(t)
	if len(queries) < 30 {
		t.Errorf("the dashboard has %d queries", len(queries))
	}
	alerts, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`expr: \|-\n\s+(.*)`).FindAllStringSubmatch(string(alerts), -1) {
		queries = append(queries, line[1])
	}
	shown := map[string]bool{}
	for _, q := range queries {
		q = strings.ReplaceAll(q, "$__rate_interval", "5m")
		for _, m := range regexp.MustCompile(`((?:towpath|process|go)_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(q, -1) {
			known, exists := labels[m[1]]
			if !exists {
				t.Errorf("%s is no metric of a relay: %s", m[1], q)
				continue
			}
			shown[strings.TrimSuffix(m[1], "_bucket")] = true
			for _, matcher := range strings.Split(m[2], ",") {
				if name, _, _ := strings.Cut(matcher, "="); name != "" && !known[strings.TrimRight(name, "!~")] {
					t.Errorf("%s has no label %s: %s", m[1], name, q)
				}
			}
			for _, by := range regexp.MustCompile(`sum by \(([^)]*)\) \(`+regexp.QuoteMeta(m[0])).FindAllStringSubmatch(q, -1) {
				for _, name := range strings.Split(by[1], ", ") {
					if !known[name] {
						t.Errorf("%s has no label %s: %s", m[1], name, q)
					}
				}
			}
		}
	}
	// And the other way round: what is measured is shown.
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if strings.HasPrefix(name, "towpath_") && !shown[base] {
			t.Errorf("neither the dashboard nor an alert shows %s", name)
		}
	}
}

// labelsOf lists the labels of each series in a text of metrics.
func labelsOf(text string) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		for _, m := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(rest, -1) {
			all[name][m[1]] = true
		}
	}
	return all
}

func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/towpath.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || board.UID != "towpath" {
		t.Fatalf("the dashboard cannot be read: %v", err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	return queries
}
