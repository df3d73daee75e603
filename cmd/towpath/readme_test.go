package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/relay"
)

// names is a registerer that notes what is registered.
type names struct {
	prometheus.Registerer
	seen map[string]bool
}

func (n names) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 64)
	c.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		if m := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String()); m != nil {
			n.seen[m[1]] = true
		}
	}
	return nil
}

func (n names) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = n.Register(c)
	}
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// listed collects the first group of each match.
func listed(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(readme(t), -1) {
		found[m[1]] = true
	}
	return found
}

func sameNames(t *testing.T, what string, inReadme, inCode map[string]bool) {
	t.Helper()
	if len(inCode) == 0 {
		t.Fatalf("the code has no %s", what)
	}
	for name := range inCode {
		if !inReadme[name] {
			t.Errorf("the README does not list the %s %s", what, name)
		}
	}
	for name := range inReadme {
		if !inCode[name] {
			t.Errorf("the README lists the %s %s, which does not exist", what, name)
		}
	}
}

func TestTheReadmeListsEveryMetric(t *testing.T) {
	n := names{prometheus.NewRegistry(), map[string]bool{}}
	relay.NewMetrics(n, "shop")
	sameNames(t, "metric", listed(t, "(?m)^\\| `(towpath_[a-z_]+)` \\|"), n.seen)
}

func TestTheReadmeListsEveryCommand(t *testing.T) {
	commands := map[string]bool{}
	root := newRoot()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			commands[c.Name()] = true
		}
	}
	sameNames(t, "command", listed(t, "(?m)^\\| `towpath ([a-z]+)` \\|"), commands)
}
