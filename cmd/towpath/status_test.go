package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay"
)

// status asks for the overview as JSON until it is as wanted, and returns it.
func (r *rig) status(config string, wanted func(*relay.Overview) bool) *relay.Overview {
	r.t.Helper()
	var o *relay.Overview
	var out string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the last status:\n%s", out)
		}
	}()
	r.eventually("the status is as wanted", func() bool {
		_, out = towpath(r.t, "status", "-c", config, "--json")
		o = new(relay.Overview)
		if err := json.Unmarshal([]byte(out), o); err != nil {
			r.t.Fatalf("%v:\n%s", err, out)
		}
		return wanted(o)
	})
	return o
}

func TestStatusShowsWhoLeadsHowFarItIsAndWhatWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.exec("CREATE INDEX by_status ON outbox (status)")
		config := r.config()
		r.init(config)
		if code, out := towpath(t, "status", "-c", config); code != 1 || !strings.Contains(out, "NOBODY") || !strings.Contains(out, "no position yet") {
			t.Errorf("before the first start: exit code %d:\n%s", code, out)
		}
		leader := start(t, config)
		leader.publishing()
		standby := r.standby()
		r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}'), (8, '{}')")
		r.inbox.holds([]string{"1", "2"})

		o := r.status(config, func(o *relay.Overview) bool {
			return o.Leader != nil && o.Leader.Leading != nil && o.Leader.Leading.Behind != nil && *o.Leader.Leading.Behind == (relay.Behind{}) &&
				len(o.Members) == 2 && o.Tables[0].Unsent != nil && *o.Tables[0].Unsent == 0
		})
		if o.Leader.Holder != o.Lease.Holder || !strings.Contains(o.Lease.Holder, fmt.Sprintf("/%d/", leader.cmd.Process.Pid)) || o.Leader.Role != "leader" {
			t.Errorf("the leader is %+v", o.Leader)
		}
		if o.Members[0].Role != "leader" || o.Members[1].Role != "standby" || o.Members[0].Version == "" || o.Members[0].Config != o.Config || o.Members[1].Config == o.Config {
			t.Errorf("members %+v, this configuration is %s", o.Members, o.Config)
		}
		if o.Saved.Position == nil || o.Saved.Behind == nil || o.Saved.Ahead == nil || *o.Saved.Ahead == 0 || o.Saved.Oldest == "" {
			t.Errorf("saved %+v", o.Saved)
		}
		for _, l := range o.Leader.Leading.Lanes {
			if l.Phase != "up" {
				t.Errorf("lanes %+v", o.Leader.Leading.Lanes)
			}
		}
		if code, out := towpath(t, "status", "-c", config); code != 0 || !strings.Contains(out, "behind") || !strings.Contains(out, "(differs)") || !strings.Contains(out, "standby") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		if code, text := standby.get("/api/v1/status"); code != 200 || !strings.Contains(text, `"role":"standby"`) || strings.Contains(text, `"leading"`) {
			t.Errorf("the standby answers %d: %s", code, text)
		}
		standby.stop()
		r.status(config, func(o *relay.Overview) bool { return len(o.Members) == 1 })
		leader.kill()
		r.status(config, func(o *relay.Overview) bool { return !o.Lease.Held && o.Leader == nil })
	})
}

func TestStatusNamesWhatIsParkedAndTheClosedDestination(t *testing.T) {
	eachServer(t, func(t *testing.T, r *rig) {
		r.table = strings.Replace(markTable, "routing_key: orders", `routing_key: "{type}"`, 1)
		config := r.config()
		r.running(config)
		r.exec("INSERT INTO outbox (aggregate, type, payload) VALUES (7, 'orders', '{}'), (8, 'nowhere', '{}'), (9, 'nowhere', '{}'), (9, 'nowhere', '{}')")
		o := r.status(config, func(o *relay.Overview) bool {
			return o.Leader != nil && o.Leader.Leading != nil && o.Leader.Leading.Closed == 1 && len(o.Waits) == 2 && o.Leader.Leading.Window == 0
		})
		if d := o.Leader.Leading.ClosedDestinations; len(d) != 1 || d[0].RoutingKey != "nowhere" || d[0].Exchange != "" {
			t.Errorf("closed %+v", d)
		}
		parked := uint64(0)
		for _, p := range o.Parked {
			parked += p.Rows
		}
		if parked != 3 || o.Waits[0].Rows+o.Waits[1].Rows != 3 {
			t.Errorf("parked %+v, waits %+v", o.Parked, o.Waits)
		}
		if o.Tables[0].Unsent != nil || !strings.Contains(o.Tables[0].Note, "no index on status") {
			t.Errorf("without an index unsent rows are not counted: %+v", o.Tables)
		}
		if code, out := towpath(t, "status", "-c", config); code != 0 || !strings.Contains(out, `"nowhere"`) || !strings.Contains(out, "WAITS IN") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
	})
}

func TestStatusOfAStoppedBrokerSaysHowFarTheStreamIsBehind(t *testing.T) {
	r := oneServer(t)
	proxy := proxied(t, r.rabbit.Addr())
	r.broker = proxy.Addr()
	config := r.config()
	r.running(config).says("swept", 1) // from here on rows come by the stream
	proxy.Set(lab.BlackHole)
	r.exec("INSERT INTO outbox (aggregate, payload) VALUES (7, '{}')")
	r.status(config, func(o *relay.Overview) bool {
		l := o.Leader
		return l != nil && l.Leading != nil && l.Leading.Behind != nil && l.Leading.Behind.Bytes > 0 && l.Leading.Behind.Seconds > 1 && l.Leading.Window == 1
	})
}
