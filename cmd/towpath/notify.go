package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// notifySocket tells systemd how a service of Type=notify fares. The zero value
// tells nobody: the program was not started by it.
type notifySocket struct{ address string }

// systemd returns where systemd listens, from the environment that it gave.
func systemd() notifySocket {
	address := os.Getenv("NOTIFY_SOCKET")
	if strings.HasPrefix(address, "@") { // an abstract one
		address = "\x00" + address[1:]
	}
	return notifySocket{address}
}

// send passes one state on, as READY=1.
func (n notifySocket) send(state string) error {
	if n.address == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// readyEvery is how often readiness is looked at until it is there.
const readyEvery = 100 * time.Millisecond

// follow tells systemd once the relay leads and streams, or stands by, and when
// it begins to stop. It returns after ctx ends.
func (n notifySocket) follow(ctx context.Context, ready func() error) error {
	if n.address == "" {
		return nil
	}
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	said := "" // the reason given last
	for told := false; ; {
		select {
		case <-ctx.Done():
			return n.send("STOPPING=1\nSTATUS=settling what is under way")
		case <-tick.C:
		}
		status := "relaying or standing by"
		err := ready()
		if err != nil {
			status = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		state := "STATUS=" + status
		if err == nil && !told {
			state, told = "READY=1\n"+state, true
		}
		if status == said {
			continue
		}
		if err := n.send(state); err != nil {
			return err
		}
		said = status
	}
}
