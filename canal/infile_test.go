package canal

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/deploy/lab"
)

func TestAServerThatAsksTheStreamForAFileGetsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(file, []byte("root:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := lab.StartInfileServer(file)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s := NewSource(Options{
		Address: server.Addr(), User: "root",
		Tables: func(TableName) (Interest, bool) { return Interest{}, false },
	})
	from := checkpoint.Position{Flavor: checkpoint.MySQL, Server: "x", File: "binlog.000001", Offset: 4}
	err = s.Stream(t.Context(), Start{Position: from}, func(Batch) error { return context.Canceled })
	if asked, got := server.Asked(); err == nil || asked == 0 || len(got) > 0 {
		t.Errorf("asked %d times, it got %q: %v", asked, got, err)
	}
}
