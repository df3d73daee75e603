// Package labtest gives tests real servers of package lab: shared ones, started
// at first use and ended with the test process, and own ones, which a test may
// kill. A server that cannot be started fails the test; it never skips it.
package labtest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/towpath/towpath/deploy/lab"
)

// Main runs a package's tests, ends the shared servers and checks that no
// goroutine is left:
//
//	func TestMain(m *testing.M) { labtest.Main(m) }
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(closing{m}, options...)
}

// closing is a test run that ends the shared servers.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	defer databases.close()
	defer brokers.close()
	return c.m.Run()
}

// MySQL returns this process's shared server with these options. A test must
// leave it running; it takes a Database of its own.
func MySQL(t testing.TB, opts lab.MySQLOptions) *lab.MySQLServer {
	t.Helper()
	return databases.get(t, fmt.Sprintf("%+v", opts), func(ctx context.Context) (*lab.MySQLServer, error) { return lab.StartMySQL(ctx, opts) })
}

// Rabbit returns this process's shared broker with these options. A test must
// leave it running; it takes a Vhost of its own.
func Rabbit(t testing.TB, opts lab.RabbitOptions) *lab.RabbitServer {
	t.Helper()
	return brokers.get(t, fmt.Sprintf("%+v", opts), func(ctx context.Context) (*lab.RabbitServer, error) { return lab.StartRabbit(ctx, opts) })
}

// OwnMySQL returns a server that this test may kill, stop and restart.
func OwnMySQL(t testing.TB, opts lab.MySQLOptions) *lab.MySQLServer {
	t.Helper()
	s, err := lab.StartMySQL(t.Context(), opts)
	return own(t, s, err)
}

// OwnRabbit returns a broker that this test may kill, stop and restart.
func OwnRabbit(t testing.TB, opts lab.RabbitOptions) *lab.RabbitServer {
	t.Helper()
	s, err := lab.StartRabbit(t.Context(), opts)
	return own(t, s, err)
}

// Database makes an empty database, dropped after the test.
func Database(t testing.TB, s *lab.MySQLServer) string {
	t.Helper()
	name, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
		defer cancel()
		if !s.Up() { // a test may end with its own server down
			return
		}
		if _, err := s.RootDB().ExecContext(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return name
}

// DB makes an empty database and opens it for the administrator.
func DB(t testing.TB, s *lab.MySQLServer) (name string, db *sql.DB) {
	t.Helper()
	name = Database(t, s)
	db, err := sql.Open("mysql", s.DSN(name, "parseTime=true", "multiStatements=true"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return name, db
}

// Vhost makes an empty vhost with a user of its own, removed after the test.
func Vhost(t testing.TB, s *lab.RabbitServer) lab.Vhost {
	t.Helper()
	v, err := s.NewVhost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
		defer cancel()
		if !s.Up() {
			return
		}
		if err := s.DeleteVhost(ctx, v); err != nil {
			t.Errorf("delete the test's vhost: %v", err)
		}
	})
	return v
}

// cleanupWithin bounds what happens after a test.
const cleanupWithin = 30 * time.Second

// server is what labtest needs of either kind.
type server interface {
	Log() string
	Close() error
}

func own[S server](t testing.TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log ends:\n%s", s.Log())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var (
	databases shared[*lab.MySQLServer]
	brokers   shared[*lab.RabbitServer]
)

// shared starts one server per set of options.
type shared[S server] struct {
	mu     sync.Mutex
	starts map[string]func() (S, error)
	closes []func() error
}

func (p *shared[S]) get(t testing.TB, key string, start func(context.Context) (S, error)) S {
	t.Helper()
	p.mu.Lock()
	once, ok := p.starts[key]
	if !ok {
		if p.starts == nil {
			p.starts = map[string]func() (S, error){}
		}
		once = sync.OnceValues(func() (S, error) { return p.start(start) })
		p.starts[key] = once
	}
	p.mu.Unlock()
	s, err := once()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs under no test's context: the server outlives the test.
func (p *shared[S]) start(start func(context.Context) (S, error)) (S, error) {
	s, err := start(context.Background())
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closes = append(p.closes, s.Close)
	}
	return s, err
}

func (p *shared[S]) close() {
	for _, closeServer := range p.closes {
		_ = closeServer()
	}
}
