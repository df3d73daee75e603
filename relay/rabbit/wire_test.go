package rabbit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// line returns a wire over TCP and its other end.
func line(t testing.TB, limit int) (*wire, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(raw, raw, limit, func() {})
	t.Cleanup(func() { w.abort(); <-w.done; other.Close() })
	return w, other
}

func TestTheWireKeepsBytesInOrderWhoeverWrites(t *testing.T) {
	t.Parallel()
	w, other := line(t, 1<<20)
	const writers, each = 8, 2000
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				if _, err := w.Write([]byte{byte(i), byte(n), byte(n >> 8)}); err != nil {
					t.Error(err)
				}
				if n%64 == 0 {
					w.hold()
					w.release()
				}
			}
		})
	}
	got := make([]byte, writers*each*3)
	if _, err := io.ReadFull(other, got); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	var next [writers]int
	for ; len(got) > 0; got = got[3:] {
		if n := int(got[1]) | int(got[2])<<8; n != next[got[0]] {
			t.Fatalf("writer %d: %d came instead of %d", got[0], n, next[got[0]])
		}
		next[got[0]]++
	}
}

func TestAWriteWithinTheLimitNeverBlocksAndOneAboveItEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	const limit = 32 << 20 // more than the sockets take
	w, _ := line(t, limit)
	chunk := make([]byte, 1<<20)
	for range limit >> 20 { // nobody reads
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	result := make(chan error, 1)
	go func() {
		for {
			if _, err := w.Write(chunk); err != nil {
				result <- err
				return
			}
		}
	}()
	for full := false; !full; {
		w.mu.Lock()
		full = len(w.buf)+w.writing+len(chunk) > limit
		w.mu.Unlock()
	}
	w.abort()
	if err := <-result; !errors.Is(err, errBroken) {
		t.Errorf("the blocked write ended with %v", err)
	}
}

func TestCloseWritesTheLastWordsButWaitsForNobody(t *testing.T) {
	t.Parallel()
	w, other := line(t, 1<<20)
	w.hold()
	for range 100 {
		_, _ = w.Write([]byte("word"))
	}
	w.Close()
	got, err := io.ReadAll(other)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("word"), 100)) {
		t.Errorf("%d bytes arrived, %v", len(got), err)
	}

	w, _ = line(t, 64<<20)
	_, _ = w.Write(make([]byte, 60<<20))
	before := time.Now()
	w.Close()
	if d := time.Since(before); d > 4*lastWords {
		t.Errorf("closing took %v while nobody read", d)
	}
}

func TestHeartbeatsDoNotFillABufferThatWaits(t *testing.T) {
	t.Parallel()
	const limit = 32 << 20
	w, other := line(t, limit)
	payload := make([]byte, 24<<20)
	_, _ = w.Write(payload)
	for range 1 << 16 { // days of them
		if _, err := w.Write(heartbeatFrame); err != nil {
			t.Fatal(err)
		}
	}
	w.mu.Lock()
	waiting := len(w.buf)
	w.mu.Unlock()
	if waiting > len(payload)+len(heartbeatFrame) {
		t.Errorf("%d bytes wait", waiting)
	}
	// An idle connection still gets its own.
	if _, err := io.ReadFull(other, make([]byte, len(payload))); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, 8)
	go func() { _, _ = w.Write(heartbeatFrame) }()
	if _, err := io.ReadFull(other, rest); err != nil || !bytes.Equal(rest, heartbeatFrame) {
		t.Errorf("an idle connection got %v, %v", rest, err)
	}
}

// FuzzTheWireLosesNothing writes, holds and releases in any pattern, closes,
// and compares what arrived.
func FuzzTheWireLosesNothing(f *testing.F) {
	f.Add([]byte{1, 2, 3, 250, 9, 251, 0, 255})
	f.Add([]byte{250, 200, 200, 200, 251, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		w, other := line(t, 300)
		var want []byte
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(other)
			got <- b
		}()
		for i, op := range script {
			switch op {
			case 250:
				w.hold()
			case 251:
				w.release()
			default:
				p := bytes.Repeat([]byte{byte(i)}, int(op))
				if _, err := w.Write(p); err != nil {
					t.Fatal(err)
				}
				want = append(want, p...)
			}
		}
		w.Close()
		if b := <-got; !bytes.Equal(b, want) {
			t.Fatalf("%d bytes arrived of %d", len(b), len(want))
		}
	})
}
