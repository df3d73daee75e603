package checkpoint

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// The servers' defaults are hostile here, so that each is seen to be replaced.
func TestEverySessionIsTheSameWhateverTheServersDefaults(t *testing.T) {
	for _, options := range servers {
		t.Run(string(options.Kind), func(t *testing.T) {
			t.Parallel()
			options.Args = []string{"--autocommit=0", "--default-time-zone=+05:00", "--transaction-isolation=SERIALIZABLE",
				"--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH", "--character-set-server=latin1", "--collation-server=latin1_bin"}
			server := labtest.MySQL(t, options)
			db := Connect(Endpoint{Address: server.Addr(), User: server.RootUser()}, Session{IdleTimeout: 2500 * time.Millisecond})
			defer db.Close()
			isolation := "@@transaction_isolation"
			if options.Kind == lab.MariaDB1011 {
				isolation = "@@tx_isolation"
			}
			for range 2 { // a second session of the pool, too
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				var got string
				err = conn.QueryRowContext(t.Context(), `SELECT CONCAT_WS(' ', `+isolation+`, @@autocommit+0, @@time_zone, @@innodb_lock_wait_timeout,
					@@lock_wait_timeout, @@wait_timeout, @@sql_mode, @@character_set_client, @@character_set_results, ?)`, `a\'"é`).Scan(&got)
				want := `READ-COMMITTED 1 +00:00 1 1 3 STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION utf8mb4 utf8mb4 a\'"é`
				if err != nil || got != want {
					t.Errorf("got  %s, %v\nwant %s", got, err, want)
				}
			}
		})
	}
}

func TestASilentSessionIsEndedAndRolledBackByTheServer(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		b.exec("CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
		conn, err := b.pool(Session{IdleTimeout: time.Second}).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, statement := range []string{"START TRANSACTION", in(b.schema, "INSERT INTO {schema}.t VALUES (1)")} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		started := time.Now()
		for {
			_, err := b.db.ExecContext(t.Context(), in(b.schema, "INSERT INTO {schema}.t VALUES (1)"))
			if err == nil {
				break
			}
			if !hasNumber(err, errLockWait) || time.Since(started) > 10*time.Second {
				t.Fatalf("after %s: %v", time.Since(started), err)
			}
		}
	})
}

func TestASessionOnAnotherServerIsRefused(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		var seen, expected string
		moved := errors.New("the address leads to another server")
		check := func(flavor Flavor, server string) error {
			seen = string(flavor) + " " + server
			if expected != "" && server != expected {
				return moved
			}
			return nil
		}
		db := b.pool(Session{IdleTimeout: time.Second, Check: check})
		if err := db.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(seen, string(b.flavor())+" ") || len(seen) < 10 {
			t.Errorf("the server is %q", seen)
		}
		expected = "another"
		other := b.pool(Session{IdleTimeout: time.Second, Check: check})
		if err := other.PingContext(t.Context()); !errors.Is(err, moved) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAChangedPasswordIsFoundAtTheNextConnect(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		user, err := b.server.NewUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		password := "wrong sesame"
		e := Endpoint{Address: b.server.Addr(), User: user.Name, Password: func() (string, error) { return password, nil }}
		db := Connect(e, Session{IdleTimeout: time.Minute})
		defer db.Close()
		err = db.PingContext(t.Context())
		if err == nil || strings.Contains(err.Error(), "sesame") || !strings.Contains(err.Error(), user.Name) || !strings.Contains(err.Error(), e.Address) {
			t.Errorf("a wrong password gives: %v", err)
		}
		password = user.Password
		if err := db.PingContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAPasswordThatCannotBeReadIsSaid(t *testing.T) {
	missing := errors.New("no such file")
	db := Connect(Endpoint{Address: "127.0.0.1:1", Password: func() (string, error) { return "", missing }}, Session{})
	defer db.Close()
	if err := db.PingContext(t.Context()); !errors.Is(err, missing) {
		t.Errorf("got %v", err)
	}
}

func TestTheSocketServesTooWithoutTLS(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		db := Connect(Endpoint{Socket: b.server.Socket(), User: b.server.RootUser(), TLS: TLS{Mode: "verify"}}, Session{IdleTimeout: time.Minute})
		defer db.Close()
		if err := db.PingContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTLSModes(t *testing.T) {
	for _, options := range servers {
		t.Run(string(options.Kind), func(t *testing.T) {
			t.Parallel()
			withTLS, withoutTLS := options, options
			withTLS.TLS = true
			withoutTLS.Args = []string{"--ssl=OFF"}
			if options.Kind == lab.MySQL97 {
				withoutTLS.Args = []string{"--tls-version="}
			}
			secure, plain := labtest.MySQL(t, withTLS), labtest.MySQL(t, withoutTLS)
			ca := secure.Certificates().CA
			strange, err := lab.NewCertificates(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			pair, err := secure.Certificates().Client("towpath")
			if err != nil {
				t.Fatal(err)
			}
			empty := t.TempDir() + "/empty.pem"
			if err := os.WriteFile(empty, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				server *lab.MySQLServer
				tls    TLS
				want   string // "plain", "secure" or what the error says
			}{
				{secure, TLS{}, "secure"},
				{secure, TLS{Mode: "preferred"}, "secure"},
				{secure, TLS{Mode: "required"}, "secure"},
				{secure, TLS{Mode: "disabled"}, "plain"},
				{secure, TLS{Mode: "verify", CA: ca}, "secure"},
				{secure, TLS{Mode: "verify", CA: ca, ServerName: "localhost", Cert: pair.Cert, Key: pair.Key}, "secure"},
				{secure, TLS{Mode: "verify", CA: ca, ServerName: "db.example"}, "db.example"},
				{secure, TLS{Mode: "verify", CA: strange.CA}, "certificate"},
				{secure, TLS{Mode: "verify"}, "certificate"},
				{secure, TLS{Mode: "verify", CA: ca + ".no"}, "source.tls.ca"},
				{secure, TLS{Mode: "verify", CA: empty}, "no certificate"},
				{secure, TLS{Mode: "required", Cert: pair.Cert, Key: empty}, "source.tls.cert"},
				{plain, TLS{}, "plain"},
				{plain, TLS{Mode: "preferred"}, "plain"},
				{plain, TLS{Mode: "required"}, "TLS"},
				{plain, TLS{Mode: "verify", CA: ca}, "TLS"},
			} {
				db := Connect(Endpoint{Address: c.server.Addr(), User: c.server.RootUser(), TLS: c.tls}, Session{IdleTimeout: time.Minute})
				var name, cipher string
				err := db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher)
				_ = db.Close()
				got := "plain"
				if err != nil {
					got = err.Error()
				} else if cipher != "" {
					got = "secure"
				}
				if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
					t.Errorf("%+v: got %s, want %s", c.tls, got, c.want)
				}
			}
		})
	}
}
