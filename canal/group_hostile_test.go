package canal

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

func TestNamesOfXATransactionsThatDifferInAnyPartAreNotEqual(t *testing.T) {
	names := map[string]bool{}
	for _, text := range []string{
		"XA COMMIT X'6162',X'',1", "XA COMMIT X'61',X'62',1", "XA COMMIT X'',X'6162',1", "XA COMMIT X'61',X'63',1", "XA COMMIT X'61',X'62',2",
	} {
		xid, err := statement{text: []byte(text)}.xid()
		if err != nil {
			t.Fatal(err)
		}
		if names[string(xid)] {
			t.Errorf("%s has the name of another", text)
		}
		names[string(xid)] = true
	}
}

func TestAVerdictOnAnXATransactionIsToldAsItIs(t *testing.T) {
	for text, want := range map[string]Kind{"XA COMMIT X'61',X'62',1": XACommit, "XA ROLLBACK X'61',X'62',1": XARollback} {
		p := newTape(t, "mysql")
		p.query(text)
		if p.err != nil || len(p.batches) != 1 || p.batches[0].Kind != want {
			t.Errorf("%s: got %+v, %v", text, p.batches, p.err)
		}
	}
}

func TestAnXATransactionThatIsRolledBackInItsOwnGroupHasNoRows(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.begin()
		p.query("XA START X'61',X'',1")
		p.rows()
		p.query("XA END X'61',X'',1")
		p.query("XA ROLLBACK X'61',X'',1")
		p.group()
		p.want(1)
	})
}

func TestARollbackToAnUnknownSavepointHalts(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.begin()
		p.rows()
		p.query("ROLLBACK TO nowhere")
		p.wantHalt(HaltUndecodable)
	})
}

// plainPayload is a compressed transaction that is not compressed.
func plainPayload(events ...[]byte) []byte {
	return append([]byte{payloadCompression, 3, 252, compressNone, 0, payloadEnd}, slices.Concat(events...)...)
}

func inner(kind replication.EventType, size int, body []byte) []byte {
	raw := make([]byte, headerLen, headerLen+len(body))
	raw[4] = byte(kind)
	binary.LittleEndian.PutUint32(raw[9:], uint32(size))
	return append(raw, body...)
}

func TestACompressedTransactionHoldsWholeEventsOfAGroupAlone(t *testing.T) {
	rotate := append(make([]byte, 8), "binlog.000009"...)
	xid := inner(replication.XID_EVENT, headerLen+8, make([]byte, 8))
	for name, body := range map[string][]byte{
		"a payload inside":   plainPayload(inner(replication.TRANSACTION_PAYLOAD_EVENT, headerLen+len(plainPayload(xid)), plainPayload(xid))),
		"a rotation inside":  plainPayload(inner(replication.ROTATE_EVENT, headerLen+len(rotate), rotate)),
		"a header cut off":   plainPayload(xid, xid[:10]),
		"an event cut off":   plainPayload(xid[:headerLen+3]),
		"an event too short": plainPayload(inner(replication.XID_EVENT, 3, make([]byte, 8))),
		"its compression":    append([]byte{payloadCompression, 1, 7, payloadEnd}, xid...),
	} {
		p := newTape(t, "mysql")
		p.begin()
		p.event(byte(replication.TRANSACTION_PAYLOAD_EVENT), 0, body)
		t.Run(name, func(t *testing.T) { p.T = t; p.wantHalt(HaltUndecodable) })
	}
	p := newTape(t, "mysql")
	p.begin()
	p.event(byte(replication.TRANSACTION_PAYLOAD_EVENT), 0, plainPayload(xid))
	if p.want(0); len(p.batches) != 1 {
		t.Errorf("a whole one gave %d batches", len(p.batches))
	}
}

func TestAnEventThatClaimsAGigabyteTakesTheMemoryOfWhatIsThere(t *testing.T) {
	body := plainPayload(inner(replication.XID_EVENT, 1<<30, make([]byte, 8)))
	p := newTape(t, "mysql")
	p.begin()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.event(byte(replication.TRANSACTION_PAYLOAD_EVENT), 0, body)
	runtime.ReadMemStats(&after)
	p.wantHalt(HaltUndecodable)
	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
		t.Errorf("it took %d MiB", took>>20)
	}
}

func TestAnEventOfAnotherSizeThanItSaysHalts(t *testing.T) {
	for _, more := range []int{-1, 1} {
		p := newTape(t, "mysql")
		p.err = p.reader.read(inner(replication.XID_EVENT, headerLen+8+more, make([]byte, 8)))
		p.wantHalt(HaltUndecodable)
	}
}
