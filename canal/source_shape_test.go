package canal

import (
	"fmt"
	"slices"
	"testing"
)

// plainVariants do not name columns in the binlog.
var plainVariants = []variant{mysqlPlain, mariaDefault}

// columnsOf reads a column of all rows by its name.
func columnsOf(t *testing.T, batches []Batch, name string) []string {
	t.Helper()
	var list []string
	for _, b := range batches {
		for _, r := range b.Rows {
			i := slices.IndexFunc(r.Table.Columns, func(c Column) bool { return c.Name == name })
			switch {
			case i < 0:
				list = append(list, "(none)")
			case r.Values[i] == nil:
				list = append(list, "(null)")
			default:
				list = append(list, string(r.Values[i]))
			}
		}
	}
	return list
}

func wantColumn(t *testing.T, batches []Batch, name string, want ...string) {
	t.Helper()
	if got := columnsOf(t, batches, name); !slices.Equal(got, want) {
		t.Errorf("column %s has %q, want %q", name, got, want)
	}
}

// swapColumns changes the order of two columns of one type: nothing in an event
// without names tells it.
const swapColumns = "ALTER TABLE outbox MODIFY note VARCHAR(200) AFTER id"

func TestRowsOnBothSidesOfAnAlterAreReadWithTheirOwnColumns(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		for name, alter := range map[string]string{
			"swap":   swapColumns,
			"rename": "ALTER TABLE outbox CHANGE payload body VARCHAR(200), CHANGE note payload VARCHAR(200)",
			"retype": "ALTER TABLE outbox MODIFY payload TEXT",
			"add":    "ALTER TABLE outbox ADD extra INT FIRST",
			"drop":   "ALTER TABLE outbox DROP note",
		} {
			t.Run(name, func(t *testing.T) {
				f.exec("DROP TABLE IF EXISTS outbox", createOutbox)
				start := f.start()
				f.exec("INSERT INTO outbox (id,payload,note) VALUES (1,'p1','n1')")
				f.exec(alter)
				f.exec("INSERT INTO outbox (id,payload) VALUES (2,'p2')")
				batches := f.read(f.source(), start)
				wantColumn(t, batches, "id", "1", "2")
				wantColumn(t, batches, "payload", "p1", "p2")
				shapes := start.Shapes.Clone()
				for _, b := range batches {
					shapes.Apply(b)
				}
				// The shapes that were handed on are the ones to go on with.
				next := Start{Position: f.here(), Shapes: shapes}
				f.exec("INSERT INTO outbox (id,payload) VALUES (3,'p3')")
				rest := f.read(f.source(func(o *Options) { o.DB = nil }), next)
				wantColumn(t, rest, "payload", "p3")
			})
		}
	})
}

func TestARowBetweenTwoAltersIsNotReadWithTheLaterColumns(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.exec("INSERT INTO outbox VALUES (1,'p1','n1')", swapColumns, "INSERT INTO outbox (id,payload,note) VALUES (2,'p2','n2')",
			"ALTER TABLE outbox MODIFY note VARCHAR(200) AFTER payload", "INSERT INTO outbox VALUES (3,'p3','n3')")
		batches := f.read(f.source(), start)
		if slices.Contains([]variantName{"", "MINIMAL"}, f.metadata()) {
			wantColumn(t, batches, "payload", "p1", "p3")
			if !slices.Contains(swept(batches), f.outbox) {
				t.Error("the row between was dropped without a sweep")
			}
			return
		}
		wantColumn(t, batches, "payload", "p1", "p2", "p3")
	})
}

type variantName string

// metadata is the server's binlog_row_metadata, "" for none.
func (f *rig) metadata() variantName {
	f.Helper()
	s, err := Inspect(f.Context(), f.db)
	if err != nil {
		f.Fatal(err)
	}
	if s.RowMetadata == "NO_LOG" {
		return ""
	}
	return variantName(s.RowMetadata)
}

func TestWithoutASavedShapeItIsReadAtTheFirstRow(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		start.Shapes = nil
		f.exec("INSERT INTO outbox VALUES (1,'p1','n1')", "INSERT INTO other VALUES (1,'x')", "INSERT INTO outbox VALUES (2,'p2','n2')")
		batches := f.read(f.source(), start)
		wantColumn(t, batches, "payload", "p1", "p2")
		if len(batches[0].Shapes) != 1 || batches[0].Shapes[0].Table != f.outbox {
			t.Errorf("the first rows came without the shape that they were read with")
		}
	})
}

func TestATableThatIsGoneSinceIsSwept(t *testing.T) {
	onEach(t, plainVariants, func(t *testing.T, f *rig) {
		start := f.start()
		start.Shapes = nil
		f.exec("INSERT INTO outbox VALUES (1,'p1','n1')", "DROP TABLE outbox")
		batches := f.read(f.source(), start)
		wantIDs(t, batches)
		if !slices.Contains(swept(batches), f.outbox) {
			t.Error("no sweep")
		}
	})
}

func TestAnOnlineSchemaChangeByRenameIsFollowed(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 2)
		f.exec("CREATE TABLE _outbox_gho LIKE outbox", "ALTER TABLE _outbox_gho MODIFY note VARCHAR(200) AFTER id, ADD extra INT",
			"INSERT INTO _outbox_gho (id,payload,note) SELECT id,payload,note FROM outbox",
			"INSERT INTO outbox VALUES (3,'p3','n3')", "INSERT INTO _outbox_gho (id,payload,note) VALUES (3,'p3','n3')",
			"RENAME TABLE outbox TO _outbox_del, _outbox_gho TO outbox",
			"INSERT INTO outbox (id,payload,note) VALUES (4,'p4','n4')", "DROP TABLE _outbox_del",
			"INSERT INTO outbox (id,payload,note) VALUES (5,'p5','n5')")
		batches := f.read(f.source(), start)
		wantColumn(t, batches, "id", numbers(1, 5)...)
		wantColumn(t, batches, "payload", "payload 1", "payload 2", "p3", "p4", "p5")
		wantColumn(t, batches, "note", "(null)", "(null)", "n3", "n4", "n5")
	})
}

func TestTruncateAndRecreateKeepTheStreamGoing(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		g := f.follow(f.source(), f.start())
		for _, change := range []string{"TRUNCATE TABLE outbox", "DROP TABLE outbox; " + createOutbox, "RENAME TABLE outbox TO old; RENAME TABLE old TO outbox; TRUNCATE outbox",
			"CREATE OR REPLACE VIEW v AS SELECT * FROM outbox", "DROP DATABASE " + f.schema + "; CREATE DATABASE " + f.schema + "; USE " + f.schema + "; " + createOutbox} {
			f.session("USE "+f.schema, "DELETE FROM outbox", "INSERT INTO outbox VALUES (1,'before',NULL)")
			g.awaitRow(t, "1")
			f.session(change)
			f.session("USE "+f.schema, "INSERT INTO outbox VALUES (2,'after',NULL)")
			g.awaitRow(t, "2")
		}
	})
}

func TestTablesOfOneNameInManySchemasAreKeptApart(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		other := f.schema + "_b"
		f.exec("CREATE DATABASE "+other, "CREATE TABLE "+other+".outbox (note VARCHAR(9), id BIGINT NOT NULL PRIMARY KEY)")
		defer f.exec("DROP DATABASE " + other)
		start := f.start()
		f.session("BEGIN", "INSERT INTO outbox VALUES (1,'a',NULL)", "INSERT INTO "+other+".outbox VALUES ('x',2)", "INSERT INTO outbox VALUES (3,'b',NULL)", "COMMIT")
		s := f.source(func(o *Options) {
			o.Tables = func(n TableName) (Interest, bool) { return Interest{}, n.Name == "outbox" }
		})
		var got []string
		for _, b := range f.read(s, start) {
			for _, r := range b.Rows {
				got = append(got, r.Table.String())
			}
		}
		if want := []string{f.outbox.String(), other + ".outbox", f.outbox.String()}; !slices.Equal(got, want) {
			t.Errorf("rows of %v, want %v", got, want)
		}
	})
}

func TestARowWithAMinimalImageIsIncompleteAndHasItsKey(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		for i, image := range []string{"MINIMAL", "NOBLOB", "FULL"} {
			f.session("SET SESSION binlog_row_image="+image, fmt.Sprintf("INSERT INTO outbox (id,note) VALUES (%d,'n')", i+1))
		}
		for _, b := range f.read(f.source(), start) {
			for _, r := range b.Rows {
				id := string(r.Values[0])
				if want := id == "1"; r.Incomplete != want || id == "" {
					t.Errorf("row %q: incomplete %t, want %t", id, r.Incomplete, want)
				}
			}
		}
	})
}

func TestABrokenTableOfOthersStopsNothing(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.exec("CREATE TABLE strange (g GEOMETRY, b BIT(64), e ENUM('a','b'))", "INSERT INTO strange VALUES (ST_GeomFromText('POINT(1 1)'), 1, 'b')")
		if f.mariaDB() {
			f.exec("CREATE TABLE packed (a BLOB COMPRESSED, b VARCHAR(100) COMPRESSED)", "INSERT INTO packed VALUES (REPEAT('a',200), REPEAT('b',90))")
		}
		f.insert(1, 1)
		wantIDs(t, f.read(f.source(), start), "1")
	})
}

func (f *rig) mariaDB() bool { return f.here().Flavor == "mariadb" }
