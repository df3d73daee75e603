package lab

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MySQLOptions say how a MySQL or MariaDB server runs. The zero value of each
// is the server's own default; the binlog is always on and in row format, and
// commits are durable (sync_binlog and innodb_flush_log_at_trx_commit are 1).
type MySQLOptions struct {
	Kind        Kind     // MySQL97 or MariaDB1011
	GTID        bool     // gtid_mode and enforce_gtid_consistency, OFF without; MariaDB, which always has GTIDs: gtid_strict_mode
	RowMetadata string   // binlog_row_metadata: MINIMAL, FULL, MariaDB also NO_LOG
	RowImage    string   // binlog_row_image: FULL, MINIMAL, NOBLOB
	Compression bool     // compressed transactions (MySQL) or events (MariaDB) in the binlog
	TLS         bool     // with Certificates of its own, in place of those that MySQL makes
	Keyring     bool     // MySQL: with a keyring, which encryption needs
	Args        []string // further arguments, as "--max-allowed-packet=1M"; they win
}

// MySQLServer is a MySQL or MariaDB server of one's own.
type MySQLServer struct {
	*host
	opts    MySQLOptions
	prog    program
	account mysql.Config // the administrator, whose address is the server's
	admin   *sql.DB
	certs   *Certificates
}

// StartMySQL starts a server with an empty data folder and returns when it
// answers. Close it.
func StartMySQL(ctx context.Context, opts MySQLOptions) (*MySQLServer, error) {
	if opts.Kind.IsRabbit() || opts.Kind == Prometheus {
		return nil, fmt.Errorf("%s is not a database", opts.Kind)
	}
	if addr := opts.Kind.RunningAddress(); addr != "" {
		return foreignMySQL(ctx, opts, addr)
	}
	prog, err := find(opts.Kind)
	if err != nil {
		return nil, err
	}
	template, err := mysqlTemplate(ctx, prog)
	if err != nil {
		return nil, fmt.Errorf("initialise %s: %w", prog.title, err)
	}
	h, err := newHost(opts.Kind, 1)
	if err != nil {
		return nil, err
	}
	s := &MySQLServer{host: h, opts: opts, prog: prog}
	if opts.Keyring {
		var args []string
		if s.prog, args, err = prog.withKeyring(h.dir); err != nil {
			s.Close()
			return nil, err
		}
		s.opts.Args = append(args, opts.Args...)
	}
	if err := s.begin(ctx, template); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *MySQLServer) begin(ctx context.Context, template string) error {
	if err := copyTree(template, s.dataDir()); err != nil {
		return err
	}
	if s.opts.TLS {
		var err error
		if s.certs, err = NewCertificates(filepath.Join(s.dir, "tls")); err != nil {
			return err
		}
	}
	if err := s.openAdmin("root", "", loopback(s.ports[0].number)); err != nil {
		return err
	}
	return s.Start(ctx)
}

func (s *MySQLServer) openAdmin(user, password, addr string) error {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", addr
	c.MultiStatements = true
	c.Logger = &mysql.NopLogger{} // it would tell of every idle connection that a Kill broke
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	s.account, s.admin = *c, sql.OpenDB(connector)
	s.admin.SetMaxIdleConns(idleAdmins)
	return nil
}

// idleAdmins is how many connections RootDB keeps.
const idleAdmins = 2

// Start brings a killed or stopped server back, on the same data and address.
func (s *MySQLServer) Start(ctx context.Context) error {
	if err := s.stopped(); err != nil {
		return err
	}
	p, err := startProcess(s.dir, s.logFile(), nil, s.prog.mysqldArgs(s.dataDir(), s.args()...)...)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.prog.title, err)
	}
	s.proc = p
	if err := s.guard.watch(p.pid()); err != nil {
		return err
	}
	if err := p.awaitReady(ctx, s.admin.PingContext); err != nil {
		_ = s.Kill()
		return fmt.Errorf("start %s: %w", s.prog.title, err)
	}
	return nil
}

// Stop shuts the server down in good order; Start brings it back.
func (s *MySQLServer) Stop(ctx context.Context) error {
	// MySQL gives every idle connection two seconds to end by itself.
	s.admin.SetMaxIdleConns(0)
	defer s.admin.SetMaxIdleConns(idleAdmins)
	return s.host.Stop(ctx)
}

// Restart stops the server and starts it with the changed options. Its kind stays.
func (s *MySQLServer) Restart(ctx context.Context, change ...func(*MySQLOptions)) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	for _, f := range change {
		f(&s.opts)
	}
	return s.Start(ctx)
}

// Close ends the server and removes its data. A foreign server stays.
func (s *MySQLServer) Close() error {
	if s.admin != nil {
		s.admin.Close()
	}
	return s.close()
}

// Certificates are the server's, nil without the option TLS.
func (s *MySQLServer) Certificates() *Certificates { return s.certs }

// Addr is host:port.
func (s *MySQLServer) Addr() string { return s.account.Addr }

// Socket is the path of the server's Unix socket.
func (s *MySQLServer) Socket() string { return filepath.Join(s.dataDir(), socketName) }

// RootDB is a pool of the administrator's connections. It belongs to the server.
func (s *MySQLServer) RootDB() *sql.DB { return s.admin }

// RootUser and RootPassword are the administrator's.
func (s *MySQLServer) RootUser() string     { return s.account.User }
func (s *MySQLServer) RootPassword() string { return s.account.Passwd }

// DSN is a data source name of go-sql-driver/mysql for the administrator.
// params are as "parseTime=true".
func (s *MySQLServer) DSN(database string, params ...string) string {
	return s.UserDSN(User{s.account.User, s.account.Passwd}, database, params...)
}

// UserDSN is DSN for another user.
func (s *MySQLServer) UserDSN(u User, database string, params ...string) string {
	dsn := fmt.Sprintf("%s:%s@tcp(%s)/%s", u.Name, u.Password, s.Addr(), database)
	if len(params) > 0 {
		dsn += "?" + strings.Join(params, "&")
	}
	return dsn
}

// NewDatabase makes an empty database of a name not used before.
func (s *MySQLServer) NewDatabase(ctx context.Context) (string, error) {
	name := unique("db")
	if _, err := s.admin.ExecContext(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		return "", fmt.Errorf("make a database: %w", err)
	}
	return name, nil
}

// User is a name and a password.
type User struct{ Name, Password string }

// NewUser makes a user of a name not used before, from any host, with grants
// as "SELECT, INSERT ON shop.*".
func (s *MySQLServer) NewUser(ctx context.Context, grants ...string) (User, error) {
	u := User{unique("user"), unique("secret")}
	statements := []string{fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", u.Name, u.Password)}
	for _, g := range grants {
		statements = append(statements, fmt.Sprintf("GRANT %s TO '%s'@'%%'", g, u.Name))
	}
	for _, statement := range statements {
		if _, err := s.admin.ExecContext(ctx, statement); err != nil {
			return User{}, fmt.Errorf("make a user: %w", err)
		}
	}
	return u, nil
}

func (s *MySQLServer) dataDir() string { return filepath.Join(s.dir, "data") }

// socketName is relative to the data folder, because the path of a Unix socket
// is limited to 107 bytes and that of a temporary folder is not.
const socketName = "mysql.sock"

// args turns the options into arguments.
func (s *MySQLServer) args() []string {
	o := s.opts
	args := []string{"--port=" + s.ports[0].String(), "--server-id=" + s.ports[0].String()}
	if o.GTID && o.Kind.IsMariaDB() {
		args = append(args, "--gtid-strict-mode=ON")
	} else if o.GTID {
		args = append(args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	} else if !o.Kind.IsMariaDB() { // 9.7 has them by default
		args = append(args, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
	}
	if o.RowMetadata != "" {
		args = append(args, "--binlog-row-metadata="+o.RowMetadata)
	}
	if o.RowImage != "" {
		args = append(args, "--binlog-row-image="+o.RowImage)
	}
	if o.Compression && o.Kind.IsMariaDB() {
		args = append(args, "--log-bin-compress=ON")
	} else if o.Compression {
		args = append(args, "--binlog-transaction-compression=ON")
	}
	if s.certs != nil {
		args = append(args, "--ssl-ca="+s.certs.CA, "--ssl-cert="+s.certs.Server.Cert, "--ssl-key="+s.certs.Server.Key)
	}
	return append(args, o.Args...)
}

// mysqldArgs is a server's command line. What is turned off only matters when
// the machine loses power (doublewrite) or costs time at start.
func (p program) mysqldArgs(data string, more ...string) []string {
	args := []string{
		p.path, "--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1",
		"--tmpdir=" + filepath.Dir(data), // a MariaDB that starts deletes the temporary files of others there
		"--socket=" + socketName, "--pid-file=" + filepath.Join(data, "mysqld.pid"), "--secure-file-priv=",
		"--log-bin=binlog", "--skip-name-resolve",
		"--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
		"--innodb-doublewrite=OFF", "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	if p.kind.IsMariaDB() {
		args = append(args, "--binlog-format=ROW", "--innodb-log-file-size=16M")
	} else {
		args = append(args, "--mysqlx=OFF", "--innodb-redo-log-capacity=32M")
	}
	if p.root != "" {
		share := filepath.Join(p.root, "usr/share/mysql")
		args = append(args, "--lc-messages-dir="+share, "--character-sets-dir="+filepath.Join(share, "charsets"), "--plugin-dir="+filepath.Join(p.root, "usr/lib/mysql/plugin"))
	}
	return append(args, more...)
}
