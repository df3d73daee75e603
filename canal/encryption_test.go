package canal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// The key of an encrypted binlog is the server's alone: it sends plain events,
// at the offsets that they would have in a plain file.
func TestABinlogThatBecomesEncryptedIsReadOn(t *testing.T) {
	t.Parallel()
	f := newRig(t, labtest.OwnMySQL(t, lab.MySQLOptions{Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL", Keyring: true}))
	start := f.start()
	f.insert(1, 2)
	f.exec("SET GLOBAL binlog_encryption=ON")
	f.insert(3, 4)
	f.session("SET binlog_transaction_compression=ON", "INSERT INTO outbox VALUES (5, REPEAT('z', 200), NULL)")
	f.exec("ALTER INSTANCE ROTATE BINLOG MASTER KEY")
	f.insert(6, 7)

	data, err := os.ReadFile(filepath.Join(f.srv.Dir(), "data", f.here().File))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("\xfdbin")) || bytes.Contains(data, []byte("payload 7")) {
		t.Fatalf("the binlog begins with %x and is not encrypted", data[:4])
	}
	batches := f.read(f.source(), start)
	wantIDs(t, batches, numbers(1, 7)...)
	at := start.Position.Clone()
	for i, b := range batches {
		if b.End == nil {
			continue
		}
		if at.Advance(*b.End); len(b.Rows) > 0 {
			next := len(ids(batches[:i+1])) + 1
			wantIDs(t, f.read(f.source(), Start{Position: at.Clone(), Shapes: start.Shapes}), numbers(next, 7)...)
		}
	}
}
