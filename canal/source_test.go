package canal

import (
	"fmt"
	"testing"

	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func TestCommittedRowsArriveInCommitOrderWithTheEndOfTheirGroup(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		f.insert(1, 3)
		f.exec("INSERT INTO other VALUES (1, 'foreign')", "INSERT INTO outbox VALUES (4,'a',NULL),(5,'b','c')")
		batches := f.read(f.source(), start)
		wantIDs(t, batches, numbers(1, 5)...)
		at := start.Position.Clone()
		for _, b := range batches {
			if b.End == nil {
				t.Fatalf("a small group came in parts")
			}
			at.Advance(*b.End)
		}
		here := f.here()
		if fmt.Sprint(at) != fmt.Sprint(here) {
			t.Errorf("the marks lead to %v, the server is at %v", at, here)
		}
	})
}

func TestEachMarkIsAPlaceToBeginAt(t *testing.T) {
	onEach(t, allVariants, func(t *testing.T, f *rig) {
		start := f.start()
		for i := 1; i <= 6; i++ {
			f.session("BEGIN", fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", 2*i-1), "INSERT INTO other VALUES ("+fmt.Sprint(i)+",'y')",
				fmt.Sprintf("INSERT INTO outbox VALUES (%d,'x',NULL)", 2*i), "COMMIT")
			if i == 3 {
				f.exec("FLUSH BINARY LOGS")
			}
		}
		all := f.read(f.source(), start)
		wantIDs(t, all, numbers(1, 12)...)
		at, seen := start.Position.Clone(), 0
		for _, b := range all {
			at.Advance(*b.End)
			seen += len(b.Rows)
			rest := f.read(f.source(), Start{Position: at.Clone(), Shapes: start.Shapes})
			wantIDs(t, rest, numbers(seen+1, 12)...)
		}
	})
}
