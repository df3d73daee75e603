package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// Level grades a finding.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, with a risk that the text names
	Fail Level = "fail" // it does not work
)

// Finding is one line of a check.
type Finding struct {
	Level  Level  `json:"level"`
	What   string `json:"what"`             // what was looked at
	Text   string `json:"text"`             // what was found, and why it matters
	Remedy string `json:"remedy,omitempty"` // the statement or setting that mends it
}

func (f Finding) String() string {
	s := f.What + ": " + f.Text
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	return s
}

// findings gathers what a check finds.
type findings []Finding

func (fs *findings) ok(what, format string, args ...any) {
	*fs = append(*fs, Finding{Level: OK, What: what, Text: fmt.Sprintf(format, args...)})
}

func (fs *findings) warn(what, remedy, format string, args ...any) {
	*fs = append(*fs, Finding{Level: Warn, What: what, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (fs *findings) fail(what, remedy, format string, args ...any) {
	*fs = append(*fs, Finding{Level: Fail, What: what, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// CheckSource looks at what a relay cannot start without on the source, and
// changes nothing. The error is one of reaching the server. What it finds is
// what waiting does not mend; [Check] looks at all the rest as well.
func CheckSource(ctx context.Context, c *configs.Config, db *sql.DB) ([]Finding, error) {
	server, err := canal.Inspect(ctx, db)
	if err != nil {
		return nil, err
	}
	var fs findings
	checkServer(&fs, &server)
	if _, err := checkShapes(ctx, &fs, c, db, &server); err != nil {
		return nil, err
	}
	return fs, nil
}

// Check looks at everything that relaying needs, from this machine and with the
// configured accounts: what is wrong, why it matters, what mends it. It changes
// nothing, takes no lease and disturbs no relay. What cannot be reached is a
// finding too, and the rest is looked at all the same.
func Check(ctx context.Context, c *configs.Config) []Finding {
	var fs findings
	checkFiles(&fs, c)
	db := checkpoint.Connect(Endpoint(c), checkpoint.Session{IdleTimeout: c.Lease.TTL})
	defer db.Close()
	routes := checkDatabase(ctx, &fs, c, db)
	checkBroker(ctx, &fs, c, routes)
	return fs
}

// checkDatabase looks at the source, and returns where its newest rows would go.
func checkDatabase(ctx context.Context, fs *findings, c *configs.Config, db *sql.DB) []route {
	a, err := openAccount(ctx, db)
	if err != nil {
		fs.fail("source", "correct source.address, user, password and tls, or start the server", "%v", err)
		return nil
	}
	a.checkPrivileges(ctx, fs)
	server, err := canal.Inspect(ctx, db)
	switch {
	case errors.Is(err, canal.ErrPrivilege):
		fs.fail("source", "grant what is missing, and check again", "the binary log could not be looked at: %v", err)
	case err != nil:
		fs.fail("source", "", "%v", err)
		return nil
	default:
		checkServer(fs, &server)
		checkPrimary(ctx, fs, c, db, &server)
		checkState(ctx, fs, c, db, &server, a)
	}
	shapes, err := checkShapes(ctx, fs, c, db, &server)
	if err != nil {
		fs.fail("tables", "", "%v", err)
		return nil
	}
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	var routes []route
	for _, shape := range shapes {
		t := ts.find(shape.Table)
		checkTable(ctx, fs, t.config, shape, db)
		a.checkOutbox(ctx, fs, t.config, shape.Table)
		routes = append(routes, recentRoutes(ctx, fs, t, shape, db)...)
	}
	return routes
}
