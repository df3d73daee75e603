package canal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
)

// follow streams in the background until the test ends or the stream does.
type following struct {
	batches chan Batch
	ended   chan error
	stop    context.CancelFunc
}

func (f *rig) follow(s *Source, start Start) *following {
	ctx, cancel := context.WithCancel(f.Context())
	g := &following{batches: make(chan Batch), ended: make(chan error, 1), stop: cancel}
	go func() {
		g.ended <- s.Stream(ctx, start, func(b Batch) error {
			select {
			case g.batches <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	f.Cleanup(cancel)
	return g
}

// awaitRow returns when a row with this id has come.
func (g *following) awaitRow(t *testing.T, id string) {
	t.Helper()
	for {
		select {
		case b := <-g.batches:
			for _, r := range b.Rows {
				if string(r.Values[0]) == id {
					return
				}
			}
		case err := <-g.ended:
			t.Fatalf("stream ended before row %s: %v", id, err)
		case <-time.After(10 * time.Second):
			t.Fatalf("row %s did not come", id)
		}
	}
}

// end waits for the stream's error, within a bound.
func (g *following) end(t *testing.T, within time.Duration) error {
	t.Helper()
	limit := time.After(within)
	for {
		select {
		case <-g.batches:
		case err := <-g.ended:
			return err
		case <-limit:
			t.Fatalf("stream did not end within %v", within)
		}
	}
}

func (f *rig) proxy() *lab.Proxy {
	f.Helper()
	p, err := lab.StartProxy(f.srv.Addr())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { p.Close() })
	return p
}

// cutting is a connection that ends after some bytes were read from it.
type cutting struct {
	net.Conn
	left int
}

func (c *cutting) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func TestAConnectionThatIsCutAnywhereLosesAndDoublesNothing(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mysqlPlain, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		for i := range 5 {
			f.session("BEGIN", fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL),(%d,'x',NULL)", 4*i+1, 4*i+2), "INSERT INTO other VALUES ("+fmt.Sprint(i)+",'y')",
				fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL),(%d,'x',NULL)", 4*i+3, 4*i+4), "COMMIT")
		}
		cuts := 0
		for limit := 2000; ; limit += 307 {
			s := f.source()
			s.heartbeat = 100 * time.Millisecond // the server notices the cut soon
			s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return &cutting{conn, limit}, err
			}
			before, err := f.tryRead(s, start)
			if errors.Is(err, errEnough) {
				break
			}
			if len(before) > 0 {
				cuts++
			}
			// On from the last whole group, as the relay does.
			next := start.Position.Clone()
			for _, b := range before {
				next.Advance(*b.End)
			}
			after := f.read(f.source(), Start{Position: next, Shapes: start.Shapes})
			wantIDs(t, append(before, after...), numbers(1, 20)...)
		}
		if cuts < 4 {
			t.Errorf("only %d cuts fell between the first group and the last", cuts)
		}
	})
}

func TestAKilledDumpIsAnErrorAndTheStreamGoesOnFromItsLastMark(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		session := make(chan Session, 1)
		s := f.source(func(o *Options) { o.Opened = func(s Session) error { session <- s; return nil } })
		g := f.follow(s, start)
		f.insert(1, 1)
		g.awaitRow(t, "1")
		next := start
		next.Position = f.here()
		f.exec(fmt.Sprintf("KILL %d", (<-session).ConnectionID))
		if err := g.end(t, 10*time.Second); err == nil || errors.As(err, new(*GapError)) || errors.As(err, new(*HaltError)) {
			t.Errorf("ended with %v, want an error to retry", err)
		}
		f.insert(2, 3)
		wantIDs(t, f.read(f.source(), next), "2", "3")
	})
}

func TestAStreamEndsAtOnceWhenItsContextDoes(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		g := f.follow(f.source(), f.start())
		f.insert(1, 1)
		g.awaitRow(t, "1")
		g.stop()
		if err := g.end(t, 2*time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestAServerThatNeverGreetsHoldsNobodyUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	onEach(t, []variant{mysqlGTID}, func(t *testing.T, f *rig) {
		g := f.follow(f.source(func(o *Options) { o.Address = silent.Addr().String() }), f.start())
		conn, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		g.stop()
		if err := g.end(t, 2*time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestADeadPeerIsSeenInTime(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		p := f.proxy()
		s := f.source(func(o *Options) { o.Address = p.Addr() })
		s.heartbeat, s.silence = 100*time.Millisecond, 500*time.Millisecond
		g := f.follow(s, f.start())
		f.insert(1, 1)
		g.awaitRow(t, "1")
		// An idle stream lives on heartbeats alone.
		select {
		case err := <-g.ended:
			t.Fatalf("an idle stream ended: %v", err)
		case <-time.After(2 * s.silence):
		}
		if heard := time.Since(s.Progress().Heard); heard > s.silence {
			t.Errorf("the last sign of life is %v old", heard)
		}
		p.Set(lab.BlackHole)
		if err := g.end(t, 5*time.Second); err == nil {
			t.Error("ended without an error")
		}
	})
}

func TestAReaderThatWaitsForALongTimeIsNotThrownOut(t *testing.T) {
	onEach(t, []variant{mysqlGTID, mariaFull}, func(t *testing.T, f *rig) {
		start := f.start()
		s := f.source()
		s.heartbeat, s.silence = 100*time.Millisecond, 400*time.Millisecond
		g := f.follow(s, start)
		f.insert(1, 2)
		<-time.After(3 * s.silence) // the reader is stuck in emit: its silence is its own
		g.awaitRow(t, "2")
		f.insert(3, 3)
		g.awaitRow(t, "3")
	})
}

func TestAServerRestartIsRidden(t *testing.T) {
	for _, v := range []variant{mysqlGTID, mysqlPlain, mariaFull} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			srv, err := lab.StartMySQL(t.Context(), v.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			f := newRig(t, srv)
			start := f.start()
			g := f.follow(f.source(), start)
			f.insert(1, 2)
			g.awaitRow(t, "2")
			if err := srv.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := g.end(t, 10*time.Second); err == nil {
				t.Error("ended without an error")
			}
			if err := srv.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.insert(3, 4)
			wantIDs(t, f.read(f.source(), start), numbers(1, 4)...)
		})
	}
}
