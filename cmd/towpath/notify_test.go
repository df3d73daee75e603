package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

func TestSystemdIsToldWhenTheRelayIsReadyAndWhenItStops(t *testing.T) {
	r := oneServer(t)
	proxy := proxied(t, r.rabbit.Addr())
	proxy.Set(lab.Fault{Refuse: true})
	r.broker = proxy.Addr()
	config := r.config()
	r.init(config)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	hears := func(want string) (before string) {
		t.Helper()
		buf := make([]byte, 4096)
		for {
			n, err := socket.Read(buf)
			if err != nil {
				t.Fatalf("systemd was not told %q; before: %s", want, before)
			}
			if strings.Contains(string(buf[:n]), want) {
				return before
			}
			before += string(buf[:n]) + "\n"
		}
	}
	cmd := exec.Command(os.Args[0], "run", "-c", config)
	cmd.Env = programEnv("NOTIFY_SOCKET=" + socket.LocalAddr().String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if early := hears("STATUS=leading, and waiting for the broker"); strings.Contains(early, "READY=1") {
		t.Errorf("it was ready before it could publish: %s", early)
	}
	proxy.Set(lab.Fault{})
	hears("READY=1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hears("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
