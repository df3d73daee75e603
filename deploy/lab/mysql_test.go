package lab_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

var databases = []lab.Kind{lab.MySQL97, lab.MariaDB1011}

func variable(t *testing.T, s *lab.MySQLServer, name string) string {
	t.Helper()
	var value string
	if err := s.RootDB().QueryRowContext(t.Context(), "SELECT @@GLOBAL."+name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestCommittedRowsSurviveKillAndStart(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind})
			name, db := labtest.DB(t, s)
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)"); err != nil {
				t.Fatal(err)
			}
			pid := s.PID()
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if conn, err := net.Dial("tcp", s.Addr()); err == nil {
				conn.Close()
				t.Fatal("a killed server takes a connection")
			}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.PID() == pid {
				t.Fatal("the process is the old one")
			}
			var rows int
			if err := s.RootDB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+name+".t").Scan(&rows); err != nil || rows != 2 {
				t.Fatalf("%d rows, %v; want 2", rows, err)
			}
		})
	}
}

func TestOptionsReachTheServerAndChangeWithARestart(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind, GTID: true, RowMetadata: "FULL", RowImage: "NOBLOB", Compression: true, Args: []string{"--max-allowed-packet=2M"}})
			want := map[string]string{
				"log_bin": "1", "binlog_format": "ROW", "sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1",
				"binlog_row_metadata": "FULL", "binlog_row_image": "NOBLOB", "max_allowed_packet": "2097152",
			}
			if kind.IsMariaDB() {
				want["gtid_strict_mode"], want["log_bin_compress"] = "1", "1"
			} else {
				want["gtid_mode"], want["binlog_transaction_compression"] = "ON", "1"
			}
			check := func() {
				t.Helper()
				for name, value := range want {
					if got := variable(t, s, name); got != value {
						t.Errorf("%s is %s, want %s", name, got, value)
					}
				}
			}
			check()
			addr := s.Addr()
			if err := s.Restart(t.Context(), func(o *lab.MySQLOptions) { o.RowImage, o.RowMetadata = "MINIMAL", "MINIMAL" }); err != nil {
				t.Fatal(err)
			}
			want["binlog_row_image"], want["binlog_row_metadata"] = "MINIMAL", "MINIMAL"
			check()
			if s.Addr() != addr {
				t.Errorf("the address changed from %s to %s", addr, s.Addr())
			}
		})
	}
}

func TestAPausedDatabaseAnswersOnceItIsResumed(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind})
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := s.RootDB().PingContext(ctx); err == nil {
				t.Fatal("a paused server answered")
			}
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			if err := s.RootDB().PingContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAUserHasItsGrantsAndNoMore(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.MySQL(t, lab.MySQLOptions{Kind: kind})
			name, db := labtest.DB(t, s)
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (id INT PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			u, err := s.NewUser(t.Context(), "SELECT ON "+name+".*")
			if err != nil {
				t.Fatal(err)
			}
			as, err := sql.Open("mysql", s.UserDSN(u, name))
			if err != nil {
				t.Fatal(err)
			}
			defer as.Close()
			if _, err := as.ExecContext(t.Context(), "SELECT * FROM t"); err != nil {
				t.Error(err)
			}
			var refused *mysql.MySQLError
			if _, err := as.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); !errors.As(err, &refused) || refused.Number != 1142 {
				t.Errorf("insert: %v, want error 1142", err)
			}
		})
	}
}

func TestATLSDatabaseShowsTheLabsCertificate(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: kind, TLS: true})
			config, err := s.Certificates().ClientConfig()
			if err != nil {
				t.Fatal(err)
			}
			if err := mysql.RegisterTLSConfig(string(kind), config); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("mysql", s.DSN("", "tls="+string(kind)))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var name, cipher string
			if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil || cipher == "" {
				t.Fatalf("cipher %q, %v", cipher, err)
			}
		})
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	_, err := lab.StartMySQL(t.Context(), lab.MySQLOptions{Kind: lab.MariaDB1011, Args: []string{"--no-such-option"}})
	if err == nil || !containsAll(err.Error(), "MariaDB 10.11", "no-such-option") {
		t.Fatalf("error %v, want one with the server's name and its last words", err)
	}
}

func TestAForeignDatabaseIsUsedAndNotControlled(t *testing.T) {
	s := labtest.MySQL(t, lab.MySQLOptions{Kind: lab.MariaDB1011})
	t.Run("while it is open", func(t *testing.T) {
		t.Setenv(lab.MariaDB1011.Env(), s.RootUser()+":"+s.RootPassword()+"@"+s.Addr())
		foreign := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MariaDB1011})
		if foreign.Addr() != s.Addr() {
			t.Fatalf("address %s, want %s", foreign.Addr(), s.Addr())
		}
		labtest.DB(t, foreign)
		for verb, do := range map[string]func() error{
			"kill": foreign.Kill, "pause": foreign.Pause, "resume": foreign.Resume,
			"stop":  func() error { return foreign.Stop(t.Context()) },
			"start": func() error { return foreign.Start(t.Context()) },
		} {
			if err := do(); !errors.Is(err, lab.ErrForeign) {
				t.Errorf("%s: %v, want a refusal", verb, err)
			}
		}
	})
	if err := s.RootDB().PingContext(t.Context()); err != nil {
		t.Errorf("the foreign server is gone after Close: %v", err)
	}
}
