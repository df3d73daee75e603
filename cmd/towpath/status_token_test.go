package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/towpath/towpath/relay"
)

func TestTheTokenGoesToThisMachineOrWhereAPersonSends(t *testing.T) {
	r := oneServer(t)
	config := r.config()
	replaced(t, config, `http: {listen: "127.0.0.1:`, `http: {token: "right-token", listen: "0.0.0.0:`)
	r.running(config)
	asked := func(args ...string) *relay.Overview {
		t.Helper()
		_, out := towpath(t, append([]string{"status", "-c", config, "--json"}, args...)...)
		o := new(relay.Overview)
		if err := json.Unmarshal([]byte(out), o); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return o
	}
	own := asked()
	if own.Leader == nil || own.NoReply != "" {
		t.Fatalf("this machine's relay is not asked: %s", own.NoReply)
	}

	// Somebody who can write the state tables points the leader's address at a
	// listener, which takes down what it is sent.
	var tokens atomic.Int32
	thief := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "" {
			tokens.Add(1)
		}
		_ = json.NewEncoder(w).Encode(own.Leader)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = thief.Serve(l) }()
	defer func() { _ = thief.Close(); <-ended }()
	r.exec("UPDATE "+r.state+".member SET http_address = ?", l.Addr().String())
	if o := asked(); tokens.Load() != 0 || o.Leader != nil || !strings.Contains(o.NoReply, "--leader "+l.Addr().String()) {
		t.Errorf("%d tokens were sent, answer %+v, said %q", tokens.Load(), o.Leader, o.NoReply)
	}
	if o := asked("--leader", l.Addr().String()); tokens.Load() != 1 || o.Leader == nil {
		t.Errorf("sent there by a person: %d tokens, %q", tokens.Load(), o.NoReply)
	}
	if code, out := towpath(t, "status", "-c", config, "--leader", "relay2"); code != exitUsage || !strings.Contains(out, "HOST:PORT") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestAnAddressIsThisMachinesByItsPortAndByWhatNobodyElseCanBe(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ listen, address, want string }{
		{"0.0.0.0:8973", name + ":8973", "127.0.0.1:8973"},
		{":8973", name + ":8973", "127.0.0.1:8973"},
		{"[::]:8973", name + ":8973", "127.0.0.1:8973"},
		{"0.0.0.0:8973", "127.0.0.1:8973", "127.0.0.1:8973"},
		{"127.0.0.1:8973", "[::1]:8973", "[::1]:8973"},
		{"10.0.0.5:8973", "10.0.0.5:8973", "10.0.0.5:8973"},
		{"10.0.0.5:8973", "10.0.0.6:8973", ""},
		{"10.0.0.5:8973", name + ":8973", ""}, // the name may lead to another address
		{"0.0.0.0:8973", "127.0.0.1:9000", ""},
		{"0.0.0.0:8973", "localhost:8973", ""},
		{"0.0.0.0:8973", "else.where:8973", ""},
		{"0.0.0.0:8973", "", ""},
	} {
		if got, ours := ownAddress(c.listen, c.address); got != c.want || ours != (c.want != "") {
			t.Errorf("listening on %s, %s is asked at %q, %v, want %q", c.listen, c.address, got, ours, c.want)
		}
	}
}
