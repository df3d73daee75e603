package rabbit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// fake is the broker's side of AMQP 0-9-1, as far as a lane speaks it, played
// by a script. It is for what a real broker does only by chance: which bytes
// arrive before a connection ends, confirms in odd patterns, silence.
type fake struct {
	t        testing.TB
	listener net.Listener
	url      string
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
}

// play starts a fake. Each connection is given to script with its number, from
// 0; it is reset when script returns.
func play(t testing.TB, script func(n int, c *peer)) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, listener: l, url: "amqp://guest:guest@" + l.Addr().String(), open: map[net.Conn]bool{}}
	f.wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.open[conn] = true
			f.mu.Unlock()
			f.wg.Go(func() {
				c := &peer{t: t, conn: conn, r: bufio.NewReader(conn)}
				defer c.reset()
				script(n, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.mu.Lock()
		for c := range f.open {
			c.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

// peer is one connection of a fake. Its methods report whether the client is
// still there.
type peer struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
	data uint16 // the confirm channel
	tag  uint64 // of the newest publish

	ready    bool // the confirm channel is open
	barriers int  // requests on it after that
}

// published is one message as it came over the wire.
type published struct {
	tag           uint64
	exchange, key string
	id            string
	mandatory     bool
	header        []byte // content header payload
	body          []byte
}

type frame struct {
	kind    byte
	channel uint16
	payload []byte
}

func (f frame) method() uint32 {
	if f.kind != 1 || len(f.payload) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(f.payload)
}

func id(class, method uint32) uint32 { return class<<16 | method }

// reset ends the connection as a crash would.
func (c *peer) reset() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.conn.Close()
}

// read returns the next frame that is no heartbeat.
func (c *peer) read() (frame, error) {
	for {
		var head [7]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return frame{}, err
		}
		f := frame{head[0], binary.BigEndian.Uint16(head[1:]), make([]byte, binary.BigEndian.Uint32(head[3:])+1)}
		if _, err := io.ReadFull(c.r, f.payload); err != nil {
			return frame{}, err
		}
		if end := f.payload[len(f.payload)-1]; end != 0xCE {
			c.t.Errorf("a frame ends with %#x", end)
			return frame{}, errors.New("bad frame")
		}
		f.payload = f.payload[:len(f.payload)-1]
		switch {
		case f.kind == 8:
		case f.method() == id(10, 50):
			c.send(0, 10, 51)
			return frame{}, io.EOF
		case f.method() == id(85, 10) && c.ready:
			c.barriers++
			c.send(c.data, 85, 11)
		default:
			return f, nil
		}
	}
}

// expect reads frames until the wanted method.
func (c *peer) expect(class, method uint32) (frame, bool) {
	for {
		f, err := c.read()
		if err != nil {
			return frame{}, false
		}
		if f.method() == id(class, method) {
			return f, true
		}
	}
}

func (c *peer) write(p []byte) { _, _ = c.conn.Write(p) }

// encode returns a method frame.
func encode(channel uint16, class, method uint32, args ...any) []byte {
	p := binary.BigEndian.AppendUint32(nil, id(class, method))
	for _, a := range args {
		switch a := a.(type) {
		case byte:
			p = append(p, a)
		case uint16:
			p = binary.BigEndian.AppendUint16(p, a)
		case uint32:
			p = binary.BigEndian.AppendUint32(p, a)
		case uint64:
			p = binary.BigEndian.AppendUint64(p, a)
		case string: // short
			p = append(append(p, byte(len(a))), a...)
		case []byte: // long
			p = append(binary.BigEndian.AppendUint32(p, uint32(len(a))), a...)
		}
	}
	return wrap(1, channel, p)
}

func wrap(kind byte, channel uint16, payload []byte) []byte {
	f := append([]byte{kind}, byte(channel>>8), byte(channel))
	f = binary.BigEndian.AppendUint32(f, uint32(len(payload)))
	return append(append(f, payload...), 0xCE)
}

func (c *peer) send(channel uint16, class, method uint32, args ...any) {
	c.write(encode(channel, class, method, args...))
}

// login plays the handshake.
func (c *peer) login() bool {
	var greeting [8]byte
	if _, err := io.ReadFull(c.r, greeting[:]); err != nil {
		return false
	}
	c.send(0, 10, 10, byte(0), byte(9), []byte{}, []byte("PLAIN"), []byte("en_US"))
	if _, ok := c.expect(10, 11); !ok {
		return false
	}
	c.send(0, 10, 30, uint16(0), uint32(frameMax), uint16(60))
	if _, ok := c.expect(10, 40); !ok {
		return false
	}
	c.send(0, 10, 41, "")
	return true
}

// fence lets the client have its fence, on channel 1.
func (c *peer) fence() bool {
	for _, step := range []struct {
		class, method uint32
		args          []any
	}{
		{20, 10, []any{[]byte{}}},
		{50, 10, []any{"fence", uint32(0), uint32(0)}},
		{60, 20, []any{"fence"}},
	} {
		f, ok := c.expect(step.class, step.method)
		if !ok {
			return false
		}
		c.send(f.channel, step.class, step.method+1, step.args...)
	}
	return true
}

// confirms lets the client open its confirm channel.
func (c *peer) confirms() bool {
	f, ok := c.expect(20, 10)
	if !ok {
		return false
	}
	c.data, c.tag, c.ready = f.channel, 0, false
	c.send(f.channel, 20, 11, []byte{})
	if _, ok = c.expect(85, 10); ok {
		c.send(c.data, 85, 11)
	}
	c.ready = true
	return ok
}

// up plays everything up to the first publish.
func (c *peer) up() bool { return c.login() && c.fence() && c.confirms() }

// next reads one publish.
func (c *peer) next() (p published, ok bool) {
	m, ok := c.expect(60, 40)
	if !ok {
		return p, false
	}
	c.tag++
	p.tag = c.tag
	rest := m.payload[6:]
	short := func() (s string) {
		n := int(rest[0])
		s, rest = string(rest[1:1+n]), rest[1+n:]
		return s
	}
	p.exchange, p.key = short(), short()
	p.mandatory = rest[0]&1 != 0
	h, err := c.read()
	if err != nil {
		return p, false
	}
	p.header = h.payload
	size := int(binary.BigEndian.Uint64(h.payload[4:]))
	flags := binary.BigEndian.Uint16(h.payload[12:])
	rest = h.payload[14:]
	for bit := 15; bit >= 7; bit-- { // message-id is bit 7
		if flags&(1<<bit) == 0 {
			continue
		}
		switch bit {
		case 13: // headers
			rest = rest[4+binary.BigEndian.Uint32(rest):]
		case 12, 11: // delivery mode, priority
			rest = rest[1:]
		default:
			s := short()
			if bit == 7 {
				p.id = s
			}
		}
	}
	for len(p.body) < size {
		b, err := c.read()
		if err != nil {
			return p, false
		}
		p.body = append(p.body, b.payload...)
	}
	return p, true
}

// take reads n publishes.
func (c *peer) take(n int) (ps []published) {
	for range n {
		p, ok := c.next()
		if !ok {
			break
		}
		ps = append(ps, p)
	}
	return ps
}

func (c *peer) ack(tag uint64, multiple bool)  { c.send(c.data, 60, 80, tag, bit(multiple)) }
func (c *peer) nack(tag uint64, multiple bool) { c.send(c.data, 60, 120, tag, bit(multiple)) }

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// giveBack returns a message as unroutable.
func (c *peer) giveBack(p published) {
	out := encode(c.data, 60, 50, uint16(312), "NO_ROUTE", p.exchange, p.key)
	out = append(out, wrap(2, c.data, p.header)...)
	if len(p.body) > 0 {
		out = append(out, wrap(3, c.data, p.body)...)
	}
	c.write(out)
}

// obey confirms everything until the client goes, and returns the ids.
func (c *peer) obey() (ids []string) {
	for {
		p, ok := c.next()
		if !ok {
			return ids
		}
		ids = append(ids, p.id)
		c.ack(p.tag, false)
	}
}

// closeChannel ends the confirm channel and waits for the next.
func (c *peer) closeChannel(code uint16, text string) bool {
	c.send(c.data, 20, 40, code, text, uint16(60), uint16(40))
	if _, ok := c.expect(20, 41); !ok {
		return false
	}
	return c.confirms()
}

// gone reads on until the client has closed the connection.
func (c *peer) gone() {
	for {
		if _, err := c.read(); err != nil {
			return
		}
	}
}

// silent reports whether the client sends no publish for d.
func (c *peer) silent(d time.Duration) bool {
	_ = c.conn.SetReadDeadline(time.Now().Add(d))
	defer func() { _ = c.conn.SetReadDeadline(time.Time{}) }()
	_, err := c.read()
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
