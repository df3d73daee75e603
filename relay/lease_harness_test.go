package relay

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

// leaseBench is one stream's lease on one server. Everything but the set-up
// runs as a user with the least privileges.
type leaseBench struct {
	*testing.T
	server *lab.MySQLServer
	leaseEnd
	root *sql.DB
}

// leaseEnd is what a process needs to stand for the lease.
type leaseEnd struct {
	Address, User, Password, Schema string
	TTL                             time.Duration
	Fast                            bool
	Freeze                          string // where a child waits for a word: "" leading, "transaction" inside one
}

func newLeaseBench(t *testing.T, server *lab.MySQLServer, fast bool) *leaseBench {
	t.Helper()
	ctx := t.Context()
	user, err := server.NewUser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := server.NewDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := &leaseBench{T: t, server: server, root: server.RootDB(),
		leaseEnd: leaseEnd{Address: server.Addr(), User: user.Name, Password: user.Password, Schema: schema, TTL: never, Fast: fast}}
	if _, _, err := checkpoint.Init(ctx, b.root, schema); err != nil {
		t.Fatal(err)
	}
	flavor := checkpoint.MySQL
	if server.Kind() == lab.MariaDB1011 {
		flavor = checkpoint.MariaDB
	}
	for _, grant := range checkpoint.Grants(flavor, fmt.Sprintf("'%s'@'%%'", user.Name), schema, nil) {
		b.exec(grant)
	}
	return b
}

func (b *leaseBench) exec(statement string, args ...any) {
	b.Helper()
	if _, err := b.root.ExecContext(b.Context(), strings.ReplaceAll(statement, "{schema}", b.Schema), args...); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

func (b *leaseBench) value(query string, args ...any) (v string) {
	b.Helper()
	if err := b.root.QueryRowContext(b.Context(), strings.ReplaceAll(query, "{schema}", b.Schema), args...).Scan(&v); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return v
}

// open connects as a relay does.
func (e leaseEnd) open(ctx context.Context) (*checkpoint.Store, *sql.DB, error) {
	db := checkpoint.Connect(checkpoint.Endpoint{Address: e.Address, User: e.User, Password: func() (string, error) { return e.Password, nil }},
		checkpoint.Session{IdleTimeout: e.TTL})
	store, err := checkpoint.Open(ctx, db, e.Schema)
	return store, db, err
}

// candidate is an elector in this process and what became of it.
type candidate struct {
	name    string
	elector *Elector
	store   *checkpoint.Store
	leads   chan *Term      // each leadership, as it begins
	ends    chan error      // the cause of each end
	states  chan LeaseState // as observed
	stop    context.CancelFunc
	done    chan error // what Run returned
	drain   chan struct{}
}

// stand starts an elector that leads until it is stopped.
func (b *leaseBench) stand(name string, end leaseEnd) *candidate {
	b.Helper()
	store, db, err := end.open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &candidate{name: name, store: store, leads: make(chan *Term, 16), ends: make(chan error, 16), states: make(chan LeaseState, 1024),
		stop: stop, done: make(chan error, 1)}
	c.elector = NewElector(store, LeaseConfig{Stream: "shop", Holder: name, TTL: end.TTL, Fast: end.Fast,
		Observe: func(s LeaseState) {
			select {
			case c.states <- s:
			default: // nobody looks
			}
		}})
	go func() {
		c.done <- c.elector.Run(ctx, func(ctx context.Context, term *Term) error {
			c.leads <- term
			<-ctx.Done()
			if c.drain != nil {
				<-c.drain
			}
			c.ends <- context.Cause(ctx)
			return nil
		})
		_ = db.Close()
		close(c.done)
	}()
	b.Cleanup(func() {
		stop()
		for range c.done {
		}
	})
	return c
}

// A machine may be busy for seconds. So what must not wait for an expiry is
// tried with a lease that never expires, and what must, with a short one on
// the side that loses it.
const (
	never = 2 * time.Minute // no lease of this ttl expires within a test
	brief = 3 * time.Second // one that is to expire
	soon  = 30 * time.Second
)

// lasting returns the end with another ttl.
func (e leaseEnd) lasting(ttl time.Duration) leaseEnd {
	e.TTL = ttl
	return e
}

func receive[T any](b *leaseBench, what string, from <-chan T, within time.Duration) T {
	b.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		b.Fatalf("%s: not within %s", what, within)
		panic("unreachable")
	}
}

// receiveState waits for a state of a kind.
func receiveState(b *leaseBench, c *candidate, what string, is func(LeaseState) bool) LeaseState {
	b.Helper()
	deadline := time.Now().Add(soon)
	for {
		if s := receive(b, c.name+" "+what, c.states, time.Until(deadline)); is(s) {
			return s
		}
	}
}

// standsBy waits until c has seen somebody lead.
func (b *leaseBench) standsBy(c *candidate, leader string) LeaseState {
	b.Helper()
	return receiveState(b, c, "stands by behind "+leader, func(s LeaseState) bool { return !s.Leading && s.Leader == leader })
}

// lockName is the stream's lock. Programs of two versions that stand for one
// lease must agree on it, so it never changes.
func (b *leaseBench) lockName() string {
	sum := sha256.Sum256([]byte(b.Schema + "\x00shop"))
	return "towpath.lease." + hex.EncodeToString(sum[:16])
}

// lockIsHeld waits until some session holds the stream's lock.
func (b *leaseBench) lockIsHeld() {
	b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(soon); b.value("SELECT COALESCE(IS_USED_LOCK(?), 0)", b.lockName()) == "0"; {
		if time.Now().After(deadline) {
			b.Fatal("nobody holds the lock")
		}
		<-tick.C
	}
}

// save writes a position under a term's fence.
func save(ctx context.Context, store *checkpoint.Store, f checkpoint.Fence, offset uint64) error {
	return store.Fenced(ctx, f, func(ctx context.Context, tx *checkpoint.Tx) error {
		return tx.SavePosition(ctx, checkpoint.Position{Flavor: store.Flavor(), Server: "s", File: "binlog.000001", Offset: offset})
	})
}

// child is an elector in a process of its own, which can be killed and stopped.
type child struct {
	*exec.Cmd
	lines chan string
	stdin io.WriteCloser
}

func (b *leaseBench) child(end leaseEnd) *child {
	b.Helper()
	spec, err := json.Marshal(end)
	if err != nil {
		b.Fatal(err)
	}
	c := &child{Cmd: exec.Command(os.Args[0], "-test.run=^TestLeaseChild$"), lines: make(chan string, 16)}
	c.Env = append(os.Environ(), childVariable+"="+string(spec))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if c.stdin, err = c.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	b.Cleanup(func() {
		_ = c.Process.Kill()
		for range c.lines {
		}
		_ = c.Wait()
	})
	return c
}

func (c *child) signal(b *leaseBench, s syscall.Signal) {
	b.Helper()
	if err := c.Process.Signal(s); err != nil {
		b.Fatal(err)
	}
}

// says waits for a line that begins with a word, and returns its rest.
func (c *child) says(b *leaseBench, word string) string {
	b.Helper()
	for {
		line := receive(b, "the child says "+word, c.lines, soon)
		if rest, found := strings.CutPrefix(line, word+" "); found {
			return rest
		}
		if line == "" {
			b.Fatalf("the child ended before it said %s", word)
		}
	}
}

const childVariable = "TOWPATH_LEASE_CHILD"

// TestLeaseChild is the process that other tests start, kill and stop; without
// their word it has nothing to do.
func TestLeaseChild(t *testing.T) {
	spec := os.Getenv(childVariable)
	if spec == "" {
		return
	}
	var end leaseEnd
	if err := json.Unmarshal([]byte(spec), &end); err != nil {
		t.Fatal(err)
	}
	store, db, err := end.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	word := bufio.NewReader(os.Stdin)
	elector := NewElector(store, LeaseConfig{Stream: "shop", Holder: NewHolder(), TTL: end.TTL, Fast: end.Fast})
	err = elector.Run(t.Context(), func(ctx context.Context, term *Term) error {
		wait := func() {
			fmt.Println("leading", term.Fence.Term)
			_, _ = word.ReadString('\n')
		}
		inside := wait
		if end.Freeze == "" {
			wait()
			inside = nil
		}
		first := end.writeLate(store, term.Fence, inside)
		last := first
		for i := 0; i < 10 && last != nil && !errors.Is(last, checkpoint.ErrFenced); i++ {
			last = end.writeLate(store, term.Fence, nil)
		}
		fmt.Printf("wrote first: %v, fenced: %v\n", first != nil, errors.Is(last, checkpoint.ErrFenced))
		<-ctx.Done()
		fmt.Println("ended", context.Cause(ctx))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// writeLate saves a position, whatever the leadership's context says. Inside
// the transaction, with all locks held, it may be stopped.
func (end leaseEnd) writeLate(store *checkpoint.Store, f checkpoint.Fence, inside func()) error {
	return store.Fenced(context.Background(), f, func(ctx context.Context, tx *checkpoint.Tx) error {
		if err := tx.SavePosition(ctx, checkpoint.Position{Flavor: store.Flavor(), Server: "s", File: "binlog.000001", Offset: 666}); err != nil {
			return err
		}
		if inside == nil {
			return nil
		}
		rows, err := tx.Query(ctx, "SELECT term FROM "+end.Schema+".lease WHERE stream='shop' LOCK IN SHARE MODE")
		if err != nil {
			return err
		}
		inside()
		return rows.Close()
	})
}
