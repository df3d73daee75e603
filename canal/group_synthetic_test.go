package canal

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// tape is a synthetic binlog, made of the events of a real one and of events
// that no test can have a server write.
type tape struct {
	*testing.T
	reader  *reader
	batches []Batch
	offset  uint64
	err     error
	gno     uint64
	zero    bool // events inside of groups tell no offset (MariaDB 11.4)

	tableMap, insert []byte // bodies
}

func newTape(t *testing.T, flavor checkpoint.Flavor) *tape {
	t.Helper()
	c := corpora[0]
	if flavor == checkpoint.MariaDB {
		c = corpora[3]
	}
	data, err := os.ReadFile(c.file())
	if err != nil {
		t.Fatal(err)
	}
	p := &tape{T: t, offset: 4}
	p.reader = offline(flavor, c.shape(t), t.TempDir(), func(b Batch) error { p.batches = append(p.batches, b); return nil })
	t.Cleanup(p.reader.close)
	events := fileEvents(data)
	p.event(events[0][4], 0, events[0][headerLen:])
	p.reader.checksum = 0
	for _, raw := range events {
		body := raw[headerLen : len(raw)-4]
		switch kind := replication.EventType(raw[4]); {
		case kind == replication.TABLE_MAP_EVENT && p.insert == nil:
			if _, _, name, err := tableMapName(event{raw: raw}); err == nil && string(name) == "outbox" {
				p.tableMap = body
			}
		case p.tableMap != nil && p.insert == nil && slices.Contains(inserts, kind):
			p.insert = body
		}
	}
	p.batches = nil
	return p
}

var inserts = []replication.EventType{replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2}

// event gives the reader an event; its end is where the tape then is.
func (p *tape) event(kind byte, flags uint16, body []byte) {
	p.Helper()
	raw := make([]byte, headerLen, headerLen+len(body))
	raw[4] = kind
	binary.LittleEndian.PutUint32(raw, 1_700_000_000)
	binary.LittleEndian.PutUint32(raw[9:], uint32(headerLen+len(body)))
	binary.LittleEndian.PutUint16(raw[17:], flags)
	if flags&flagArtificial == 0 {
		p.offset += uint64(headerLen + len(body))
		if !p.zero || !p.reader.group.open || kind == byte(replication.XID_EVENT) {
			binary.LittleEndian.PutUint32(raw[13:], uint32(p.offset))
		}
	}
	if p.err == nil {
		p.err = p.reader.read(append(raw, body...))
	}
}

func (p *tape) begin() {
	p.gno++
	if p.reader.flavor == checkpoint.MariaDB {
		body := make([]byte, 19)
		binary.LittleEndian.PutUint64(body, p.gno)
		p.event(byte(replication.MARIADB_GTID_EVENT), 0, body)
		return
	}
	body := make([]byte, 42)
	body[1] = 0xaa
	binary.LittleEndian.PutUint64(body[17:], p.gno)
	p.event(byte(replication.GTID_EVENT), 0, body)
	p.query("BEGIN")
}

func (p *tape) query(text string) {
	body := make([]byte, 14)
	p.event(byte(replication.QUERY_EVENT), 0, append(body, text...))
}

// rows writes one insert into the outbox.
func (p *tape) rows() {
	kind := replication.WRITE_ROWS_EVENTv2
	if p.reader.flavor == checkpoint.MariaDB {
		kind = replication.WRITE_ROWS_EVENTv1
	}
	p.event(byte(replication.TABLE_MAP_EVENT), 0, p.tableMap)
	p.event(byte(kind), 0, p.insert)
}

func (p *tape) xid() { p.event(byte(replication.XID_EVENT), 0, make([]byte, 8)) }

func (p *tape) rotate(file string) {
	body := append(binary.LittleEndian.AppendUint64(nil, 4), file...)
	p.event(byte(replication.ROTATE_EVENT), flagArtificial, body)
	p.offset = 4
}

func (p *tape) group() {
	p.begin()
	p.rows()
	p.xid()
}

func (p *tape) want(rows int) {
	p.Helper()
	if p.err != nil {
		p.Error(p.err)
	}
	if got := len(ids(p.batches)); got != rows {
		p.Errorf("got %d rows, want %d", got, rows)
	}
}

func (p *tape) wantHalt(reason HaltReason) *HaltError {
	p.Helper()
	var halt *HaltError
	if !errors.As(p.err, &halt) || halt.Reason != reason {
		p.Fatalf("ended with %v, want a halt for %s", p.err, reason)
	}
	return halt
}

func bothFlavors(t *testing.T, test func(p *tape)) {
	t.Helper()
	for _, flavor := range []checkpoint.Flavor{checkpoint.MySQL, checkpoint.MariaDB} {
		t.Run(string(flavor), func(t *testing.T) { test(newTape(t, flavor)) })
	}
}

func TestAGroupThatACrashCutOffIsDropped(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.group()
		p.begin()
		p.rows()
		p.rotate("binlog.000002")
		p.xid() // of nothing: what was cut off is gone
		p.group()
		p.want(2)
		if got := p.batches[len(p.batches)-1].End; got.File != "binlog.000002" || got.GTID.Seq != 3 {
			p.Errorf("the last mark is %+v", got)
		}
	})
}

func TestAnIncidentHaltsUntilItIsPassedWithASweep(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.group()
		p.event(byte(replication.INCIDENT_EVENT), 0, []byte{1, 0, 0})
		halt := p.wantHalt(HaltIncident)

		q := newTape(p.T, p.reader.flavor)
		q.reader.skip = &halt.Mark
		q.group()
		q.event(byte(replication.INCIDENT_EVENT), 0, []byte{1, 0, 0})
		q.group()
		q.want(2)
		if got := swept(q.batches); !slices.Equal(got, []TableName{shopOutbox}) {
			q.Errorf("sweeps of %v", got)
		}
		q.event(byte(replication.INCIDENT_EVENT), 0, []byte{1, 0, 0})
		q.wantHalt(HaltIncident)
	})
}

func TestUnknownEventsHaltUnlessTheServerVouchesForThem(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.event(200, flagIgnorable, []byte("whatever"))
		p.begin()
		p.rows()
		p.event(201, flagIgnorable, []byte("whatever"))
		p.xid()
		p.want(1)
		for _, kind := range []byte{0, 43, 99, 169, 255} { // 169: rows of a table that we cannot see
			q := newTape(p.T, p.reader.flavor)
			q.begin()
			q.event(kind, 0, []byte("whatever"))
			q.wantHalt(HaltUnknown)
		}
	})
}

func TestADummyRowsEventIsNothing(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.begin()
		p.rows()
		p.event(byte(replication.WRITE_ROWS_EVENTv2), 0, []byte{0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 2, 0, 0})
		p.xid()
		p.want(1)
	})
}

func TestRowsWithoutTheirTableHalt(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.group()
		p.begin()
		p.event(byte(replication.WRITE_ROWS_EVENTv2), 0, p.insert) // the map of the group before is no more
		p.wantHalt(HaltUndecodable)
	})
}

func TestUndecodableRowsHaltAtTheirGroupsEndAndAreSweptWhenPassed(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		broken := func(p *tape) {
			p.group()
			p.begin()
			p.rows()
			p.insert = slices.Concat(p.insert, []byte{1})
			p.rows()
			p.xid()
		}
		broken(p)
		halt := p.wantHalt(HaltUndecodable)
		if halt.Mark.Offset != p.offset {
			p.Errorf("halted at %d, the group ends at %d", halt.Mark.Offset, p.offset)
		}
		if len(ids(p.batches)) != 1 {
			p.Errorf("got %d rows, want those of the group before alone", len(ids(p.batches)))
		}
		q := newTape(p.T, p.reader.flavor)
		q.reader.skip = &halt.Mark
		broken(q)
		q.want(2)
		if got := swept(q.batches); !slices.Equal(got, []TableName{shopOutbox}) {
			q.Errorf("sweeps of %v", got)
		}
	})
}

func TestOffsetsGoOnPastFourGiB(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		for _, zero := range []bool{false, true} {
			p.zero = zero
			for _, jump := range []uint64{1 << 31, 1<<32 - 100, 1 << 20} {
				// The file grows by what is not ours to see.
				for range 8 {
					p.offset += jump
					p.group()
				}
				if got := p.batches[len(p.batches)-1].End.Offset; got != p.offset {
					p.Fatalf("zero offsets %t: mark at %d, the tape is at %d", zero, got, p.offset)
				}
			}
			p.rotate("binlog.000002")
		}
		if p.err != nil {
			p.Error(p.err)
		}
	})
}

func TestAGroupOverFourGiBWithoutOffsetsIsMeasured(t *testing.T) {
	p := newTape(t, checkpoint.MariaDB)
	p.zero = true
	p.offset = 1<<32 - 5000
	p.group()
	p.begin()
	for range 100 {
		p.rows()
	}
	// As if 4 GiB of rows had passed: the reader counts what it reads.
	p.reader.place.pending += 1 << 32
	p.offset += 1 << 32
	p.xid()
	p.want(101)
	if got := p.batches[len(p.batches)-1].End.Offset; got != p.offset {
		t.Errorf("mark at %d, the tape is at %d", got, p.offset)
	}
}

func TestAPositionPastFourGiBIsReachedFromTheFilesStart(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		ends := []uint64{}
		build := func(p *tape) {
			for range 6 {
				p.offset += 1 << 30
				p.group()
				ends = append(ends, p.offset)
			}
		}
		build(p)
		q := newTape(p.T, p.reader.flavor)
		q.reader.from = checkpoint.Position{Flavor: p.reader.flavor, File: "binlog.000001", Offset: ends[3]}
		build(q)
		q.want(2)
		if got := q.batches[0].End.Offset; got != ends[4] {
			q.Errorf("the first mark is at %d, want %d", got, ends[4])
		}

		between := newTape(p.T, p.reader.flavor)
		between.reader.from = checkpoint.Position{Flavor: p.reader.flavor, File: "binlog.000001", Offset: ends[3] + 3}
		build(between)
		wantGap(p.T, between.err, GapHistory)
	})
}

func TestAGTIDStreamTakesTheHighHalfOfItsOffsetsFromThePosition(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.reader.byGTID = true
		p.reader.from = checkpoint.Position{Flavor: p.reader.flavor, File: "binlog.000001", Offset: 5<<32 + 100}
		p.offset = 5<<32 + 100
		p.group()
		p.group()
		p.want(2)
		if got := p.batches[1].End.Offset; got != p.offset {
			p.Errorf("mark at %d, the tape is at %d", got, p.offset)
		}
	})
}

func TestGroupsBehindAPositionWhoseGTIDsLagAreOnlyCounted(t *testing.T) {
	bothFlavors(t, func(p *tape) {
		p.reader.byGTID = true
		p.group()
		settled := p.offset
		p.group()

		q := newTape(p.T, p.reader.flavor)
		q.reader.byGTID = true
		q.reader.from = checkpoint.Position{Flavor: p.reader.flavor, File: "binlog.000001", Offset: settled, Created: 77}
		q.group()
		q.group()
		q.want(1)
		first := q.batches[0].End
		if first.GTID.Seq != 1 || first.Offset != settled {
			q.Errorf("the group behind the position has the mark %+v", first)
		}
	})
}
