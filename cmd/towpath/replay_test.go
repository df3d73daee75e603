package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/towpath/towpath/relay"
)

// replay runs the command and returns its outcome.
func (r *rig) replay(config string, want int, args ...string) (result relay.ReplayResult) {
	r.t.Helper()
	code, out := towpath(r.t, append([]string{"replay", "-c", config, "--table", "outbox", "--json"}, args...)...)
	if code != want {
		r.t.Errorf("replay %v: exit code %d, want %d: %s", args, code, want, out)
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		r.t.Errorf("replay %v: %v: %s", args, err, out)
	}
	return result
}

var asAnn = []string{"--operator", "ann", "--reason", "a consumer lost its database"}

func TestReplaySendsRowsAgainUnderTheirIDsWhileTheStreamGoesOn(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.table = strings.Replace(markTable, "failed: FAILED", "failed: FAILED, withdrawn: [GONE]", 1) + "    name: outbox\n"
		r.exec("ALTER TABLE outbox ADD made DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)")
		config := r.config()
		r.running(config)
		r.exec(`INSERT INTO outbox (aggregate, type, payload) VALUES (7, 'a', '{"n": 1}'), (7, 'a', '{"n": 2}'), (8, 'b', '{"n": 3}'), (9, 'B', '{"n": 4}')`)
		r.inbox.holds([]string{"1", "2", "3", "4"})
		r.marked(4)
		bodies := r.inbox.body("2")
		r.exec("UPDATE outbox SET status='GONE' WHERE id=3")
		r.exec("UPDATE outbox SET made='2020-01-02 03:04:05' WHERE id=4")
		r.exec("INSERT INTO outbox (aggregate, payload, status) VALUES (7, '{}', 'HELD')")

		if got := r.replay(config, 0, "--all", "--dry-run"); !reflect.DeepEqual(got, relay.ReplayResult{Rows: 5, Sent: 3, Withdrawn: 1, Unsent: 1}) {
			t.Errorf("dry run: %+v", got)
		}
		if n := len(r.inbox.ids()); n != 4 {
			t.Errorf("the dry run sent: %d messages", n)
		}
		ids := filepath.Join(t.TempDir(), "ids")
		if err := os.WriteFile(ids, []byte("2\n\n 3 \n4711\n2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := r.replay(config, 1, append(asAnn, "--id-file", ids, "--id", "1")...); !reflect.DeepEqual(got, relay.ReplayResult{Rows: 3, Sent: 2, Withdrawn: 1, Missing: 1}) {
			t.Errorf("by id: %+v", got)
		}
		r.inbox.arrivedTimes("1", 2)
		r.inbox.arrivedTimes("2", 2)
		if r.inbox.body("2") != bodies {
			t.Error("the bytes differ (P5)")
		}
		if got := r.replay(config, 0, append(asAnn, "--until", "2021-01-01", "--by", "made")...); !reflect.DeepEqual(got, relay.ReplayResult{Rows: 1, Sent: 1}) {
			t.Errorf("by time: %+v", got)
		}
		r.inbox.arrivedTimes("4", 2)
		if got := r.replay(config, 0, append(asAnn, "--where", "type=b", "--rate", "100")...); !reflect.DeepEqual(got, relay.ReplayResult{Rows: 1, Withdrawn: 1}) {
			t.Errorf("by column, exactly: %+v", got)
		}
		r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}')")
		r.inbox.holds([]string{"6"})
		if n := r.count("SELECT COUNT(*) FROM outbox WHERE status='SENT'"); n > 4 {
			t.Errorf("%d rows are marked as sent", n)
		}
		for _, id := range []string{"3", "5"} {
			if n := strings.Count(strings.Join(r.inbox.ids(), " "), id); id == "3" && n != 1 || id == "5" && n != 0 {
				t.Errorf("row %s arrived %d times (P10)", id, n)
			}
		}
		if code, out := towpath(t, "audit", "-c", config, "--action", "replay", "--json"); code != 0 || strings.Count(out, `"ann"`) != 3 || !strings.Contains(out, `"sent"`) {
			t.Errorf("audit: exit code %d: %s", code, out)
		}
	})
}

func TestAReplayedRowThatIsRefusedIsCountedAndNotParked(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.table = keepTable + "    name: outbox\n"
		r.table = strings.Replace(r.table, "routing_key: orders", `routing_key: "{type}"`, 1)
		config := r.config()
		r.init(config)
		r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (7, 'nowhere', '{}')") // before the stream begins
		start(t, config).publishing()
		r.position(config)
		r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (7, 'orders', '{}')")
		r.inbox.arrivedTimes("2", 1)
		got := r.replay(config, 1, append(asAnn, "--all")...)
		if got.Rows != 2 || got.Sent != 1 || got.Refused != 1 || !strings.Contains(got.Why, "destination") {
			t.Errorf("got %+v", got)
		}
		r.inbox.arrivedTimes("2", 2)
		if n := r.count("SELECT COUNT(*) FROM " + r.state + ".parked"); n != 0 {
			t.Errorf("%d rows are parked", n)
		}
		r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (7, 'orders', '{}')")
		r.inbox.arrivedTimes("3", 1) // its key is not held up
	})
}

func TestReplayIsRefusedWhereItCannotBeDone(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.exec("ALTER TABLE outbox ADD made DATETIME")
		config := r.config()
		r.init(config)
		for _, args := range [][]string{{"--all"}, append(asAnn, "--table", ""), asAnn, append(asAnn, "--all", "--id", "1"), append(asAnn, "--where", "x"), append(asAnn, "--since", "soon")} {
			if code, out := towpath(t, append([]string{"replay", "-c", config, "--table", r.schema + ".outbox"}, args...)...); code != 2 {
				t.Errorf("replay %v: exit code %d, want 2: %s", args, code, out)
			}
		}
		for want, args := range map[string][]string{
			"start one with towpath run": append(asAnn, "--all", "--wait", "300ms"),
			"no table of the stream":     {"--all", "--dry-run", "--table", "shop.nothing"},
			"needs a column":             {"--since", "1h", "--dry-run"},
			"has no column nothing":      {"--where", "nothing=1", "--dry-run"},
			"cannot be chosen by column": {"--where", "made=1", "--dry-run"},
			"has no time":                {"--since", "1h", "--by", "type", "--dry-run"},
		} {
			if code, out := towpath(t, append([]string{"replay", "-c", config, "--table", r.schema + ".outbox"}, args...)...); code != 1 || !strings.Contains(out, want) {
				t.Errorf("replay %v: exit code %d, want 1 and %q: %s", args, code, want, out)
			}
		}
		if n := r.count("SELECT COUNT(*) FROM " + r.state + ".request"); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

func TestAReplayGoesOnUnderTheNextLeader(t *testing.T) {
	r := oneServer(t)
	r.table = keepTable + "    name: outbox\n"
	config := r.config()
	r.init(config)
	for range 200 {
		r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}')") // before the stream begins
	}
	leader := start(t, config)
	leader.publishing()
	r.standby()
	done := make(chan relay.ReplayResult, 1)
	go func() { done <- r.replay(config, 0, append(asAnn, "--all", "--rate", "50")...) }()
	r.counts(1, r.state+".request WHERE result LIKE '%after%'") // it has told how far it is
	leader.kill()
	if got := <-done; got.Rows != 200 || got.Sent != 200 || got.Refused != 0 {
		t.Errorf("got %+v", got)
	}
	if n := len(r.inbox.ids()); n < 200 || n > 320 { // a page of 50 and what was not told: a bounded number comes twice
		t.Errorf("%d messages for 200 rows", n)
	}
	if code, out := towpath(t, "audit", "-c", config, "--action", "replay"); code != 0 || !strings.Contains(out, `"sent":200`) {
		t.Errorf("audit: exit code %d: %s", code, out)
	}
}
