package relay

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestCheckFindsEachSettingThatIsWrongAndItsRemedyMendsIt(t *testing.T) {
	checkedServers(t, func(t *testing.T, server *lab.MySQLServer, rabbit *lab.RabbitServer) {
		s := newSite(t, server, rabbit)
		if s.flavor == checkpoint.MySQL {
			s.exec("GRANT SELECT ON performance_schema.* TO {account}")
		}
		s.sound()
		for _, f := range badSettings {
			if f.only == "" || f.only == s.flavor {
				s.tries(f)
			}
		}
		if s.flavor == checkpoint.MySQL {
			s.wants(OK, "sessions: all write in row format")
			conn, err := s.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.ExecContext(t.Context(), "SET SESSION binlog_format = 'STATEMENT'"); err != nil {
				t.Fatal(err)
			}
			s.wants(Warn, "1 sessions of root@")
			_ = conn.Raw(func(any) error { return sql.ErrConnDone })
			conn.Close()
			s.exec("REVOKE SELECT ON performance_schema.* FROM {account}")
		}
		s.wants(OK, "sessions: not seen")
	})
}

func TestCheckFindsEachPrivilegeThatIsMissingAndItsStatementGrantsIt(t *testing.T) {
	checkedServers(t, func(t *testing.T, server *lab.MySQLServer, rabbit *lab.RabbitServer) {
		s := newSite(t, server, rabbit)
		s.sound()
		privileges := map[string]Level{"REPLICATION SLAVE": Fail, "REPLICATION CLIENT": Fail, "XA_RECOVER_ADMIN": Warn}
		if s.flavor == checkpoint.MariaDB {
			privileges = map[string]Level{"REPLICATION SLAVE": Fail, "BINLOG MONITOR": Fail, "REPLICATION MASTER ADMIN": Warn}
		}
		for p, level := range privileges {
			s.tries(flaw{set: "REVOKE " + p + " ON *.* FROM {account}", level: level, text: " lacks " + p + ": ", remedy: "GRANT " + p + " ON *.* TO " + s.account()})
		}
		for _, g := range [][2]string{
			{"UPDATE ON {state}.lease", "lacks UPDATE on " + s.state + ".lease"},
			{"DELETE ON {state}.parked", "lacks DELETE on"},
			{"INSERT ON {state}.audit", "lacks INSERT on"},
			{"UPDATE (status) ON {schema}.bill", "lacks UPDATE (`status`"},
		} {
			s.tries(flaw{set: "REVOKE " + g[0] + " FROM {account}", level: Fail, text: g[1], remedy: "GRANT " + g[0][:6]})
		}
		s.exec("REVOKE SELECT ON {state}.version FROM {account}")
		s.wants(Fail, "no right to read them")
		s.exec("GRANT SELECT ON {state}.version TO {account}")
		s.exec("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {account}")
		s.wants(Fail, "bill: the table does not exist, or this account may not see it")
		s.grant()
		s.table = strings.Replace(soundTable, "after_publish: mark", "after_publish: mark\n    retention: {sent_for: 24h}", 1)
		s.wants(Fail, "lacks DELETE: a row that was sent could not be")
	})
}

func TestCheckFindsWhatIsWrongWithATable(t *testing.T) {
	onEach(t, func(t *testing.T, server *lab.MySQLServer) {
		s := newSite(t, server, labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
		if strings.Contains(t.Name(), "without_GTID") {
			s.wants(Warn, "gtid_mode: it is OFF")
			return
		}
		s.sound()
		for _, f := range []flaw{
			{set: "ALTER TABLE bill ENGINE=MyISAM", level: Warn, text: "its engine is MyISAM: a rollback leaves its rows", remedy: "ENGINE=InnoDB"},
			{set: "ALTER TABLE bill DROP KEY status", level: Warn, text: "no index begins with status", remedy: "CREATE INDEX towpath_unsent ON `" + s.schema + "`.`bill` (`status`)"},
			{set: "ALTER TABLE bill MODIFY payload VARCHAR(200) CHARACTER SET latin1 NOT NULL DEFAULT '{}'", level: Warn, text: "column payload is in latin1", remedy: "CHARACTER SET utf8mb4"},
			{set: "ALTER TABLE bill CHANGE sent_at sent DATETIME(6) NULL", level: Fail, text: "it has no column sent_at; correct the name", undo: "ALTER TABLE bill CHANGE sent sent_at DATETIME(6) NULL"},
			{set: "ALTER TABLE bill MODIFY status ENUM('PENDING', 'SENT', 'FAILED') NOT NULL DEFAULT 'PENDING'", level: Fail, text: `cannot hold status.processing "PROCESSING": it is enum('PENDING','SENT','FAILED')`,
				undo: "ALTER TABLE bill MODIFY status VARCHAR(12) NOT NULL DEFAULT 'PENDING'"},
			{set: "ALTER TABLE bill MODIFY status VARCHAR(8) NOT NULL DEFAULT 'PENDING'", level: Fail, text: `cannot hold status.processing "PROCESSING": it is varchar(8)`,
				undo: "ALTER TABLE bill MODIFY status VARCHAR(12) NOT NULL DEFAULT 'PENDING'"},
			{set: "ALTER TABLE bill MODIFY attempts VARCHAR(9) NOT NULL DEFAULT '0'", level: Fail, text: "status.attempts is column attempts of type varchar(9)", undo: "ALTER TABLE bill MODIFY attempts INT NOT NULL DEFAULT 0"},
			{set: "RENAME TABLE bill TO bill2", level: Fail, text: "bill: the table does not exist", undo: "RENAME TABLE bill2 TO bill"},
			{set: "ALTER TABLE bill MODIFY k VARBINARY(9) NOT NULL", level: Fail, text: "k", undo: "ALTER TABLE bill MODIFY k INT NOT NULL"},
		} {
			s.tries(f)
		}
		if s.flavor == checkpoint.MariaDB {
			s.tries(flaw{set: "ALTER TABLE bill MODIFY payload TEXT COMPRESSED", level: Fail, text: "column payload cannot be read from the binary log", undo: "ALTER TABLE bill MODIFY payload VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL"})
		}

		// An id of its own: unique and never NULL.
		s.table = strings.Replace(soundTable, `id: "{id}"`, "id: msg", 1)
		s.exec("ALTER TABLE bill ADD COLUMN msg VARCHAR(20) CHARACTER SET utf8mb4 NULL")
		s.wants(Warn, "of its 2 newest rows could not be sent: id: a column of it is NULL")
		s.exec("UPDATE bill SET msg = id")
		s.tries(flaw{set: "DO 0", level: Warn, text: "nothing keeps its id (msg) unique", remedy: "ADD UNIQUE KEY towpath_id (`msg`)", undo: "ALTER TABLE bill MODIFY msg VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL"})
		s.tries(flaw{set: "ALTER TABLE bill MODIFY msg VARCHAR(20) CHARACTER SET utf8mb4 NULL", level: Warn, text: "column msg of its id may be NULL", remedy: "NOT NULL"})
		s.exec("ALTER TABLE bill MODIFY id BIGINT NOT NULL, DROP PRIMARY KEY, DROP KEY towpath_id, MODIFY msg ENUM('1', '2') NOT NULL")
		s.wants(Fail, "the fallback cannot read it")
	})
}

func TestCheckAsksTheBrokerForWhatTheNewestRowsNeed(t *testing.T) {
	for _, kind := range []lab.Kind{lab.Rabbit310, lab.Rabbit43} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, labtest.MySQL(t, servers["mysql with GTID"]), labtest.Rabbit(t, lab.RabbitOptions{Kind: kind}))
			s.sound()
			s.wants(OK, "routes: 2 destinations of the newest rows take messages")
			permit := func(configure, write, read string) {
				t.Helper()
				if err := s.rabbit.SetPermissions(t.Context(), s.vhost, configure, write, read); err != nil {
					t.Fatal(err)
				}
			}
			permit(`^towpath\..*`, "^other$", `^towpath\..*`)
			s.wants(Fail, `bill -> exchange "bills", routing key "bill.1": publish to exchange`)
			permit("^$", ".*", ".*")
			s.wants(Fail, "fence: declare, consume and delete the queue towpath.check.")
			permit(".*", ".*", "^$")
			s.wants(Fail, "fence: ")

			// The default exchange: queues that can be looked at.
			permit(".*", ".*", ".*")
			s.table = strings.Replace(soundTable, `exchange: bills, routing_key: "bill.{k}"`, `exchange: "", routing_key: "q{k}"`, 1)
			s.wants(Fail, "queue q1: it does not exist")
			for name, args := range map[string]amqp.Table{"q1": nil, "q2": {"x-max-length": int64(7)}} {
				if _, err := s.admin.QueueDeclare(name, true, false, false, false, args); err != nil {
					t.Fatal(err)
				}
			}
			s.wants(OK, "queue q1: its declaration loses no message")
			s.wants(Warn, "queue q2: it loses messages that the broker has confirmed: x-max-length: above 7 messages")
			permit(`^towpath\..*`, ".*", `^towpath\..*`)
			s.wants(OK, "queue q1: not seen")
			if n, err := s.rabbit.Eval(t.Context(), fmt.Sprintf(`length(rabbit_amqqueue:list(<<"%s">>)).`, s.vhost.Name)); err != nil || n != "2" {
				t.Errorf("check left %s queues, want the 2 that were there: %v", n, err)
			}
			if q, err := s.admin.QueueDeclarePassive("q1", true, false, false, false, nil); err == nil && q.Messages != 0 {
				t.Errorf("check published %d messages", q.Messages)
			}
		})
	}
}

func TestCheckFindsURLsThatAreNotOfOneCluster(t *testing.T) {
	t.Parallel()
	one, two := labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit310})
	s := newSite(t, labtest.MySQL(t, servers["mysql with GTID"]), one)
	name := s.vhost.Name
	for _, broker := range []*lab.RabbitServer{one, two} { // what both must have, whoever they are
		if _, err := broker.Eval(t.Context(), fmt.Sprintf(`rabbit_nodes:set_cluster_name(<<"same">>, <<"test">>),
			(rabbit_vhost:exists(<<"%[1]s">>) orelse rabbit_vhost:add(<<"%[1]s">>, <<"test">>)),
			rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"%[1]s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>), ok.`, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = two.Eval(t.Context(), fmt.Sprintf(`rabbit_vhost:delete(<<"%s">>, <<"test">>), ok.`, name))
	})
	at := func(address string) string { return fmt.Sprintf("amqp://guest:guest@%s/%s", address, name) }
	s.url = `, "` + at(two.Addr()) + `"`
	s.wants(Fail, "is not in the cluster of")
	proxy, err := lab.StartProxy(one.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	s.url = `, "` + at(proxy.Addr()) + `"`
	s.sound()
	proxy.Set(lab.Fault{Refuse: true})
	s.wants(Fail, "start the node, or correct broker.urls")
}

func TestCheckFindsAServerIDThatIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t, labtest.MySQL(t, servers["mysql with GTID"]), labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	var own int
	if err := s.db.QueryRow("SELECT @@server_id").Scan(&own); err != nil {
		t.Fatal(err)
	}
	s.id = own
	s.wants(Fail, "is the server's own")
	s.id = 31337
	s.wants(OK, "server_id: no replica has 31337")
	for host, want := range map[string]Finding{
		"elsewhere":       {Level: Fail, Text: "source.server_id 31337 is that of a replica (elsewhere): the two would throw each other out again and again"},
		canal.ReplicaHost: {Level: OK, Text: "31337 is in use by a relay, which must be one of this stream"},
	} {
		var fs findings
		checkServerID(&fs, s.config(), &canal.Server{ServerID: 1, Replicas: []canal.Replica{{ServerID: 31337, Host: host}}})
		if len(fs) != 1 || fs[0].Level != want.Level || fs[0].Text != want.Text {
			t.Errorf("a replica at %s: %v", host, fs)
		}
	}
}

func TestCheckFindsSchemasThatTheBinlogLeavesOut(t *testing.T) {
	t.Parallel()
	server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MariaDB1011, RowMetadata: "FULL", Args: []string{"--binlog-ignore-db=hidden"}})
	s := newSite(t, server, labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	s.wants(Warn, "the server leaves schemas out")
	s.exec("CREATE DATABASE hidden")
	s.exec("CREATE TABLE hidden.bill LIKE bill")
	s.exec("GRANT SELECT, UPDATE ON hidden.bill TO {account}")
	s.table = strings.ReplaceAll(soundTable, "{schema}", "hidden")
	s.wants(Fail, "the server does not write the rows of hidden.bill")
}

func TestCheckComparesTheSavedPositionWithWhatTheServerStillHas(t *testing.T) {
	t.Parallel()
	server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"})
	s := newSite(t, server, labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	s.wants(OK, "position: none is saved")
	save := func(file, server string, age string) {
		t.Helper()
		s.exec(fmt.Sprintf(`REPLACE INTO {state}.checkpoint VALUES ('shop', 1, UTC_TIMESTAMP(6) - INTERVAL %s, JSON_OBJECT('flavor', 'mysql', 'server', '%s', 'file', '%s', 'offset', 4, 'created', 0, 'version', 1))`, age, server, file))
	}
	var identity, first string
	if err := s.db.QueryRow("SELECT @@server_uuid").Scan(&identity); err != nil {
		t.Fatal(err)
	}
	s.exec("FLUSH BINARY LOGS")
	var size, encrypted string
	if err := s.db.QueryRow("SHOW BINARY LOGS").Scan(&first, &size, &encrypted); err != nil {
		t.Fatal(err)
	}
	save(first, identity, "1 MINUTE")
	if f := s.wants(OK, "position: saved 1m"); !strings.Contains(f.Text, "bytes behind the end") {
		t.Errorf("it says %q", f.Text)
	}
	save(first, identity, "20 DAY")
	s.wants(Warn, "more than half of the 720h0m0s for which binary logs are kept")
	save(first, "another", "1 MINUTE")
	s.wants(Warn, "is another server's, and without GTIDs it cannot be continued here")
	save(first, identity, "1 MINUTE")
	s.exec("FLUSH BINARY LOGS")
	s.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	s.wants(Warn, "was purged: the oldest binary log is")
	s.exec("DROP TABLE {state}.version")
	s.wants(Fail, "run towpath init")
}

func TestCheckReadsTheFilesThatTheConfigurationNames(t *testing.T) {
	t.Parallel()
	server := labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL", TLS: true})
	s := newSite(t, server, labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	tls := func(ca string) string { return fmt.Sprintf(`, tls: {mode: verify, ca: "%s"}`, ca) }
	s.source = tls(server.Certificates().CA)
	s.wants(Warn, "source.tls.ca: the certificate of CN=ca in")
	s.source = tls("/nonexistent/ca.pem")
	s.wants(Fail, "source.tls: read source.tls.ca: open /nonexistent/ca.pem")
	expired, err := server.Certificates().Ended("old", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.source = fmt.Sprintf(`, tls: {mode: required, cert: "%s", key: "%s"}`, expired.Cert, expired.Key)
	s.wants(Fail, "connections are refused")
	folder := filepath.Join(t.TempDir(), "gone")
	s.source = fmt.Sprintf(`, spool_dir: "%s"`, folder)
	s.wants(Fail, "a large transaction could not be spooled")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s.sound()
}
