package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// guard outlives this process by a moment: when the pipe to it closes, because
// close was called or because this process was killed, it kills the process
// groups it was last told of and removes the server's folder.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// The guard waits for the groups to vanish before it removes their folder, but
// not for ever: a killed process stays a zombie where nobody reaps orphans.
const guardScript = `trap '' HUP INT TERM
while read -r pids; do last=$pids; done
for p in $last; do kill -s KILL -- "-$p"; done
for p in $last; do n=0; while kill -s 0 -- "-$p" && [ $n -lt 50 ]; do sleep 0.05; n=$((n+1)); done; done
rm -rf -- "$1"`

func newGuard(dir string) (*guard, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript, "towpath-lab-guard", dir)
	cmd.Dir = "/"
	cmd.Stdin = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guard{cmd: cmd, pipe: ours}, nil
}

// watch replaces the process groups that die with this process.
func (g *guard) watch(groups ...int) error {
	line := strings.Trim(fmt.Sprint(groups), "[]")
	if _, err := fmt.Fprintln(g.pipe, line); err != nil {
		return fmt.Errorf("tell the guard: %w", err)
	}
	return nil
}

// close has everything killed and removed, and waits for it.
func (g *guard) close() error {
	g.pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("remove the server's folder: %w", err)
	}
	return nil
}
