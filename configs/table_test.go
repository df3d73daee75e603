package configs

import (
	"path"
	"slices"
	"testing"
)

func TestAPatternMatchesByItsStars(t *testing.T) {
	for pattern, tables := range map[string]map[string]bool{
		"shop.outbox":   {"shop.outbox": true, "Shop.outbox": false, "shop.outbox2": false, "shop.outbo": false},
		"shop_*.outbox": {"shop_eu.outbox": true, "shop_.outbox": true, "shop.outbox": false, "shop_eu.outbox_x": false},
		"*.*":           {"a.b": true},
		"*.a*b*c":       {"s.abc": true, "s.axxbxxc": true, "s.acb": false, "s.abcc": true, "s.ab": false},
	} {
		p, message, _ := parsePattern(pattern)
		if message != "" {
			t.Fatalf("%s %s", pattern, message)
		}
		for name, want := range tables {
			q, _, _ := parsePattern(name)
			if got := (&Table{Tables: []Pattern{{"x", "y"}, p}}).Matches(q.Schema, q.Table); got != want {
				t.Errorf("%s matches %s: %v", pattern, name, got)
			}
		}
	}
}

// Two globs meet if some text matches both: tried with every text up to a length.
func TestGlobsMeetExactlyWhenSomeTextMatchesBoth(t *testing.T) {
	texts := words("ab", 6)
	globs := words("ab*", 3)
	for _, a := range globs {
		for _, b := range globs {
			want := slices.ContainsFunc(texts, func(s string) bool {
				x, _ := path.Match(a, s)
				y, _ := path.Match(b, s)
				return x && y
			})
			if got := globsMeet(a, b); got != want {
				t.Fatalf("%q and %q meet: %v", a, b, got)
			}
		}
	}
}

// words lists every text over an alphabet, up to a length.
func words(alphabet string, length int) []string {
	all := []string{""}
	for from := 0; length > 0; length-- {
		to := len(all)
		for _, w := range all[from:to] {
			for _, c := range alphabet {
				all = append(all, w+string(c))
			}
		}
		from = to
	}
	return all
}

func TestATableListsWhatItReadsAndWrites(t *testing.T) {
	c, err := Parse("full.yaml", readFile(t, "testdata/full.yaml"), func(string) (string, bool) { return "1", true })
	if err != nil {
		t.Fatal(err)
	}
	table := c.Tables[0]
	reads := []string{"id", "customer", "payload", "type", "trace", "ttl", "tenant", "meta", "made_at", "region", "due",
		"state", "lease_until", "tries", "next_at", "sent_at"}
	if got := table.Reads(); !slices.Equal(got, reads) {
		t.Errorf("reads\n%v, want\n%v", got, reads)
	}
	writes := []string{"state", "lease_until", "sent_at", "tries", "next_at", "fault"}
	if got := table.Writes(); !slices.Equal(got, writes) {
		t.Errorf("writes %v, want %v", got, writes)
	}
	if table.Retention = (Retention{}); slices.Contains(table.Reads(), "sent_at") {
		t.Error("sent_at is read without a retention")
	}
	if keep := c.Tables[1]; !slices.Equal(keep.Reads(), []string{"id", "payload"}) || keep.Writes() != nil {
		t.Errorf("a keep table reads %v and writes %v", keep.Reads(), keep.Writes())
	}
}

func TestALabelIsTheNameOrTheTable(t *testing.T) {
	if got := (&Table{Name: "orders"}).Label("shop", "outbox"); got != "orders" {
		t.Errorf("got %q", got)
	}
	if got := (&Table{}).Label("shop", "outbox"); got != "shop.outbox" {
		t.Errorf("got %q", got)
	}
}
