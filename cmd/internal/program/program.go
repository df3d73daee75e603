// Package program builds the relay and runs it as processes of its own, which
// can be killed, and reads what they say of themselves.
package program

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Build compiles the relay into dir, with build tags, and returns its path.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	path := filepath.Join(dir, "towpath")
	c := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", path, "github.com/towpath/towpath/cmd/towpath")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the relay: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return path, nil
}

// Root is the folder of the module, in which deploy/ lies.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Process is a running `towpath run`.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start runs the relay of a configuration. It is in a process group of its own,
// so that Ctrl-C does not reach it, dies with its parent, and logs to log.
func Start(binary, config string, log io.Writer, env ...string) (*Process, error) {
	c := exec.Command(binary, "run", "-c", config)
	c.Env = append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Stderr = log
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the relay: %w", err)
	}
	p := &Process{cmd: c, ended: make(chan struct{})}
	go func() {
		_ = c.Wait() // the process's state says how it ended
		close(p.ended)
	}()
	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// State says how the process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Stop ends the process in good order, or after a time with kill -9, and tells
// whether that was needed.
func (p *Process) Stop(within time.Duration) (killed bool) {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return false
	case <-time.After(within):
		p.Kill()
		return true
	}
}

// Metrics is what a relay's /metrics said, by series as it is written there.
type Metrics map[string]float64

// ReadMetrics asks a relay that listens on address, host:port.
func ReadMetrics(ctx context.Context, address string) (Metrics, error) {
	answer, err := get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	m := Metrics{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		line := lines.Text()
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			if m[line[:at]], err = strconv.ParseFloat(line[at+1:], 64); err != nil {
				return nil, fmt.Errorf("read %s: %w", line[:at], err)
			}
		}
	}
	return m, lines.Err()
}

// Sum adds up the series whose text begins with prefix.
func (m Metrics) Sum(prefix string) (total float64) {
	for name, v := range m {
		if strings.HasPrefix(name, prefix) {
			total += v
		}
	}
	return total
}

// Ready asks whether a relay is ready: "ok", or why not.
func Ready(ctx context.Context, address string) string {
	answer, err := get(ctx, "http://"+address+"/readyz")
	if err != nil {
		return "it does not answer"
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
	return strings.TrimSpace(string(text))
}

var client = http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}
