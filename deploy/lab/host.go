package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrForeign is returned where a server would be killed, stopped or paused
// that the lab did not start but was given the address of.
var ErrForeign = errors.New("the lab was given this server's address and does not control it")

// host is what every server has: a folder, ports, a guard, and a process while it runs.
type host struct {
	kind  Kind
	dir   string
	guard *guard // nil for a foreign server
	ports []*port
	proc  *process // nil while it is down

	closed bool
}

// newHost makes the folder (in TOWPATH_LAB_DIR or the temporary folder), takes
// n ports and sets the guard.
func newHost(kind Kind, n int) (h *host, err error) {
	h = &host{kind: kind}
	defer func() {
		if err != nil {
			_ = h.close()
		}
	}()
	base := os.Getenv("TOWPATH_LAB_DIR")
	if base != "" {
		if err := os.MkdirAll(base, 0o755); err != nil {
			return nil, err
		}
	}
	if h.dir, err = os.MkdirTemp(base, "towpath-lab-"+string(kind)+"-"); err != nil {
		return nil, err
	}
	if h.guard, err = newGuard(h.dir); err != nil {
		os.RemoveAll(h.dir)
		return nil, err
	}
	for range n {
		p, err := takePort()
		if err != nil {
			return nil, err
		}
		h.ports = append(h.ports, p)
	}
	return h, nil
}

// running returns the process, or why there is none.
func (h *host) running() (*process, error) {
	switch {
	case h.guard == nil:
		return nil, fmt.Errorf("%s: %w", h.kind, ErrForeign)
	case h.proc == nil:
		return nil, fmt.Errorf("%s is not running", h.kind)
	}
	return h.proc, nil
}

// stopped tells whether the server may be started.
func (h *host) stopped() error {
	switch {
	case h.guard == nil:
		return fmt.Errorf("%s: %w", h.kind, ErrForeign)
	case h.closed:
		return fmt.Errorf("%s is closed", h.kind)
	case h.proc != nil:
		return fmt.Errorf("%s is running already", h.kind)
	}
	return nil
}

// Kind is the server's kind.
func (h *host) Kind() Kind { return h.kind }

// Dir is the server's folder, gone after Close.
func (h *host) Dir() string { return h.dir }

// Up tells whether the server was started and not killed or stopped since.
// A foreign server counts as up.
func (h *host) Up() bool { return h.guard == nil || h.proc != nil }

// PID is the server's process, 0 while it is down or foreign.
func (h *host) PID() int {
	if h.proc == nil {
		return 0
	}
	return h.proc.pid()
}

// Kill ends the server as kill -9 does.
func (h *host) Kill() error {
	p, err := h.running()
	if err != nil {
		return err
	}
	p.kill()
	h.proc = nil
	return nil
}

// Stop shuts the server down in good order; Start brings it back.
func (h *host) Stop(ctx context.Context) error {
	p, err := h.running()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	h.proc = nil
	if err := p.stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", h.kind, err)
	}
	return nil
}

// Pause stops the server's processes as they stand (SIGSTOP): connections stay
// open and nothing answers. All its threads have stopped when this returns.
func (h *host) Pause() error {
	p, err := h.running()
	if err != nil {
		return err
	}
	return p.pause()
}

// Resume lets a paused server go on.
func (h *host) Resume() error {
	p, err := h.running()
	if err != nil {
		return err
	}
	return p.signal(syscall.SIGCONT)
}

// Log is the end of what the server printed.
func (h *host) Log() string { return tail(h.logFile()) }

func (h *host) logFile() string { return filepath.Join(h.dir, "log") }

// close kills what runs, removes the folder and gives the ports back.
func (h *host) close() error {
	if h.closed {
		return nil
	}
	h.closed = true
	if h.proc != nil {
		h.proc.kill()
		h.proc = nil
	}
	var err error
	if h.guard != nil {
		_ = h.guard.watch()
		err = h.guard.close()
	}
	for _, p := range h.ports {
		p.release()
	}
	h.ports = nil
	return err
}
