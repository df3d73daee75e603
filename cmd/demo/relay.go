package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// relay is one `towpath run`, started again whenever it ends, and what is known
// of it. The demo's loop owns it.
type relay struct {
	name    string
	binary  string
	config  string
	port    string // of its metrics and probes
	note    func(func(*demo))
	helpers *sync.WaitGroup

	cmd    *exec.Cmd // nil while it is down
	wanted bool      // to be running
	killed time.Time // when kill was last called
	said   string    // last line of its log

	seen      figuresOf
	confirmed float64 // by processes that ended
}

// figuresOf is what a relay last said of itself.
type figuresOf struct {
	leading                           bool
	term, confirmed, lanesUp, blocked float64
	ready                             string // "ok", or why not
}

// start begins a process. It is in a process group of its own, so that Ctrl-C
// reaches the demo alone, and dies with the demo.
func (r *relay) start() error {
	r.wanted = true
	c := exec.Command(r.binary, "run", "-c", r.config)
	c.Env = append(c.Environ(), "DEMO_HTTP=127.0.0.1:"+r.port)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	r.cmd = c
	ctx, cancel := context.WithCancel(context.Background())
	r.helpers.Go(func() { r.watch(ctx) })
	r.helpers.Go(func() {
		r.read(log)
		err := c.Wait()
		cancel()
		r.note(func(d *demo) { d.ended(r, err) })
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
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if seen, err := ask(ctx, client, "http://127.0.0.1:"+r.port); err == nil {
			r.note(func(d *demo) {
				if ctx.Err() == nil { // not of a process that has ended since
					r.seen = seen
				}
			})
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) (figuresOf, error) {
	metrics, err := get(ctx, client, url+"/metrics")
	if err != nil {
		return figuresOf{}, err
	}
	ready, err := get(ctx, client, url+"/readyz")
	return figuresOf{
		leading:   sum(metrics, "towpath_leading{") == 1,
		term:      sum(metrics, "towpath_term{"),
		confirmed: sum(metrics, `towpath_rows_total{end="confirmed"`),
		lanesUp:   sum(metrics, "towpath_lane_up{"),
		blocked:   sum(metrics, "towpath_lane_blocked{"),
		ready:     strings.TrimSpace(ready),
	}, err
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return string(text), err
}

// sum adds up the series of a metric whose lines begin with a prefix.
func sum(metrics, prefix string) float64 {
	total := 0.0
	for line := range strings.Lines(metrics) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "} "); found && strings.HasPrefix(name, prefix) {
			n, _ := strconv.ParseFloat(value, 64)
			total += n
		}
	}
	return total
}

// kill ends the process as kill -9 does.
func (r *relay) kill() {
	r.killed = time.Now()
	_ = r.cmd.Process.Kill()
}

// stop ends the process in good order.
func (r *relay) stop() {
	r.wanted = false
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// publishing tells whether it leads and may publish.
func (r *relay) publishing() bool { return r.seen.leading && r.seen.ready == "ok" }

// role is what the relay does, in a word or two.
func (r *relay) role() string {
	switch {
	case r.cmd == nil:
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
