package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/towpath/towpath/cmd/internal/program"
	"github.com/towpath/towpath/deploy/lab"
)

const relayCount = 3

// relay is one `towpath run` that is killed, stopped and started again. Its
// fault holds busy while it is at it, so that one fault at a time is on the
// process; what it is connected through is another matter.
type relay struct {
	number         int
	binary, config string
	broken         string
	http           string
	source, broker *lab.Proxy

	busy    sync.Mutex
	leading atomic.Bool // as it said last

	mu       sync.Mutex
	process  *program.Process
	starts   int            // so far
	pids     map[int]string // of all processes, and the names that their messages bear
	ending   bool           // it is meant to end
	failures []string
	peak     usage
	last     usage
}

// usage is what a relay's process takes.
type usage struct {
	Memory     float64 `json:"memory_mib"` // resident
	Goroutines float64 `json:"goroutines"`
}

// start runs a process, and starts another when it ends without being told to:
// then it has failed.
func (r *relay) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	log, err := os.OpenFile(r.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r.starts++
	name := fmt.Sprintf("relay-%d.%d", r.number, r.starts)
	p, err := program.Start(r.binary, r.config, log, brokenVariable+"="+r.broken, publisherVariable+"="+name, killVariable+"="+r.killFile())
	if err != nil {
		return err
	}
	r.process, r.ending, r.pids[p.PID()] = p, false, name
	go func() {
		<-p.Ended()
		r.mu.Lock()
		unexpected := r.process == p && !r.ending
		if unexpected {
			r.failures = append(r.failures, fmt.Sprintf("relay %d ended by itself: %s", r.number, p.State()))
		}
		r.mu.Unlock()
		if unexpected {
			time.Sleep(time.Second)
			if err := r.start(); err != nil {
				r.fail(err.Error())
			}
		}
	}()
	return nil
}

// killFile holds the point at which a process is to die.
func (r *relay) killFile() string { return r.config + ".point" }

// killVariable names that file to a relay that is built with the tag killpoints.
const killVariable = "TOWPATH_KILL_FILE"

// publisherVariable is how the configuration takes the name that a process gives
// to its messages.
const publisherVariable = "TORTURE_PUBLISHER"

// named is the name of a process of this relay.
func (r *relay) named(pid int) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, ok := r.pids[pid]
	return name, ok
}

func (r *relay) log() string { return strings.TrimSuffix(r.config, ".yaml") + ".log" }

// expectEnd returns the process, which is meant to end now.
func (r *relay) expectEnd() *program.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
	r.leading.Store(false)
	return r.process
}

func (r *relay) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

// kill ends the process as kill -9 does; start begins another.
func (r *relay) kill() { r.expectEnd().Kill() }

// stopWithin is longer than drain_timeout and whatever a connection waits for.
const stopWithin = 25 * time.Second

// stop ends the process in good order.
func (r *relay) stop() {
	if r.expectEnd().Stop(stopWithin) {
		r.fail(fmt.Sprintf("relay %d did not end within %s of SIGTERM", r.number, stopWithin))
	}
}

// freeze stops the process without ending it, until thaw.
func (r *relay) freeze() { r.signal(syscall.SIGSTOP) }
func (r *relay) thaw()   { r.signal(syscall.SIGCONT) }

func (r *relay) signal(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process.Signal(s)
}

// observe asks the relay how it is until ctx ends.
func (r *relay) observe(ctx context.Context) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m, err := program.ReadMetrics(ctx, r.http)
		if err != nil {
			r.leading.Store(false)
			continue
		}
		r.leading.Store(m.Sum("towpath_leading{") == 1)
		now := usage{m["process_resident_memory_bytes"] / (1 << 20), m["go_goroutines"]}
		r.mu.Lock()
		r.last = now
		r.peak = usage{max(r.peak.Memory, now.Memory), max(r.peak.Goroutines, now.Goroutines)}
		r.mu.Unlock()
	}
}
