package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the ephemeral range: inside it a client that
// reconnects in a loop can connect to itself and keep a server from binding.
const (
	firstPort = 20000
	lastPort  = 32000
)

// port is a TCP port of 127.0.0.1 that no other lab process takes while it is held.
type port struct {
	number int
	held   net.Listener
}

// takePort finds a free port. What holds it is a socket in Linux's abstract
// name space: the kernel lets go of it when the process ends, however it ends.
func takePort() (*port, error) {
	p, probe, err := takeListener()
	if err != nil {
		return nil, err
	}
	probe.Close()
	return p, nil
}

// takeListener takes a port and listens there. A listener that is closed may
// live on for a moment in a process that is being forked just then, so who
// listens in this process keeps this one instead of opening another.
func takeListener() (*port, net.Listener, error) {
	const span = lastPort - firstPort
	start := rand.IntN(span)
	for i := range span {
		number := firstPort + (start+i)%span
		held, err := net.Listen("unix", fmt.Sprintf("@towpath-lab-port-%d", number))
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", loopback(number))
		if err != nil {
			held.Close()
			continue
		}
		return &port{number: number, held: held}, listener, nil
	}
	return nil, nil, errors.New("no free port between 20000 and 32000: stop servers that are no longer needed")
}

func (p *port) release() { p.held.Close() }

func (p *port) String() string { return strconv.Itoa(p.number) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
