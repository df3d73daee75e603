//go:build killpoints

package killpoint

import (
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is the point to die at.
var armed atomic.Pointer[string]

func init() {
	path := os.Getenv("TOWPATH_KILL_FILE")
	if path == "" {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			if text, err := os.ReadFile(path); err == nil {
				point := strings.TrimSpace(string(text))
				armed.Store(&point)
			}
		}
	}()
}

// Pass ends the process if this is the point to die at. Nothing behind it happens.
func Pass(point string) {
	if at := armed.Load(); at != nil && *at == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
