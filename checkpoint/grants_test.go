package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// granted makes a user with what Grants prints and nothing more.
func (b *bench) granted(tables ...OutboxGrant) Endpoint {
	b.Helper()
	user, err := b.server.NewUser(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, statement := range Grants(b.flavor(), fmt.Sprintf("'%s'@'%%'", user.Name), b.schema, tables) {
		b.exec(statement)
	}
	return Endpoint{Address: b.server.Addr(), User: user.Name, Password: func() (string, error) { return user.Password, nil }}
}

func TestGrantsSufficeForTheStateTablesAndTheLease(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		b.store()
		b.endpoint = b.granted()
		b.db = b.pool(Session{IdleTimeout: time.Minute})
		s, err := Open(t.Context(), b.db, b.schema)
		if err != nil {
			t.Fatal(err)
		}
		l, hung := b.lease(s), b.lease(s)
		if got, err := hung.Lock(t.Context(), "shop", 0); err != nil || !got {
			t.Fatalf("got %v, %v", got, err)
		}
		f := b.take(l, "a").Fence
		if err := errors.Join(l.Renew(t.Context(), f, time.Minute), l.EndLockHolder(t.Context(), "shop"), l.RecordLock(t.Context(), f, true),
			l.RecordBroker(t.Context(), f, Broker{Cluster: "c"})); err != nil {
			t.Error(err)
		}
		err = s.Fenced(t.Context(), f, func(ctx context.Context, tx *Tx) error {
			for _, statement := range []string{
				"INSERT INTO {schema}.xa VALUES ('shop', 'x', 0, UTC_TIMESTAMP(6), '', 0, '')", "DELETE FROM {schema}.xa",
				"INSERT INTO {schema}.request VALUES (1, 'shop', 'k', '{}', '', '', 'new', NULL, 0, UTC_TIMESTAMP(6), NULL, NULL)", "UPDATE {schema}.request SET state='done'",
				"INSERT INTO {schema}.audit VALUES (1, 'shop', UTC_TIMESTAMP(6), 1, '', 'a', '', '', '{}')", "SELECT * FROM {schema}.audit",
			} {
				if _, err := tx.Exec(ctx, in(b.schema, statement)); err != nil {
					return fmt.Errorf("%s: %w", statement, err)
				}
			}
			return errors.Join(tx.SavePosition(ctx, position(t, 4)), tx.SavePosition(ctx, position(t, 5)),
				tx.CoverTable(ctx, "s", "n", json.RawMessage("1")), tx.UncoverTable(ctx, "s", "n"),
				tx.Park(ctx, []Parked{{RowKey: RowKey{"s", "n", []byte("k")}, Attempt: Attempt{State: ParkedWaiting}}}))
		})
		if err != nil {
			t.Error(err)
		}
		if err := l.Resign(t.Context(), f); err != nil {
			t.Error(err)
		}
		for _, statement := range []string{"DELETE FROM {schema}.audit", "UPDATE {schema}.audit SET action='b'", "DELETE FROM {schema}.lease", "DROP TABLE {schema}.xa", "UPDATE {schema}.version SET version=9"} {
			if _, err := b.db.ExecContext(t.Context(), in(b.schema, statement)); !hasNumber(err, errTableAccessDenied) {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
}

func TestWithoutGrantsOpenSaysWhatToRun(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		b.store()
		user, err := b.server.NewUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		db := Connect(Endpoint{Address: b.server.Addr(), User: user.Name, Password: func() (string, error) { return user.Password, nil }}, Session{})
		defer db.Close()
		if _, err := Open(t.Context(), db, b.schema); err == nil || !strings.Contains(err.Error(), "towpath grants") {
			t.Errorf("got %v", err)
		}
	})
}

func TestGrantsOfATableAreWhatItsModeNeeds(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		b.store()
		b.exec("CREATE TABLE {schema}.shop_rows (id INT PRIMARY KEY, status INT, body TEXT)")
		b.exec("INSERT INTO {schema}.shop_rows VALUES (1, 0, 'x')")
		share := " FOR SHARE"
		if b.flavor() == MariaDB {
			share = " LOCK IN SHARE MODE"
		}
		lock := "SELECT * FROM {schema}.shop_rows WHERE id=1" + share
		mark, rewrite := "UPDATE {schema}.shop_rows SET status=1 WHERE id=1 AND status=0", "UPDATE {schema}.shop_rows SET body='y'"
		remove, add := "DELETE FROM {schema}.shop_rows WHERE id=2", "INSERT INTO {schema}.shop_rows VALUES (3, 0, 'z')"
		for _, c := range []struct {
			mode            OutboxGrant
			allowed, denied []string
		}{
			{OutboxGrant{}, []string{lock}, []string{mark, rewrite, remove, add}},
			{OutboxGrant{Update: []string{"status"}}, []string{lock, mark, "SELECT id FROM {schema}.shop_rows WHERE status=1 FOR UPDATE SKIP LOCKED"}, []string{rewrite, remove, add}},
			{OutboxGrant{Delete: true}, []string{lock, remove, "SELECT id FROM {schema}.shop_rows FOR UPDATE SKIP LOCKED"}, []string{mark, rewrite, add}},
			{OutboxGrant{Insert: true}, []string{lock, add}, []string{mark, rewrite, remove}},
		} {
			c.mode.Schema, c.mode.Name = b.schema, "shop_rows"
			db := Connect(b.granted(c.mode), Session{IdleTimeout: time.Minute})
			for _, statement := range c.allowed {
				if _, err := db.ExecContext(t.Context(), in(b.schema, statement)); err != nil {
					t.Errorf("%+v: %s: %v", c.mode, statement, err)
				}
			}
			for _, statement := range c.denied {
				if _, err := db.ExecContext(t.Context(), in(b.schema, statement)); !hasNumber(err, errTableAccessDenied, errColumnDenied) {
					t.Errorf("%+v: %s: %v", c.mode, statement, err)
				}
			}
			_ = db.Close()
		}
	})
}

func TestGrantsLetAReplicaReadTheBinlogAndALookAtIt(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		b.store()
		e := b.granted()
		db := Connect(e, Session{IdleTimeout: time.Minute})
		defer db.Close()
		statements := []string{"SHOW BINARY LOGS", "SHOW BINARY LOG STATUS", "SHOW REPLICAS", "XA RECOVER"}
		if b.flavor() == MariaDB {
			statements = []string{"SHOW BINARY LOGS", "SHOW BINLOG STATUS", "SHOW REPLICA HOSTS", "XA RECOVER"}
		}
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
		password, _ := e.Password()
		syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{ServerID: 4711, Flavor: string(b.flavor()),
			Host: "127.0.0.1", Port: port(e.Address), User: e.User, Password: password, DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler), HeartbeatPeriod: time.Second, ReadTimeout: 10 * time.Second})
		defer syncer.Close()
		stream, err := syncer.StartSync(gomysql.Position{Name: b.value("SELECT SUBSTRING_INDEX(@@log_bin_basename, '/', -1)") + ".000001", Pos: 4})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := stream.GetEvent(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func port(address string) (p uint16) {
	_, _ = fmt.Sscanf(address[strings.LastIndexByte(address, ':')+1:], "%d", &p)
	return p
}
