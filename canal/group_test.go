package canal

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

var mysqlVariants = []variant{mysqlGTID, mysqlPlain}

func TestRolledBackRowsNeverArrive(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.exec("CREATE TABLE flat (id INT) ENGINE=MyISAM")
		f.session("BEGIN", "INSERT INTO outbox VALUES (1,'no',NULL)", "ROLLBACK")
		// A non-transactional change makes the server log the rolled back group
		// (MySQL keeps the two apart, MariaDB logs rows and ROLLBACK together).
		if f.mixes {
			f.session("BEGIN", "INSERT INTO outbox VALUES (2,'no',NULL)", "INSERT INTO flat VALUES (1)", "ROLLBACK")
		}
		f.session("BEGIN", "INSERT INTO outbox VALUES (3,'no',NULL)", "CREATE TEMPORARY TABLE scratch (id INT)", "ROLLBACK")
		f.session("BEGIN", "INSERT INTO outbox VALUES (4,'yes',NULL)", "SAVEPOINT s", "INSERT INTO outbox VALUES (5,'no',NULL)",
			"ROLLBACK TO SAVEPOINT s", "INSERT INTO outbox VALUES (6,'yes',NULL)", "SAVEPOINT `to`", "COMMIT")
		if f.mixes {
			f.session("BEGIN", "INSERT INTO outbox VALUES (7,'yes',NULL)", "SAVEPOINT `S`", "INSERT INTO flat VALUES (2)",
				"INSERT INTO outbox VALUES (8,'no',NULL)", "ROLLBACK TO s", "INSERT INTO outbox VALUES (9,'yes',NULL)", "COMMIT")
		} else {
			f.exec("INSERT INTO outbox VALUES (7,'yes',NULL),(9,'yes',NULL)")
		}
		f.insert(10, 10)
		wantIDs(t, f.read(f.source(), start), "4", "6", "7", "9", "10")
	})
}

func TestRowsOfANonTransactionalTableArrive(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.exec("ALTER TABLE outbox ENGINE=MyISAM")
		start := f.start()
		f.insert(1, 2)
		f.exec("INSERT INTO outbox VALUES (3,'a',NULL),(4,'b',NULL)")
		wantIDs(t, f.read(f.source(), start), numbers(1, 4)...)
	})
}

func TestEveryWayOfInsertingManyRowsArrives(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.exec("INSERT INTO other VALUES (1,'a'),(2,'b'),(3,'c')",
			"INSERT INTO outbox SELECT id, payload, NULL FROM other",
			"INSERT INTO outbox VALUES (4,'x',NULL),(5,'y',NULL) ON DUPLICATE KEY UPDATE note='again'",
			"REPLACE INTO outbox VALUES (6,'z',NULL)",
			"DROP TABLE other", "CREATE TABLE other AS SELECT id, payload FROM outbox")
		batches := f.read(f.source(), start)
		wantIDs(t, batches, numbers(1, 6)...)
	})
}

func TestAReplacedRowIsNoMessageAndIsCounted(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.insert(1, 2)
		start := f.start()
		f.exec("REPLACE INTO outbox VALUES (1,'new',NULL)",
			"INSERT INTO outbox VALUES (2,'x',NULL),(3,'new row',NULL) ON DUPLICATE KEY UPDATE note='again'",
			"UPDATE outbox SET note='touched' WHERE id=3", "DELETE FROM outbox WHERE id=2")
		batches := f.read(f.source(), start)
		wantIDs(t, batches, "3")
		updates := 0
		for _, b := range batches {
			updates += b.Updates
		}
		if updates != 4 {
			t.Errorf("counted %d UPDATE and DELETE events, want 4", updates)
		}
	})
}

func TestATableMadeFromASelectBringsItsRows(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.exec("INSERT INTO other VALUES (1,'a'),(2,'b')", "DROP TABLE outbox",
			"CREATE TABLE outbox (id BIGINT NOT NULL PRIMARY KEY) AS SELECT id, payload, NULL AS note FROM other")
		f.insert(3, 3)
		batches := f.read(f.source(), start)
		wantIDs(t, batches, numbers(1, 3)...)
		var shape []TableName
		for _, b := range batches {
			shape = append(shape, b.Shape...)
		}
		if len(shape) < 2 || shape[0] != f.outbox {
			t.Errorf("shape changes of %v, want of the outbox at DROP and at CREATE", shape)
		}
	})
}

func TestXARowsWaitForTheirVerdict(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		xa := func(xid string, id int, end ...string) {
			f.session(append([]string{"XA START " + xid, fmt.Sprintf("INSERT INTO outbox VALUES (%d,'xa',NULL)", id), "XA END " + xid}, end...)...)
		}
		name := func(n string) string { return fmt.Sprintf("'%s-%s'", f.schema, n) }
		xa(name("one"), 1, "XA COMMIT "+name("one")+" ONE PHASE")
		xa(name("two"), 2, "XA PREPARE "+name("two"))
		xa(name("back")+",'branch',7", 3, "XA PREPARE "+name("back")+",'branch',7")
		f.insert(4, 4)
		f.session("XA ROLLBACK " + name("back") + ",'branch',7")
		f.session("XA COMMIT " + name("two"))
		xa(name("never"), 5, "XA ROLLBACK "+name("never"))
		f.insert(6, 6)

		batches := f.read(f.source(), start)
		var committed, held []string
		xids := map[string]string{}
		for _, b := range batches {
			for _, r := range b.Rows {
				switch b.Kind {
				case Committed:
					committed = append(committed, string(r.Values[0]))
				case Prepared:
					held = append(held, string(r.Values[0]))
					xids[string(b.XID)] = string(r.Values[0])
				default:
					t.Errorf("a verdict carries rows")
				}
			}
			switch b.Kind {
			case XACommit:
				if xids[string(b.XID)] != "2" {
					t.Errorf("XA COMMIT of %x, which held row %q", b.XID, xids[string(b.XID)])
				}
				delete(xids, string(b.XID))
			case XARollback:
				if xids[string(b.XID)] != "3" {
					t.Errorf("XA ROLLBACK of %x, which held row %q", b.XID, xids[string(b.XID)])
				}
				delete(xids, string(b.XID))
			}
		}
		if want := []string{"1", "4", "6"}; !slices.Equal(committed, want) {
			t.Errorf("committed %v, want %v", committed, want)
		}
		if want := []string{"2", "3"}; !slices.Equal(held, want) {
			t.Errorf("prepared %v, want %v", held, want)
		}
		if len(xids) > 0 {
			t.Errorf("no verdict came for %v", xids)
		}
	})
}

func TestCompressedTransactionsAreRead(t *testing.T) {
	variants := []variant{
		mysqlGTID, mysqlPlain,
		{"MariaDB", lab.MySQLOptions{Kind: lab.MariaDB1011, Compression: true, RowMetadata: "FULL"}},
	}
	onEach(t, variants, func(t *testing.T, f *rig) {
		start := f.start()
		long := string(bytes.Repeat([]byte("long text "), 19))
		var set []string
		if start.Position.Flavor == checkpoint.MySQL {
			set = []string{"SET SESSION binlog_transaction_compression=ON"}
		} else {
			set = []string{"SET GLOBAL log_bin_compress_min_len=10"}
		}
		f.session(append(set, "BEGIN", "INSERT INTO other VALUES (1,'"+long+"')", "INSERT INTO outbox VALUES (1,'"+long+"','"+long+"'),(2,'x',NULL)",
			"INSERT INTO outbox VALUES (3,'"+long+"','"+long+"')", "COMMIT", "INSERT INTO outbox VALUES (4,'"+long+"','"+long+"')",
			"BEGIN", "INSERT INTO outbox VALUES (5,'"+long+"',NULL)", "ROLLBACK")...)
		f.insert(6, 6)
		batches := f.read(f.source(), start)
		wantIDs(t, batches, "1", "2", "3", "4", "6")
		at := start.Position.Clone()
		for _, b := range batches {
			at.Advance(*b.End)
			for _, r := range b.Rows {
				if id := string(r.Values[0]); (id == "1" || id == "4") && string(r.Values[1]) != long {
					t.Errorf("row %s has payload %q", id, r.Values[1])
				}
			}
			rest := f.read(f.source(), Start{Position: at.Clone(), Shapes: start.Shapes})
			if want := len(ids(batches)) - slices.Index(append(ids(batches), "end"), append(ids(rest), "end")[0]); len(ids(rest)) != want {
				t.Errorf("from %v on %d rows came, want %d", at, len(ids(rest)), want)
			}
		}
	})
}

func TestTaggedAndPlainGTIDsAreKeptApart(t *testing.T) {
	onEach(t, []variant{mysqlGTID}, func(t *testing.T, f *rig) {
		start := f.start()
		for i, next := range []string{"AUTOMATIC:app", "AUTOMATIC", "AUTOMATIC:app", "AUTOMATIC:zoo", "AUTOMATIC"} {
			f.session("SET gtid_next='"+next+"'", fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", i+1))
		}
		all := f.read(f.source(), start)
		wantIDs(t, all, numbers(1, 5)...)
		at := start.Position.Clone()
		for i, b := range all {
			at.Advance(*b.End)
			wantIDs(t, f.read(f.source(), Start{Position: at.Clone(), Shapes: start.Shapes}), numbers(i+2, 5)...)
		}
		if got, want := at.GTIDs.String(), f.here().GTIDs.String(); got != want {
			t.Errorf("the marks make %s, the server has %s", got, want)
		}
	})
}

func TestStatementFormatWritesAreSwept(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.exec("CREATE TABLE plain (id INT PRIMARY KEY)",
			"CREATE TRIGGER announce AFTER INSERT ON plain FOR EACH ROW INSERT INTO outbox VALUES (NEW.id, 'from a trigger', NULL)")
		for what, statements := range map[string][]string{
			"an insert":          {"INSERT INTO outbox VALUES (1,'x',NULL)"},
			"in a transaction":   {"BEGIN", "INSERT INTO outbox VALUES (2,'x',NULL)", "COMMIT"},
			"behind a trigger":   {"INSERT INTO plain VALUES (3)"},
			"with a comment":     {"/* insert */ INSERT /*! INTO */ outbox VALUES (4,'x',NULL)"},
			"of the current day": {"INSERT INTO outbox VALUES (LAST_INSERT_ID()+5, NOW(), RAND())"},
		} {
			start := f.start()
			f.session(append([]string{"SET SESSION binlog_format=STATEMENT"}, statements...)...)
			batches := f.read(f.source(), start)
			wantIDs(t, batches)
			if !slices.Contains(swept(batches), f.outbox) {
				t.Errorf("%s by statement asked for no sweep", what)
			}
		}
	})
}

func TestStatementsThatWriteNothingHereAskForNoSweep(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.exec("CREATE TABLE flat (id INT) ENGINE=MyISAM")
		start := f.start()
		if f.mixes {
			f.session("BEGIN", "INSERT INTO outbox VALUES (1,'INSERT INTO outbox',NULL)", "SAVEPOINT outbox", "INSERT INTO flat VALUES (2)", "ROLLBACK TO outbox", "COMMIT")
		}
		f.exec("CREATE TABLE later (id INT)", "ALTER TABLE later ADD note TEXT", "ANALYZE TABLE later", "TRUNCATE TABLE later", "DROP TABLE later",
			"CREATE OR REPLACE VIEW v AS SELECT * FROM outbox", "DROP VIEW v")
		if got := swept(f.read(f.source(), start)); len(got) > 0 {
			t.Errorf("sweeps of %v", got)
		}
	})
}

func TestAStatementInAnotherSchemaIsNotOurs(t *testing.T) {
	onEach(t, mysqlVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.exec("CREATE DATABASE "+f.schema+"_far", "CREATE TABLE "+f.schema+"_far.outbox (id INT PRIMARY KEY)")
		defer f.exec("DROP DATABASE " + f.schema + "_far")
		f.session("SET SESSION binlog_format=STATEMENT", "INSERT INTO "+f.schema+"_far.outbox VALUES (1)", "USE "+f.schema+"_far", "INSERT INTO outbox VALUES (2)")
		if got := swept(f.read(f.source(), start)); len(got) > 0 {
			t.Errorf("sweeps of %v", got)
		}
	})
}

func TestRowsThatComeByPartitionAreSwept(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		f.exec("DROP TABLE outbox", "CREATE TABLE outbox (id BIGINT NOT NULL PRIMARY KEY, payload TEXT) PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE)",
			"CREATE TABLE aside (id BIGINT NOT NULL PRIMARY KEY, payload TEXT)")
		start := f.start()
		f.exec("INSERT INTO outbox VALUES (1,'low'),(101,'high')", "INSERT INTO aside VALUES (7,'aside')")
		batches := f.read(f.source(), start)
		wantIDs(t, batches, "1", "101")
		start.Position = f.here()
		f.exec("ALTER TABLE outbox TRUNCATE PARTITION low", "ALTER TABLE outbox EXCHANGE PARTITION low WITH TABLE aside")
		if got := swept(f.read(f.source(), start)); !slices.Contains(got, f.outbox) {
			t.Errorf("no sweep after EXCHANGE PARTITION")
		}
	})
}

func TestMariaDBDomainsAreKeptApart(t *testing.T) {
	onEach(t, []variant{mariaFull, mariaDefault}, func(t *testing.T, f *rig) {
		start := f.start()
		for i := 1; i <= 6; i++ {
			f.session(fmt.Sprintf("SET SESSION gtid_domain_id=%d", i%3), fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", i))
		}
		all := f.read(f.source(), start)
		wantIDs(t, all, numbers(1, 6)...)
		at := start.Position.Clone()
		for i, b := range all {
			at.Advance(*b.End)
			wantIDs(t, f.read(f.source(), Start{Position: at.Clone(), Shapes: start.Shapes}), numbers(i+2, 6)...)
		}
		if got, want := at.GTIDs.String(), f.here().GTIDs.String(); got != want {
			t.Errorf("the marks make %s, the server has %s", got, want)
		}
	})
}
