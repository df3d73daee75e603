package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/towpath/towpath/checkpoint"
)

const keepTable = `    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: "", routing_key: orders, type: "{type}", content_type: application/json}
    start: now
    after_publish: keep
    on_gap: halt
`

// position reads the saved position, once there is one.
func (r *rig) position(config string) string {
	r.t.Helper()
	var out string
	r.eventually("a position is saved", func() bool {
		var code int
		code, out = towpath(r.t, "position", "show", "-c", config, "--json")
		return code == 0
	})
	return strings.TrimSpace(out)
}

func TestAPositionThatIsSetBackSendsAgainUnderARunningRelay(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.table = keepTable
		config := r.config()
		r.init(config)
		if code, out := towpath(t, "position", "show", "-c", config); code != 1 || !strings.Contains(out, "no position yet") {
			t.Errorf("exit code %d: %s", code, out)
		}
		start(t, config).publishing()
		first := r.position(config)
		r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}')")
		r.inbox.arrivedTimes("1", 1)
		set := []string{"position", "set", "-c", config, "--operator", "ann", "--reason", "restored"}
		code, out := towpath(t, append(set, "--to", first, "--json")...)
		var moved struct {
			From, To checkpoint.Position
			Term     int
		}
		if err := json.Unmarshal([]byte(out), &moved); code != 0 || err != nil || moved.Term != 2 || moved.From.Compare(moved.To) < 0 {
			t.Fatalf("exit code %d, %v: %s", code, err, out)
		}
		r.inbox.arrivedTimes("1", 2) // the deposed relay leads again, from there
		if gtids := moved.To.GTIDs.String(); gtids != "" {
			if code, out := towpath(t, append(set, "--to", "gtid:"+gtids)...); code != 0 {
				t.Fatalf("by GTID: exit code %d: %s", code, out)
			}
			r.inbox.arrivedTimes("1", 3)
		}
		if code, out := towpath(t, "audit", "-c", config, "--action", "position.set"); code != 0 || !strings.Contains(out, "ann") || !strings.Contains(out, "restored") {
			t.Errorf("audit: exit code %d: %s", code, out)
		}
	})
}

func TestAPositionThatIsSetAheadSkipsRowsThatNobodySent(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.table = keepTable
		config := r.config()
		p := r.running(config)
		r.position(config)
		p.stop()
		r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}')")
		if code, out := towpath(t, "position", "set", "-c", config, "--to", "now", "--operator", "ann", "--reason", "test data"); code != 0 || !strings.Contains(out, "under term 2") {
			t.Fatalf("exit code %d: %s", code, out)
		}
		start(t, config).publishing()
		r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}')")
		r.inbox.arrivedTimes("2", 1)
		if ids := r.inbox.ids(); len(ids) != 1 {
			t.Errorf("arrived: %v", ids)
		}
	})
}

func TestAPositionThatCannotBeReadFromIsNotSet(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		config := r.config()
		p := r.running(config)
		before := r.position(config)
		p.stop()
		var at checkpoint.Position
		if err := json.Unmarshal([]byte(before), &at); err != nil {
			t.Fatal(err)
		}
		elsewhere := strings.Replace(before, at.Server, "11111111-2222-3333-4444-555555555555", 1)
		for name, to := range map[string]string{"inside of an event": at.File + ":130", "file that is not there": "binlog.999999:4",
			"behind the end": at.File + ":999999999", "another server": withoutGTIDs(t, elsewhere)} {
			code, out := towpath(t, "position", "set", "-c", config, "--operator", "ann", "--reason", "x", "--to", to)
			if code != 1 || !strings.Contains(out, "cannot be read from") {
				t.Errorf("%s: exit code %d: %s", name, code, out)
			}
		}
		for _, args := range [][]string{{"--to", "now"}, {"--to", "gtid:", "--operator", "a", "--reason", "b"}, {"--to", "nonsense", "--operator", "a", "--reason", "b"}, {"--operator", "a", "--reason", "b"}} {
			if code, out := towpath(t, append([]string{"position", "set", "-c", config}, args...)...); code != 2 {
				t.Errorf("%v: exit code %d: %s", args, code, out)
			}
		}
		if n := r.count("SELECT COUNT(*) FROM " + r.state + ".audit WHERE action='position.set'"); n != 0 {
			t.Errorf("%d changes audited", n)
		}
	})
}

// withoutGTIDs is a position by file alone.
func withoutGTIDs(t *testing.T, text string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	fields["gtids"], fields["last"] = "", ""
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
