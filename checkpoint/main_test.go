package checkpoint

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

var servers = []lab.MySQLOptions{
	{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"},
	{Kind: lab.MariaDB1011, GTID: true, RowMetadata: "FULL"},
}

// onServers runs a test on each flavor, with a state schema of its own.
func onServers(t *testing.T, test func(t *testing.T, b *bench)) {
	for _, options := range servers {
		t.Run(fmt.Sprint(options.Kind), func(t *testing.T) {
			t.Parallel()
			server := labtest.MySQL(t, options)
			b := &bench{T: t, server: server, schema: labtest.Database(t, server)}
			b.endpoint = Endpoint{Address: server.Addr(), User: server.RootUser(), Password: func() (string, error) { return server.RootPassword(), nil }}
			b.db = b.pool(Session{IdleTimeout: 10 * time.Second})
			test(t, b)
		})
	}
}

// bench is one server with one state schema.
type bench struct {
	*testing.T
	server   *lab.MySQLServer
	endpoint Endpoint
	schema   string
	db       *sql.DB
}

func (b *bench) pool(s Session) *sql.DB {
	db := Connect(b.endpoint, s)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// store makes the state tables and opens them.
func (b *bench) store() *Store {
	b.Helper()
	if _, _, err := Init(b.Context(), b.db, b.schema); err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), b.db, b.schema)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) lease(s *Store) *LeaseSession {
	b.Helper()
	l, err := s.LeaseSession(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	return l
}

// take takes the lease of stream "shop", which must be free.
func (b *bench) take(l *LeaseSession, holder string) Takeover {
	b.Helper()
	t, err := l.Take(b.Context(), Claim{Stream: "shop", Holder: holder, TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (b *bench) exec(statement string, args ...any) {
	b.Helper()
	if _, err := b.db.ExecContext(b.Context(), in(b.schema, statement), args...); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

// value is the one value that a query gives, as text; "NULL" for NULL.
func (b *bench) value(query string, args ...any) string {
	b.Helper()
	var v sql.NullString
	if err := b.db.QueryRowContext(b.Context(), in(b.schema, query), args...).Scan(&v); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	if !v.Valid {
		return "NULL"
	}
	return v.String
}

// waitFor asks until the answer is yes.
func (b *bench) waitFor(what string, yes func(ctx context.Context) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes(ctx) {
		select {
		case <-ctx.Done():
			b.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
