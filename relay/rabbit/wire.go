package rabbit

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// eagerBytes of held writes are worth a system call of their own.
	eagerBytes = 64 << 10
	// keptBytes is the largest buffer that is kept for reuse.
	keptBytes = 1 << 20
	// lastWords bounds how long Close goes on writing what is buffered.
	lastWords = 200 * time.Millisecond
)

var (
	errBroken = errors.New("connection is broken")

	// heartbeatFrame is a whole AMQP heartbeat as the library writes it.
	heartbeatFrame = []byte{8, 0, 0, 0, 0, 0, 0, 0xCE}
)

// wire is the socket under the AMQP library. A Write only appends to a buffer,
// which one goroutine writes out: while one system call runs, the next batch
// gathers, so batching needs no timer and an idle connection no wait.
//
// The buffer holds more than a lane may have in flight, so a Write does not
// block. That is what keeps the library alive: a publisher blocked in a Write
// starves its heartbeats while the broker refuses to read (an alarm), and then
// deadlocks its shutdown. What Write accepted may never arrive: only a
// confirm says that a message did.
type wire struct {
	net.Conn          // TLS or TCP; reads and deadlines pass through
	raw      net.Conn // the TCP connection, whose Close nothing can hold up
	limit    int      // bytes accepted and not yet written
	drained  func()   // see Read

	mu      sync.Mutex
	changed sync.Cond
	buf     []byte // accepted
	spare   []byte // empty, for reuse
	writing int    // bytes of the system call that runs
	held    bool
	closing bool
	err     error // why nothing is written any more

	done chan struct{} // closed when the writing goroutine has ended
}

// newWire wraps conn, which runs over raw, and accepts limit bytes ahead of
// the network. It must be closed or aborted.
func newWire(conn, raw net.Conn, limit int, drained func()) *wire {
	w := &wire{Conn: conn, raw: raw, limit: limit, drained: drained, done: make(chan struct{})}
	w.changed.L = &w.mu
	go w.run()
	return w
}

// Read reads from the network. The library asks for more bytes only after it
// has dispatched every whole frame of those it has. So at this point all
// confirms and returns that arrived are visible, and drained says so: one
// wake-up for a whole batch of them.
func (w *wire) Read(p []byte) (int, error) {
	w.drained()
	return w.Conn.Read(p)
}

// Write accepts p. It blocks only above the limit, until there is room or the
// connection ends.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.buf) > 0 && bytes.Equal(p, heartbeatFrame) {
		// Bytes that wait say all that a heartbeat behind them could. Dropped,
		// heartbeats cannot fill the buffer during an alarm of days.
		return len(p), nil
	}
	for w.err == nil && !w.closing && len(w.buf)+w.writing > 0 && len(w.buf)+w.writing+len(p) > w.limit {
		w.held = false
		w.changed.Broadcast()
		w.changed.Wait()
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case w.closing:
		return 0, errBroken
	}
	w.buf = append(w.buf, p...)
	if !w.held || len(w.buf) >= eagerBytes {
		w.changed.Broadcast()
	}
	return len(p), nil
}

// hold lets writes gather until release.
func (w *wire) hold() {
	w.mu.Lock()
	w.held = true
	w.mu.Unlock()
}

func (w *wire) release() {
	w.mu.Lock()
	w.held = false
	if len(w.buf) > 0 {
		w.changed.Broadcast()
	}
	w.mu.Unlock()
}

// run writes batches out until the connection ends.
func (w *wire) run() {
	defer close(w.done)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for w.err == nil && !w.closing && (len(w.buf) == 0 || w.held && len(w.buf) < eagerBytes) {
			w.changed.Wait()
		}
		if w.err != nil || len(w.buf) == 0 {
			return
		}
		batch := w.buf
		w.buf, w.spare, w.writing = w.spare[:0], nil, len(batch)
		w.mu.Unlock()
		_, err := w.Conn.Write(batch)
		w.mu.Lock()
		w.writing = 0
		if cap(batch) <= keptBytes {
			w.spare = batch[:0]
		}
		if err != nil {
			w.breakLocked(err)
		}
		w.changed.Broadcast()
	}
}

// breakLocked ends the connection. The library learns of it by its next read.
func (w *wire) breakLocked(err error) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: %w", errBroken, err)
		w.buf, w.spare = nil, nil
	}
	w.raw.Close()
	w.changed.Broadcast()
}

// Close writes what is buffered (the library's close-ok among it) for a short
// while, then closes the connection.
func (w *wire) Close() error {
	w.mu.Lock()
	w.closing = true
	w.changed.Broadcast()
	w.mu.Unlock()
	// Nothing above the raw connection may hold the end up: neither a peer that
	// does not read, nor TLS with its own closing words.
	giveUp := time.AfterFunc(lastWords, func() { w.raw.Close() })
	defer giveUp.Stop()
	<-w.done
	return w.Conn.Close()
}

// abort ends the connection at once and tells the broker to forget what it has
// not read yet: fewer duplicates, and the fence is free sooner.
func (w *wire) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tcp, ok := w.raw.(*net.TCPConn); ok && w.err == nil && !w.closing {
		_ = tcp.SetLinger(0)
	}
	w.breakLocked(net.ErrClosed)
}
