package checkpoint

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func (b *bench) flavor() Flavor {
	if strings.Contains(b.value("SELECT VERSION()"), "MariaDB") {
		return MariaDB
	}
	return MySQL
}

func TestSetsAgreeWithMySQLsOwnArithmetic(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		if b.flavor() == MariaDB {
			testMariaDBPosition(t, b)
			return
		}
		r := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			var x, y GTIDSet
			for _, g := range randomSet(r, r.IntN(20)) {
				x.Add(g)
			}
			for _, g := range randomSet(r, r.IntN(20)) {
				y.Add(g)
			}
			line := func(s string) string { return strings.ReplaceAll(s, ",\n", ",") }
			if got := line(b.value("SELECT GTID_SUBTRACT(?, '')", x.String())); got != x.String() {
				t.Fatalf("the server writes %s as %s", x, got)
			}
			if got := line(b.value("SELECT GTID_SUBTRACT(?, ?)", x.String(), y.String())); got != x.Subtract(y).String() {
				t.Fatalf("%s minus %s is %s, the server says %s", x, y, x.Subtract(y), got)
			}
			if got := b.value("SELECT GTID_SUBSET(?, ?)", y.String(), x.String()); (got == "1") != x.Contains(y) {
				t.Fatalf("%s contains %s: %v, the server says %s", x, y, x.Contains(y), got)
			}
		}
	})
}

// MariaDB has no such functions; its own positions are what must be read.
func testMariaDBPosition(t *testing.T, b *bench) {
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer discard(conn)
	for _, statement := range []string{
		in(b.schema, "CREATE TABLE {schema}.t (id INT PRIMARY KEY)"),
		"SET SESSION gtid_domain_id=4294967295", in(b.schema, "INSERT INTO {schema}.t VALUES (1)"),
		"SET SESSION gtid_domain_id=7", in(b.schema, "INSERT INTO {schema}.t VALUES (2)"),
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var text string
	if err := conn.QueryRowContext(t.Context(), "SELECT @@global.gtid_binlog_pos").Scan(&text); err != nil {
		t.Fatal(err)
	}
	set, err := ParseGTIDSet(MariaDB, text)
	if err != nil || len(set.domains) < 3 {
		t.Fatalf("%q was read as %s, %v", text, set, err)
	}
	library, err := set.Library(MariaDB)
	if err != nil || !set.Contains(mustParse(t, MariaDB, library.String())) {
		t.Fatalf("%s became %v, %v", set, library, err)
	}
}

func TestIdentityIsStableAndTellsServersApart(t *testing.T) {
	for _, c := range []struct {
		name   string
		a, b   map[string]string
		differ bool
	}{
		{"MySQL by its uuid", map[string]string{"version": "9.7.4", "server_uuid": "x", "hostname": "h"}, map[string]string{"version": "9.7.5", "server_uuid": "x", "hostname": "moved"}, false},
		{"another MySQL", map[string]string{"version": "9.7.4", "server_uuid": "x"}, map[string]string{"version": "9.7.4", "server_uuid": "y"}, true},
		{"MariaDB after an upgrade", maria("10.11.1-MariaDB", "1", "h", "3306"), maria("11.4.2-mariadb-log", "1", "h", "3306"), false},
		{"a node of one Galera cluster", maria("10.11.1-MariaDB", "1", "h", "3306"), maria("10.11.1-MariaDB", "1", "g", "3306"), true},
		{"two on one host", maria("10.11.1-MariaDB", "1", "h", "3306"), maria("10.11.1-MariaDB", "1", "h", "3307"), true},
		{"two in one place, one after the other", maria("10.11.1-MariaDB", "1", "h", "3306"), maria("10.11.1-MariaDB", "2", "h", "3306"), true},
	} {
		_, x, errX := Identity(c.a)
		_, y, errY := Identity(c.b)
		if errX != nil || errY != nil || (x != y) != c.differ {
			t.Errorf("%s: %q and %q, %v, %v", c.name, x, y, errX, errY)
		}
	}
	for _, variables := range []map[string]string{nil, {"version": "9.7.4"}, maria("10.11.1-MariaDB", "", "h", "3306"), maria("10.11.1-MariaDB", "1", "", "3306")} {
		if _, got, err := Identity(variables); err == nil {
			t.Errorf("%v is %q", variables, got)
		}
	}
}

func maria(version, id, host, port string) map[string]string {
	return map[string]string{"version": version, "server_id": id, "hostname": host, "port": port}
}
