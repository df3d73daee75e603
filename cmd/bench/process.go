package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// build compiles a program of this repository into dir.
func build(ctx context.Context, dir, pkg string) (string, error) {
	path := filepath.Join(dir, filepath.Base(pkg))
	c := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	return path, nil
}

// relay is a running `towpath run`.
type relay struct {
	cmd  *exec.Cmd
	http string
}

// cost is what a process has used up.
type cost struct {
	cpu    time.Duration
	memory float64 // peak resident, MiB
}

func startRelay(binary, config, http string) (*relay, error) {
	log, err := os.OpenFile(config+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.Command(binary, "run", "-c", config)
	c.Stderr = log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return &relay{cmd: c, http: http}, nil
}

// stop ends the relay in good order and says what it cost.
func (r *relay) stop() (cost, error) {
	memory := peakMemory(r.cmd.Process.Pid)
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return cost{}, err
	}
	if err := r.cmd.Wait(); err != nil {
		return cost{}, err
	}
	s := r.cmd.ProcessState
	return cost{cpu: s.UserTime() + s.SystemTime(), memory: memory}, nil
}

// metric reads one series of the relay's /metrics, summed over labels that the
// prefix leaves open; 0 while the relay does not answer yet.
func (r *relay) metric(prefix string) float64 {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	answer, err := client.Get("http://" + r.http + "/metrics")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), "} "); found && strings.HasPrefix(name, prefix) {
			n, _ := strconv.ParseFloat(value, 64)
			sum += n
		}
	}
	return sum
}

// peakMemory is a process's largest resident set so far, in MiB.
func peakMemory(pid int) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(l, "VmHWM:"); found {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

// freePort finds a loopback port that nobody listens on, below the ephemeral range.
func freePort() (string, error) {
	for port := 18000; port < 19000; port++ {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no free port between 18000 and 19000")
}

// command runs a program to its end.
func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out)
	}
	return nil
}
