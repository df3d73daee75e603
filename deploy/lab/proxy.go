package lab

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Fault is what a Proxy does to the bytes that pass. The zero value passes
// them all.
type Fault struct {
	// Refuse resets every new connection; open ones stay.
	Refuse bool
	// HoldUp and HoldDown keep what the client and the server send, as a dead
	// network does: connections stay open, nothing arrives, an end or a reset
	// of one side does not reach the other. Once lifted, all of it arrives.
	HoldUp, HoldDown bool
	// Delay passes each piece on this much later.
	Delay time.Duration
	// BytesPerSecond slows each direction of each connection down, 0 does not.
	BytesPerSecond int
	// CutUpAfter and CutDownAfter reset all connections once, as soon as this
	// many bytes were passed on from the client or from the server since the
	// fault was set; exactly so many are. 0 does not. Then the proxy goes on
	// without this part.
	CutUpAfter, CutDownAfter int
}

// BlackHole holds both directions.
var BlackHole = Fault{HoldUp: true, HoldDown: true}

// Proxy is a TCP relay between a client and a server, with faults at will.
// Its methods may be called from any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	port     *port
	pumps    sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed when fault is replaced
	links   map[*link]struct{}
	closed  bool
}

// StartProxy relays a port of its own on 127.0.0.1 to target, host:port. Close it.
func StartProxy(target string) (*Proxy, error) {
	held, listener, err := takeListener()
	if err != nil {
		return nil, fmt.Errorf("start the proxy: %w", err)
	}
	p := &Proxy{target: target, listener: listener, port: held, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.pumps.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set replaces the fault, for open and for new connections.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(f)
}

func (p *Proxy) set(f Fault) {
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Connections counts the open ones.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Cut closes all open connections on both sides, as a peer that ends does.
func (p *Proxy) Cut() { p.endAll((*link).close) }

// Reset resets all open connections on both sides.
func (p *Proxy) Reset() { p.endAll((*link).reset) }

func (p *Proxy) endAll(end func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		end(l)
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	err := p.listener.Close()
	p.Reset()
	p.pumps.Wait()
	p.port.release()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil { // closed
			return
		}
		p.pumps.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

// connect joins a client to the server and pumps until both are done.
func (p *Proxy) connect(client *net.TCPConn) {
	l := &link{client: client, done: make(chan struct{})}
	if !p.refuses() {
		if server, err := net.DialTimeout("tcp", p.target, dialWithin); err == nil {
			l.server = server.(*net.TCPConn)
		}
	}
	if l.server == nil || !p.add(l) {
		l.reset()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, up) })
	both.Go(func() { p.pump(l, down) })
	both.Wait()
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// dialWithin bounds a connect to the target, which is on this machine or near.
const dialWithin = 5 * time.Second

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.Refuse || p.closed
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[l] = struct{}{}
	}
	return !p.closed
}
