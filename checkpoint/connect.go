package checkpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Endpoint says how to reach the source server by SQL.
type Endpoint struct {
	Address  string                 // host:port; empty when Socket is set
	Socket   string                 // path of a unix socket; empty when Address is set
	User     string                 //
	Password func() (string, error) // asked at each connect, so that a rotated one is found; nil for none
	TLS      TLS
}

// TLS says how a connection to the source is protected. Its files are read
// again at each connect.
type TLS struct {
	Mode       string // disabled, preferred, required or verify; empty is preferred
	CA         string // PEM file; empty: the system's
	Cert, Key  string // PEM files; both or neither
	ServerName string // empty: the host of the address
}

// Config reads the files and returns what a connection to address needs, nil
// for no TLS. Only verify checks the server's certificate and name; with
// preferred the caller goes on in plain text when the server has no TLS.
func (t TLS) Config(address string) (*tls.Config, error) {
	if t.Mode == "disabled" {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Mode != "verify"}
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("find the server name for TLS in %q: %w", address, err)
		}
		c.ServerName = host
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read source.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read source.tls.ca: no certificate in %s", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read source.tls.cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Session is what the SQL sessions of one pool have in common.
type Session struct {
	// IdleTimeout is the server's patience with a silent session: after it the
	// server ends the session and rolls back what it had open. For a leader's
	// sessions it is the lease's ttl, because a leader that is stopped inside
	// a transaction blocks its successor for that long (promise P4). Rounded
	// up to whole seconds.
	IdleTimeout time.Duration
	// Check is told which server a new session is on and refuses it by an
	// error, nil for no check. A pool whose address moves to another server
	// would otherwise write row state there.
	Check func(flavor Flavor, server string) error
}

const (
	dialTimeout = 10 * time.Second
	// ioTimeout frees a session whose server went away without a word where
	// the caller's context does not; no statement of ours runs that long.
	ioTimeout = 5 * time.Minute
)

// Connect returns a pool of SQL sessions; nothing is connected yet. Each
// session reads what is committed (READ COMMITTED), waits at most a second for
// a lock, speaks utf8mb4 and UTC, and shows columns the same way whatever the
// server's defaults are (promise P5).
func Connect(e Endpoint, s Session) *sql.DB {
	return sql.OpenDB(&connector{e, s})
}

type connector struct {
	endpoint Endpoint
	session  Session
}

func (c *connector) Driver() driver.Driver { return &mysql.MySQLDriver{} }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	dial, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cfg.Addr, err)
	}
	conn, err := dial.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s as %q: %w", cfg.Addr, cfg.User, err)
	}
	if err := c.prepare(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", cfg.Addr, err), conn.Close())
	}
	return conn, nil
}

func (c *connector) config() (*mysql.Config, error) {
	cfg := mysql.NewConfig() // LOCAL INFILE stays off: no file is registered and AllowAllFiles is false
	cfg.Net, cfg.Addr = "tcp", c.endpoint.Address
	cfg.User = c.endpoint.User
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	cfg.InterpolateParams = true // one round trip a statement, and values as text
	cfg.ClientFoundRows = true   // an UPDATE reports the rows that its condition matched
	cfg.ParseTime = false        // P5: a time is its text
	cfg.Logger = silent{}        // the driver would log a broken connection by itself; the error says it
	if c.endpoint.Password != nil {
		password, err := c.endpoint.Password()
		if err != nil {
			return nil, fmt.Errorf("read the password for %s: %w", c.endpoint.Address+c.endpoint.Socket, err)
		}
		cfg.Passwd = password
	}
	if c.endpoint.Socket != "" { // a socket does not leave the machine
		cfg.Net, cfg.Addr = "unix", c.endpoint.Socket
		return cfg, nil
	}
	tlsConfig, err := c.endpoint.TLS.Config(c.endpoint.Address)
	if err != nil {
		return nil, err
	}
	cfg.TLS = tlsConfig
	cfg.AllowFallbackToPlaintext = c.endpoint.TLS.Mode == "preferred" || c.endpoint.TLS.Mode == ""
	return cfg, nil
}

// prepare makes a new session the same on every server, also where
// init_connect or a default says otherwise. innodb_lock_wait_timeout and
// wait_timeout bound how long a stopped leader can hold up its successor.
func (c *connector) prepare(ctx context.Context, conn driver.Conn) error {
	idle := int64((c.session.IdleTimeout + time.Second - 1) / time.Second)
	statements := []string{
		"SET NAMES utf8mb4",
		fmt.Sprintf(`SET SESSION autocommit=1, time_zone='+00:00', innodb_lock_wait_timeout=1, lock_wait_timeout=1, wait_timeout=%d,
			sql_mode='STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'`, max(idle, 1)),
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
	}
	for _, statement := range statements {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
	}
	if c.session.Check == nil {
		return nil
	}
	flavor, server, err := identify(ctx, conn)
	if err != nil {
		return err
	}
	return c.session.Check(flavor, server)
}

func identify(ctx context.Context, conn driver.Conn) (Flavor, string, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, IdentityQuery, nil)
	if err != nil {
		return "", "", fmt.Errorf("identify server: %w", err)
	}
	defer rows.Close()
	variables, pair := map[string]string{}, make([]driver.Value, 2)
	for rows.Next(pair) == nil {
		variables[text(pair[0])] = text(pair[1])
	}
	return Identity(variables)
}

func text(v driver.Value) string {
	b, _ := v.([]byte)
	return string(b)
}

type silent struct{}

func (silent) Print(...any) {}

// Identify asks an open session which server it is on.
func Identify(ctx context.Context, conn *sql.Conn) (flavor Flavor, server string, err error) {
	rawErr := conn.Raw(func(c any) error {
		flavor, server, err = identify(ctx, c.(driver.Conn))
		return nil
	})
	return flavor, server, errors.Join(err, rawErr)
}
