package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
)

var (
	sidA = uuid.MustParse("3e11fa47-71ca-11e1-9e33-c80aa9429562")
	sidB = uuid.MustParse("f0a1b2c3-0000-11e1-9e33-c80aa9429562")
)

func mustParse(t testing.TB, flavor Flavor, text string) GTIDSet {
	t.Helper()
	set, err := ParseGTIDSet(flavor, text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// randomSet draws from few sources, tags and numbers, so that runs meet, touch
// and overlap often.
func randomSet(r *rand.Rand, n int) []GTID {
	tags := []string{"", "", "app", "z_9"}
	var out []GTID
	for range n {
		g := GTID{SID: sidA, Tag: tags[r.IntN(len(tags))], Seq: 1 + r.Uint64N(12)}
		if r.IntN(2) == 0 {
			g.SID = sidB
		}
		out = append(out, g)
	}
	return out
}

func TestAddInAnyOrderGivesTheLibrarysSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var ours GTIDSet
		theirs := gomysql.NewMysqlGTIDSet()
		for _, g := range randomSet(r, r.IntN(30)) {
			ours.Add(g)
			theirs.AddGTIDWithTag(g.SID, gomysql.NewTag(g.Tag), int64(g.Seq))
			if !ours.Has(g) {
				t.Fatalf("%s lacks %s, which was just added", ours, g)
			}
		}
		if ours.String() != theirs.String() {
			t.Fatalf("got %s, the library has %s", ours, theirs.String())
		}
		library, err := ours.Library(MySQL)
		if err != nil || !library.Equal(&theirs) {
			t.Fatalf("conversion of %s gives %v, %v", ours, library, err)
		}
	}
}

func TestContainsAndSubtractAgreeWithMembership(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		var a, b GTIDSet
		inA := randomSet(r, r.IntN(25))
		inB := randomSet(r, r.IntN(25))
		want := map[GTID]bool{}
		for _, g := range inA {
			a.Add(g)
			want[g] = true
		}
		for _, g := range inB {
			b.Add(g)
			delete(want, g)
		}
		rest := a.Subtract(b)
		var expected GTIDSet
		for g := range want {
			expected.Add(g)
		}
		if rest.String() != expected.String() {
			t.Fatalf("%s minus %s is %s, want %s", a, b, rest, expected)
		}
		if b.Contains(a) != (len(want) == 0) {
			t.Fatalf("%s contains %s: %v, but %s is missing", b, a, b.Contains(a), rest)
		}
		union := a.Clone()
		union.Union(b)
		if !union.Contains(a) || !union.Contains(b) || !union.Subtract(a).Subtract(b).IsZero() {
			t.Fatalf("union of %s and %s is %s", a, b, union)
		}
	}
}

func TestCloneIsIndependentOfItsOriginal(t *testing.T) {
	set := mustParse(t, MySQL, sidA.String()+":1-5")
	clone := set.Clone()
	set.Add(GTID{SID: sidA, Seq: 6})
	set.Add(GTID{SID: sidB, Seq: 1})
	if got := clone.String(); got != sidA.String()+":1-5" {
		t.Fatalf("clone became %s", got)
	}
	domains := mustParse(t, MariaDB, "0-1-5")
	clone = domains.Clone()
	domains.Add(GTID{Domain: 0, Server: 1, Seq: 6})
	if got := clone.String(); got != "0-1-5" {
		t.Fatalf("clone became %s", got)
	}
}

func TestMariaDBKeepsTheLastGTIDOfEachDomain(t *testing.T) {
	var set GTIDSet
	for _, g := range []GTID{{Domain: 2, Server: 1, Seq: 7}, {Domain: 0, Server: 1, Seq: 5}, {Domain: 2, Server: 9, Seq: 6}} {
		set.Add(g)
	}
	if got := set.String(); got != "0-1-5,2-9-6" {
		t.Fatalf("got %s: the place in the binlog counts, not the number", got)
	}
	if !set.Contains(mustParse(t, MariaDB, "2-1-6")) || set.Contains(mustParse(t, MariaDB, "2-1-7")) || set.Contains(mustParse(t, MariaDB, "4-1-1")) {
		t.Fatal("contains must compare each domain by sequence number")
	}
	library, err := set.Library(MariaDB)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, _ := gomysql.ParseMariadbGTIDSet("0-1-5,2-9-6"); !library.Equal(theirs) {
		t.Fatalf("conversion gives %s", library)
	}
}

func TestTheZeroGTIDChangesNothing(t *testing.T) {
	var set GTIDSet
	set.Add(GTID{})
	if !set.IsZero() || set.String() != "" || (GTID{}).String() != "" {
		t.Fatalf("got %q", set)
	}
}

func TestSetsAreReadAsServersPrintThem(t *testing.T) {
	a, b := sidA.String(), sidB.String()
	for _, c := range []struct{ flavor, text, want string }{
		{"mysql", "", ""},
		{"mysql", " \n", ""},
		{"mysql", a + ":1-5:7,\n" + b + ":3", a + ":1-5:7," + b + ":3"},
		{"mysql", strings.ToUpper(a) + ":5:1-4", a + ":1-5"},
		{"mysql", a + ":1-2:App:1:3", a + ":1-2:app:1:3"},
		{"mysql", a + ":app:1", a + ":app:1"},
		{"mysql", b + ":1, " + a + ":1 - 2", a + ":1-2," + b + ":1"},
		{"mysql", a + ":9223372036854775806", a + ":9223372036854775806"},
		{"mariadb", "1-2-3, 0-4294967295-18446744073709551615", "0-4294967295-18446744073709551615,1-2-3"},
	} {
		got, err := ParseGTIDSet(Flavor(c.flavor), c.text)
		if err != nil || got.String() != c.want {
			t.Errorf("%s %q: got %q, %v; want %q", c.flavor, c.text, got, err, c.want)
		}
	}
}

func TestSetsThatNoServerPrintsAreRefused(t *testing.T) {
	a := sidA.String()
	for _, c := range []struct{ flavor, text string }{
		{"mysql", "x"}, {"mysql", a}, {"mysql", a + ":"}, {"mysql", a + ":0"}, {"mysql", a + ":5-4"}, {"mysql", a + ":1-"},
		{"mysql", a + ":-1"}, {"mysql", a + ":app"}, {"mysql", a + ":1:app"}, {"mysql", a + ":app:zed:1"}, {"mysql", a + ":1,"},
		{"mysql", a + ":9223372036854775807"}, {"mysql", a + ":tag-x:1"}, {"mysql", a + ":" + strings.Repeat("t", 33) + ":1"},
		{"mysql", uuid.Nil.String() + ":1"}, {"mysql", "urn:uuid:" + a + ":1"}, {"mysql", strings.ReplaceAll(a, "-", "") + ":1"}, {"mysql", "0-1-5"},
		{"mariadb", "0-1"}, {"mariadb", "0-1-0"}, {"mariadb", "0-1-2-3"}, {"mariadb", "4294967296-1-1"}, {"mariadb", "0-1-5,0-1-6"}, {"mariadb", a + ":1"},
	} {
		if got, err := ParseGTIDSet(Flavor(c.flavor), c.text); err == nil {
			t.Errorf("%s %q was read as %q", c.flavor, c.text, got)
		}
	}
	for _, text := range []string{a + ":1-2", a + ":1:3", a + ":1:app:1"} {
		if got, err := ParseGTID(MySQL, text); err == nil {
			t.Errorf("one GTID %q was read as %q", text, got)
		}
	}
}

// FuzzGTIDSet holds the parser to the library's on what both read, and to its
// own output.
func FuzzGTIDSet(f *testing.F) {
	f.Add(sidA.String()+":1-5:7:app:2,"+sidB.String()+":3", false)
	f.Add(sidA.String()+":5:1-4:4-9", false)
	f.Add("0-1-5,2-9-6", true)
	f.Fuzz(func(t *testing.T, text string, mariaDB bool) {
		flavor := MySQL
		if mariaDB {
			flavor = MariaDB
		}
		set, err := ParseGTIDSet(flavor, text)
		if err != nil {
			return
		}
		again, err := ParseGTIDSet(flavor, set.String())
		if err != nil || again.String() != set.String() {
			t.Fatalf("%q was read as %q, and that as %q, %v", text, set, again, err)
		}
		library, err := set.Library(flavor)
		if err != nil {
			t.Fatalf("the library does not take %q: %v", set, err)
		}
		if !mariaDB && library.String() != set.String() {
			t.Fatalf("the library reads %q as %q", set, library)
		}
		if !set.Contains(again) || !set.Subtract(again).IsZero() {
			t.Fatalf("%q does not contain itself", set)
		}
	})
}

// BenchmarkAdd is the usual case: the next number of the source that was met last.
func BenchmarkAdd(b *testing.B) {
	var set GTIDSet
	for i := range 20 { // a set with history
		for j := range 10 {
			set.Add(GTID{SID: [16]byte{1, byte(i)}, Seq: uint64(1 + 10*j)})
		}
	}
	b.ReportAllocs()
	seq := uint64(1000)
	for b.Loop() {
		seq++
		set.Add(GTID{SID: sidA, Seq: seq})
	}
}

func ExampleGTIDSet() {
	var set GTIDSet
	for _, seq := range []uint64{1, 2, 3, 5} {
		set.Add(GTID{SID: sidA, Seq: seq})
	}
	fmt.Println(set)
	// Output: 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5
}
