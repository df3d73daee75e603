package lab

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo is a server that sends back what it gets, and tells of each byte it got.
func echo(t *testing.T) (addr string, got chan byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got = make(chan byte, 1<<20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					for _, b := range buf[:n] {
						got <- b
					}
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), got
}

func proxyTo(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func dialProxy(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
		t.Fatalf("read %q, %v; want %q", buf, err, text)
	}
}

// expectSilence looks for a moment: a byte that would come is on its way already.
func expectSilence(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func expectReset(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v; want a reset", err)
	}
}

func TestProxyPassesBytesAndEnds(t *testing.T) {
	addr, _ := echo(t)
	c := dialProxy(t, proxyTo(t, addr))
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	go c.Write(big)
	back := make([]byte, len(big))
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, big) {
		t.Fatalf("256 KiB did not come back as sent: %v", err)
	}
	c.CloseWrite()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d, %v after the end was sent; want the server's end", n, err)
	}
}

func TestProxyHoldsOneDirectionAndDeliversLater(t *testing.T) {
	addr, got := echo(t)
	p := proxyTo(t, addr)
	c := dialProxy(t, p)
	send(t, c, "a")
	expect(t, c, "a")
	<-got

	p.Set(Fault{HoldDown: true})
	send(t, c, "b")
	if b := <-got; b != 'b' {
		t.Fatalf("the server got %q", b)
	}
	expectSilence(t, c)

	p.Set(Fault{HoldUp: true}) // lets the answer through
	expect(t, c, "b")
	send(t, c, "c")
	expectSilence(t, c)
	if len(got) != 0 {
		t.Fatal("the server got what was held")
	}
	p.Set(Fault{})
	expect(t, c, "c")
}

func TestProxyBlackHoleHidesTheEndOfAClient(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := proxyTo(t, server.Addr().String())
	client := dialProxy(t, p)
	behind, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	p.Set(BlackHole)
	client.Close()
	expectSilence(t, behind)
	p.Set(Fault{})
	behind.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := behind.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("read: %v; want the client's end", err)
	}
}

func TestProxyCutsAfterExactlySoManyBytesOnce(t *testing.T) {
	addr, got := echo(t)
	p := proxyTo(t, addr)
	c := dialProxy(t, p)
	p.Set(Fault{CutUpAfter: 5})
	send(t, c, "0123456789")
	expectReset(t, c)
	for _, want := range "01234" {
		if b := <-got; b != byte(want) {
			t.Fatalf("the server got %q, want %q", b, want)
		}
	}
	c = dialProxy(t, p)
	send(t, c, "again")
	expect(t, c, "again")
	if len(got) != len("again") {
		t.Fatalf("%d bytes passed the cut", len(got)-len("again"))
	}

	p.Set(Fault{CutDownAfter: 3})
	send(t, c, "xyzw")
	expect(t, c, "xyz")
	expectReset(t, c)
}

func TestProxyResetsAndRefuses(t *testing.T) {
	addr, _ := echo(t)
	p := proxyTo(t, addr)
	c := dialProxy(t, p)
	send(t, c, "a")
	expect(t, c, "a")
	p.Set(Fault{Refuse: true})
	send(t, c, "b")
	expect(t, c, "b")
	if refused, err := net.Dial("tcp", p.Addr()); err == nil { // else it was reset before Dial returned
		defer refused.Close()
		expectReset(t, refused)
	}
	p.Reset()
	expectReset(t, c)
}

func TestProxyCutEndsBothSides(t *testing.T) {
	addr, _ := echo(t)
	p := proxyTo(t, addr)
	c := dialProxy(t, p)
	send(t, c, "a")
	expect(t, c, "a")
	p.Cut()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d, %v; want the end", n, err)
	}
}

func TestProxyDelaysAndTrickles(t *testing.T) {
	addr, _ := echo(t)
	p := proxyTo(t, addr)
	c := dialProxy(t, p)
	p.Set(Fault{Delay: 30 * time.Millisecond})
	begin := time.Now()
	send(t, c, "a")
	expect(t, c, "a")
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Fatalf("there and back took %v, want two delays of 30ms", took)
	}
	p.Set(Fault{BytesPerSecond: 1000})
	begin = time.Now()
	text := string(bytes.Repeat([]byte("x"), 100))
	send(t, c, text)
	expect(t, c, text)
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Fatalf("100 bytes at 1000 a second took %v", took)
	}
}

func TestProxyClosesWithConnectionsHeld(t *testing.T) {
	addr, _ := echo(t)
	p := proxyTo(t, addr)
	c := dialProxy(t, p)
	send(t, c, "a")
	expect(t, c, "a")
	p.Set(BlackHole)
	send(t, c, "b")
	p.Close()
	expectReset(t, c)
	if n := p.Connections(); n != 0 {
		t.Fatalf("%d connections left", n)
	}
}
