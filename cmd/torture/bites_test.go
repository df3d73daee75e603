package main

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

var bites = flag.String("bites", "publish-at-prepare", "promises to break in the relay to see the torture fail, or all")

func TestTheTortureFailsWhenAPromiseIsBroken(t *testing.T) {
	for _, c := range []struct {
		promise  string
		only     string // faults
		duration time.Duration
		broken   func(*report) []string
	}{
		{"publish-at-prepare", "flush", 6 * time.Second, func(r *report) []string { return r.Account.Ghosts }},
		{"ignore-returns", "unbind", 15 * time.Second, func(r *report) []string { return r.Account.Lost }},
		{"save-before-confirm", "dies after a save,broker: pause", 25 * time.Second, func(r *report) []string { return r.Account.Lost }},
		{"skip-fence", "late and deposed", 20 * time.Second, func(r *report) []string { return r.Intruders }},
		{"skip-term", "source wire: delay,lock's session", 60 * time.Second, func(r *report) []string { return r.Late }},
	} {
		if *bites != "all" && !slices.Contains(strings.Split(*bites, ","), c.promise) {
			continue // make torture-bites runs them all
		}
		t.Run(c.promise, func(t *testing.T) {
			var log bytes.Buffer
			r, err := run(t.Context(), options{source: lab.MySQL97, broker: lab.Rabbit43, seed: 1, duration: c.duration,
				quiet: 10 * time.Second, broken: c.promise, only: c.only}, &log)
			if err != nil {
				t.Fatalf("%v\n%s", err, &log)
			}
			r.print(&log)
			if len(c.broken(r)) == 0 {
				t.Errorf("a relay that breaks %q passed:\n%s", c.promise, &log)
			}
		})
	}
}
