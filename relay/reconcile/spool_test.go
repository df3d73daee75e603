package reconcile

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestSpoolGivesBackEveryEntryInTheOrderOfBytes(t *testing.T) {
	for _, limit := range []int{1, 1000, 1 << 20} {
		s, err := newSpool(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s.limit = limit
		var want []string
		for range 200 {
			var e entry
			id := make([]byte, rand.IntN(256))
			for i := range id {
				id[i] = byte(rand.IntN(256))
			}
			e.id, e.key, e.done = string(id), strings.Repeat("k", rand.IntN(300)), rand.IntN(2) == 0
			e.content[31] = byte(len(e.key))
			if err := s.add(e); err != nil {
				t.Fatal(err)
			}
			want = append(want, e.id)
		}
		slices.Sort(want)
		next, err := s.sorted()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			e, more, err := next()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			if e.content[31] != byte(len(e.key)) {
				t.Fatal("an entry came back changed")
			}
			got = append(got, e.id)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with runs of %d bytes: %d entries, want %d, or another order", limit, len(got), len(want))
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("the spool left its folder: %v", err)
		}
	}
}
