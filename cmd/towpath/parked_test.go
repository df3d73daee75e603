package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

const boundTable = `    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: shop, routing_key: "{type}", type: "{type}", content_type: application/json, headers: {aggregate: "{aggregate}"}}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED}
    retry: {base: 200ms, factor: 2, max: 500ms, attempts: 3}
    fallback: {every: 500ms}
`

// bound makes the rig publish through an exchange that the test can bind.
func (r *rig) bound() *amqp.Channel {
	r.t.Helper()
	r.table = boundTable
	ch := r.channel()
	declareExchange(r.t, r.vhost, "shop")
	r.bind("orders", "created", "shop")
	return ch
}

func TestParkedRowsAreListedShownRetriedAndDiscarded(t *testing.T) {
	r := oneServer(t)
	ch := r.bound()
	config := r.config()
	r.init(config)
	ok := func(args ...string) string {
		t.Helper()
		code, out := towpath(t, append(append([]string{"parked"}, args...), "-c", config)...)
		if code != 0 {
			t.Fatalf("parked %v: exit code %d: %s", args, code, out)
		}
		return out
	}
	fails := func(want int, says string, args ...string) {
		t.Helper()
		if code, out := towpath(t, append(append([]string{"parked"}, args...), "-c", config)...); code != want || !strings.Contains(out, says) {
			t.Errorf("parked %v: exit code %d, want %d saying %q: %s", args, code, want, says, out)
		}
	}
	if out := ok("list"); !strings.Contains(out, "no parked rows") {
		t.Errorf("list of nothing: %s", out)
	}
	who := []string{"--operator", "ann", "--reason", "the binding is back"}
	fails(exitUsage, "--operator and --reason are required", "retry", "--all")
	fails(exitUsage, "--all", append([]string{"retry"}, who...)...)
	fails(exitUsage, `--state "lost" is not one of`, "list", "--state", "lost")
	fails(exitUsage, "have ended", append([]string{"discard", "--state", "sent"}, who...)...)
	fails(exitFailed, "no relay leads stream shop", append([]string{"discard", "--all", "--wait", "300ms"}, who...)...)
	if n := r.count("SELECT COUNT(*) FROM " + r.state + ".request"); n != 0 {
		t.Errorf("%d requests are left that nobody waits for", n)
	}

	p := start(t, config)
	p.publishing()
	for i := 1; i <= 6; i++ {
		r.exec("INSERT INTO outbox (id, aggregate, type, payload) VALUES (?, ?, 'lost', ?)", i, i%2, fmt.Sprintf(`{"secret": %d}`, i))
	}
	r.parked(6)
	lines := strings.Split(strings.TrimSpace(ok("list", "--json", "--key", "1")), "\n")
	if len(lines) != 3 {
		t.Fatalf("list --key 1 has %d lines: %s", len(lines), lines)
	}
	var first struct {
		ID, Key, State, Class, Exchange string
		RoutingKey                      string `json:"routing_key"`
	}
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.ID != "1" || first.Key != "1" || first.State != "waiting" || first.Exchange != "shop" || first.RoutingKey != "lost" {
		t.Errorf("list --json says %s, %v", lines[0], err)
	}
	if out := ok("list"); strings.Count(out, "\n") != 7 || !strings.Contains(out, "behind") || strings.Contains(out, "secret") {
		t.Errorf("list says:\n%s", out)
	}
	if out := ok("list", "--older-than", "1h"); !strings.Contains(out, "no parked rows") {
		t.Errorf("list --older-than 1h says %s", out)
	}
	if out := ok("show", "3"); strings.Contains(out, "secret") || !strings.Contains(out, `"class": "behind"`) {
		t.Errorf("show says %s", out)
	}
	if out := ok("show", "--body", "3"); !strings.Contains(out, `{\"secret\": 3}`) || !strings.Contains(out, `"aggregate": "1"`) && !strings.Contains(out, `"aggregate": 1`) {
		t.Errorf("show --body says %s", out)
	}
	fails(exitFailed, "no parked row has the message id 77", "show", "77")
	fails(exitFailed, "no parked row has the message id 77", append([]string{"discard", "--id", "77"}, who...)...)

	// Row 3 waits behind row 1 and is not under way: it is given up at once.
	if out := ok(append([]string{"discard", "--json", "--id", "3"}, who...)...); out != `{"rows":1,"changed":1,"under_way":0,"ended":0}`+"\n" {
		t.Errorf("discard says %s", out)
	}
	p.kill()
	p = start(t, config)
	p.publishing()
	if err := ch.QueueBind("orders", "lost", "shop", false, nil); err != nil {
		t.Fatal(err)
	}
	ok(append([]string{"retry", "--all"}, who...)...)
	r.inbox.holds([]string{"1", "2", "4", "5", "6"})
	r.parked(0)
	p.stop()
	r.inbox.account([]string{"1", "2", "4", "5", "6"})
	if n := r.count("SELECT COUNT(*) FROM outbox WHERE status = 'FAILED' AND id = 3"); n != 1 {
		t.Error("the discarded row does not show it")
	}
	if n := r.count("SELECT COUNT(*) FROM " + r.state + ".audit WHERE operator='ann' AND reason='the binding is back' AND action IN ('parked.discard', 'parked.retry')"); n != 3 {
		t.Errorf("%d changes are in the audit, want 3", n)
	}
}

// A binding comes and goes while relays are killed at any moment.
func TestKilledWhileRowsAreParkedARelayLosesNothingAndKeepsTheOrder(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		ch := r.bound()
		config := r.config()
		p := r.running(config)
		s := r.trade(3)
		random := rand.New(rand.NewPCG(7, 2))
		for round := range 8 {
			var err error
			if round%2 == 0 {
				err = ch.QueueUnbind("orders", "created", "shop", nil)
			} else {
				err = ch.QueueBind("orders", "created", "shop", false, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.traded(10 + random.IntN(80))
			p.kill()
			p = start(t, config)
			if random.IntN(3) > 0 {
				p.publishing()
			}
		}
		p.publishing()
		committed := s.stop()
		r.inbox.holds(committed)
		r.parked(0)
		duplicates := r.inbox.account(committed)
		s.inOrder()
		if n := r.count("SELECT COUNT(*) FROM outbox WHERE status='FAILED'"); n != 0 {
			t.Errorf("%d rows failed in an outage (P8)", n)
		}
		p.stop()
		t.Logf("%d committed, %d duplicates in 8 kills", len(committed), duplicates)
	})
}
