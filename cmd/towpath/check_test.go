package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/towpath/towpath/relay"
)

func TestCheckDisturbsNoRunningRelayAndPrintsWhatAProgramCanRead(t *testing.T) {
	r := oneServer(t)
	config := r.config()
	if code, out := towpath(t, "check", "-c", config); code != 1 || !strings.Contains(out, "run towpath init") {
		t.Errorf("without state tables: exit code %d: %s", code, out)
	}
	p := r.running(config)
	s := r.trade(2)
	for range 3 {
		s.traded(5)
		code, out := towpath(t, "check", "-c", config, "--json")
		var found []relay.Finding
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != 0 || len(found) < 8 {
			t.Fatalf("exit code %d, %v: %s", code, err, out)
		}
		for _, f := range found {
			if f.Level == relay.Fail || f.What == "" || f.Text == "" || f.Level == relay.Warn && f.Remedy == "" {
				t.Errorf("found %+v", f)
			}
		}
	}
	committed := s.stop()
	r.inbox.holds(committed)
	if duplicates := r.inbox.account(committed); duplicates > 0 || p.metric("towpath_term") != 1 || strings.Contains(p.text(), "lane down") {
		t.Errorf("the relay was disturbed: term %v, %d duplicates", p.metric("towpath_term"), duplicates)
	}
	p.stop()
}

func TestCheckOfTheFileAloneConnectsToNothing(t *testing.T) {
	r := oneServer(t)
	r.source, r.broker = "127.0.0.1:1", "127.0.0.1:1"
	if code, out := towpath(t, "check", "--offline", "-c", r.config()); code != 0 || !strings.Contains(out, "ok    configuration") {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out := towpath(t, "check", "-c", r.config())
	if code != 1 || !strings.Contains(out, "fail  source: ") || !strings.Contains(out, "fail  amqp://127.0.0.1:1/") {
		t.Errorf("with both away: exit code %d: %s", code, out)
	}
}
