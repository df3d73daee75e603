package lab

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// direction is up from the client to the server, or down.
type direction int

const (
	up direction = iota
	down
)

// link is one client's connection with its server's.
type link struct {
	client, server *net.TCPConn
	once           sync.Once
	done           chan struct{} // closed with the link
}

func (l *link) ends(d direction) (from, to *net.TCPConn) {
	if d == up {
		return l.client, l.server
	}
	return l.server, l.client
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		if l.server != nil {
			l.server.Close()
		}
	})
}

func (l *link) reset() {
	_ = l.client.SetLinger(0)
	if l.server != nil {
		_ = l.server.SetLinger(0)
	}
	l.close()
}

// pieceSize bounds what a link holds in memory per direction.
const pieceSize = 32 << 10

// pump passes one direction on until it ends. The end is passed on as a piece
// is: not while the direction is held.
func (p *Proxy) pump(l *link, d direction) {
	from, to := l.ends(d)
	buf := make([]byte, pieceSize)
	for {
		n, readErr := from.Read(buf)
		if !p.pass(l, d, to, buf[:n]) {
			return
		}
		if readErr == nil {
			continue
		}
		if _, ok := p.await(l, d, nil); !ok {
			return
		}
		if errors.Is(readErr, io.EOF) {
			_ = to.CloseWrite()
		} else {
			l.reset()
		}
		return
	}
}

// pass writes a piece as the faults of the moment allow; false: the link ended.
func (p *Proxy) pass(l *link, d direction, to *net.TCPConn, piece []byte) bool {
	for len(piece) > 0 {
		part, ok := p.await(l, d, piece)
		if !ok {
			return false
		}
		if _, err := to.Write(part); err != nil {
			l.reset()
			return false
		}
		piece = piece[len(part):]
		if p.spend(d, len(part)) {
			p.Reset()
			return false
		}
	}
	return true
}

// await waits out hold, delay and rate, and returns how much of the piece may
// pass now. A fault that is replaced meanwhile is looked at anew.
func (p *Proxy) await(l *link, d direction, piece []byte) ([]byte, bool) {
	for {
		p.mu.Lock()
		f, changed := p.fault, p.changed
		p.mu.Unlock()

		part, wait := f.limit(d, piece)
		var timer <-chan time.Time
		if !f.holds(d) {
			if wait == 0 {
				return part, true
			}
			timer = time.After(wait)
		}
		select {
		case <-timer:
			return part, true
		case <-changed:
		case <-l.done:
			return nil, false
		}
	}
}

func (f Fault) holds(d direction) bool {
	return d == up && f.HoldUp || d == down && f.HoldDown
}

// limit cuts a piece to what passes at once, and says after what time.
func (f Fault) limit(d direction, piece []byte) ([]byte, time.Duration) {
	wait := f.Delay
	if f.BytesPerSecond > 0 {
		piece = piece[:min(len(piece), max(1, f.BytesPerSecond/ticksPerSecond))]
		wait += time.Duration(len(piece)) * time.Second / time.Duration(f.BytesPerSecond)
	}
	if left := f.cutAfter(d); left > 0 {
		piece = piece[:min(len(piece), left)]
	}
	return piece, wait
}

// ticksPerSecond is how finely a slow connection trickles.
const ticksPerSecond = 50

func (f Fault) cutAfter(d direction) int {
	if d == up {
		return f.CutUpAfter
	}
	return f.CutDownAfter
}

// spend counts bytes passed on toward a cut, and says when it is reached.
func (p *Proxy) spend(d direction, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := &p.fault.CutUpAfter
	if d == down {
		left = &p.fault.CutDownAfter
	}
	if *left == 0 {
		return false
	}
	*left = max(0, *left-n)
	return *left == 0
}
