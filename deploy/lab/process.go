package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one running server, leader of its own session and process group.
type process struct {
	cmd *exec.Cmd
	log string // where its output is appended
}

// startProcess starts argv in dir with env beside this process's environment.
func startProcess(dir, log string, env []string, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, log: log}, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal reaches the server and the children it started.
func (p *process) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-p.pid(), sig); err != nil {
		return fmt.Errorf("send %v to process group %d: %w", sig, p.pid(), err)
	}
	return nil
}

// exited tells whether the process ended, without taking its exit status.
func (p *process) exited() bool { return p.reports(unix.WEXITED) }

// pause stops the process group and returns when the leader's last thread stands still.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	return poll(ctx, func() (bool, error) { return p.reports(unix.WSTOPPED | unix.WEXITED), nil })
}

// reports tells whether the kernel has such a change of state to report, and leaves it there.
func (p *process) reports(change int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.pid(), &info, change|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// kill ends the process group at once and reaps its leader.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	_ = p.cmd.Wait() // says "signal: killed", which is what was asked for
}

// stop asks the process to end, and kills it if it does not before ctx ends.
func (p *process) stop(ctx context.Context) error {
	_ = p.signal(syscall.SIGCONT)
	_ = syscall.Kill(p.pid(), syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := poll(ctx, func() (bool, error) { return p.exited(), nil })
	p.kill()
	if err != nil {
		return fmt.Errorf("killed, because it did not stop by itself: %w\n%s", err, tail(p.log))
	}
	return nil
}

// tail is the end of a server's log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), 15)
}

// readyWithin bounds how long a server may take to start or to stop, on a
// machine that is busy with other tests.
const readyWithin = 90 * time.Second

// awaitReady waits until probe succeeds, and fails early if the process ends.
func (p *process) awaitReady(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	var last error
	err := poll(ctx, func() (bool, error) {
		if p.exited() {
			return false, errors.New("the process ended")
		}
		last = probe(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("not ready: %w (last answer: %v); its log ends:\n%s", err, last, tail(p.log))
	}
	return nil
}
