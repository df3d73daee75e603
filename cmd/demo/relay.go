package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/towpath/towpath/cmd/internal/program"
)

// relay is one `towpath run`, started again whenever it ends, and what is known
// of it. The demo's loop owns it.
type relay struct {
	name    string
	binary  string
	config  string
	address string // of its metrics and probes
	note    func(func(*demo))
	helpers *sync.WaitGroup

	process *program.Process // nil while it is down
	wanted  bool             // to be running
	killed  time.Time        // when kill was last called
	said    string           // last line of its log

	seen      figuresOf
	confirmed float64 // by processes that ended
}

// figuresOf is what a relay last said of itself.
type figuresOf struct {
	leading                  bool
	term, confirmed, lanesUp float64
	ready                    string // "ok", or why not
}

// start begins a process, which dies with the demo.
func (r *relay) start() error {
	r.wanted = true
	log, write := io.Pipe()
	p, err := program.Start(r.binary, r.config, write, "DEMO_HTTP="+r.address)
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	r.process = p
	ctx, cancel := context.WithCancel(context.Background())
	r.helpers.Go(func() { r.watch(ctx) })
	r.helpers.Go(func() {
		<-p.Ended()
		_ = write.Close()
	})
	r.helpers.Go(func() {
		r.read(log)
		cancel()
		r.note(func(d *demo) { d.ended(r, p.State()) })
	})
	return nil
}

// read hands on what the relay logs, until it closes its log.
func (r *relay) read(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l logLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			l = logLine{Level: "error", Message: lines.Text()}
		}
		at := time.Now()
		r.note(func(d *demo) { d.logged(r, l, at) })
	}
	_, _ = io.Copy(io.Discard, log) // a line that is too long ends the scanner
}

// logLine is one line of a relay's log.
type logLine struct {
	Level   string `json:"level"`
	Message string `json:"msg"`
	Error   string `json:"error"`
}

func (l logLine) String() string {
	if l.Error != "" {
		return l.Message + ": " + l.Error
	}
	return l.Message
}

// watch asks the relay for its figures until ctx ends.
func (r *relay) watch(ctx context.Context) {
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		m, err := program.ReadMetrics(ctx, r.address)
		if err != nil {
			continue
		}
		seen := figuresOf{
			leading:   m.Sum("towpath_leading{") == 1,
			term:      m.Sum("towpath_term{"),
			confirmed: m.Sum(`towpath_rows_total{end="confirmed"`),
			lanesUp:   m.Sum("towpath_lane_up{"),
			ready:     program.Ready(ctx, r.address),
		}
		r.note(func(d *demo) {
			if ctx.Err() == nil { // not of a process that has ended since
				r.seen = seen
			}
		})
	}
}

// kill ends the process as kill -9 does.
func (r *relay) kill() {
	r.killed = time.Now()
	r.process.Signal(syscall.SIGKILL)
}

// stop ends the process in good order.
func (r *relay) stop() {
	r.wanted = false
	if r.process != nil {
		r.process.Signal(syscall.SIGTERM)
	}
}

// publishing tells whether it leads and may publish.
func (r *relay) publishing() bool { return r.seen.leading && r.seen.ready == "ok" }

// role is what the relay does, in a word or two.
func (r *relay) role() string {
	switch {
	case r.process == nil:
		return "down"
	case r.publishing():
		return "leads"
	case strings.HasPrefix(r.seen.ready, "halted"):
		return "halted"
	case r.seen.leading:
		return "leads, waits for the broker"
	case r.seen.ready == "ok":
		return "stands by"
	}
	return "starting"
}
