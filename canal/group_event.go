package canal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// Header flags of an event.
const (
	flagArtificial = 0x20 // made for this connection, not part of the file
	flagIgnorable  = 0x80 // may be ignored by who does not know its type
)

const headerLen = replication.EventHeaderSize

var errShortEvent = errors.New("event is shorter than its parts")

// event is one binlog event without its checksum. The header's size field is
// kept true, so that events can be strung together and read back.
type event struct {
	kind   replication.EventType
	flags  uint16
	stamp  uint32 // Unix seconds
	server uint32
	logPos uint32 // low 32 bits of the offset behind the event, 0 when not told
	raw    []byte // header and body
}

// parseEvent frames one event. checksum is the number of trailing bytes to drop.
func parseEvent(raw []byte, checksum int) (event, error) {
	if len(raw) < headerLen+checksum {
		return event{}, errShortEvent
	}
	if size := binary.LittleEndian.Uint32(raw[9:]); uint64(size) != uint64(len(raw)) {
		return event{}, fmt.Errorf("event of %d bytes says that it has %d", len(raw), size)
	}
	raw = raw[:len(raw)-checksum]
	binary.LittleEndian.PutUint32(raw[9:], uint32(len(raw)))
	return event{
		kind:   replication.EventType(raw[4]),
		flags:  binary.LittleEndian.Uint16(raw[17:]),
		stamp:  binary.LittleEndian.Uint32(raw),
		server: binary.LittleEndian.Uint32(raw[5:]),
		logPos: binary.LittleEndian.Uint32(raw[13:]),
		raw:    raw,
	}, nil
}

func (e event) body() []byte     { return e.raw[headerLen:] }
func (e event) artificial() bool { return e.flags&flagArtificial != 0 }
func (e event) time() time.Time  { return time.Unix(int64(e.stamp), 0).UTC() }

// parseGTID reads MySQL's GTID and ANONYMOUS_GTID events. The time is zero on
// servers that do not tell it.
func parseGTID(e event) (checkpoint.GTID, time.Time, error) {
	var g checkpoint.GTID
	b := e.body()
	if len(b) < 25 {
		return g, time.Time{}, errShortEvent
	}
	if e.kind == replication.GTID_EVENT {
		copy(g.SID[:], b[1:17])
		g.Seq = binary.LittleEndian.Uint64(b[17:])
	}
	// flags, SID and number; 2 (logical clock), two counters; then 7 bytes of
	// microseconds, whose top bit says that the original time follows.
	const clock, commit = 25, 25 + 1 + 16
	if len(b) < commit+7 || b[clock] != 2 {
		return g, time.Time{}, nil
	}
	var micros [8]byte
	copy(micros[:7], b[commit:])
	return g, time.UnixMicro(int64(binary.LittleEndian.Uint64(micros[:]) &^ (1 << 55))).UTC(), nil
}

// parseTaggedGTID reads MySQL's GTID_TAGGED event.
func parseTaggedGTID(e event) (g checkpoint.GTID, _ time.Time, err error) {
	defer catch(&err)
	var t replication.GtidTaggedLogEvent
	if err := t.Decode(e.body()); err != nil {
		return g, time.Time{}, errors.New("tagged GTID makes no sense")
	}
	if len(t.SID) != len(g.SID) {
		return g, time.Time{}, errShortEvent
	}
	copy(g.SID[:], t.SID)
	g.Tag, g.Seq = t.Tag.String(), uint64(t.GNO)
	return g, time.UnixMicro(int64(t.ImmediateCommitTimestamp)).UTC(), nil
}

// Flags of MariaDB's GTID event.
const (
	mariaStandalone    = 1   // one statement, no COMMIT or XID behind it
	mariaGroupCommitID = 2   // eight bytes more
	mariaPreparedXA    = 64  // the group ends in XA PREPARE
	mariaCompletedXA   = 128 // the group is XA COMMIT or XA ROLLBACK
)

func parseMariaGTID(e event) (g checkpoint.GTID, flags byte, err error) {
	b := e.body()
	if len(b) < 13 {
		return g, 0, errShortEvent
	}
	g.Seq = binary.LittleEndian.Uint64(b)
	g.Domain = binary.LittleEndian.Uint32(b[8:])
	g.Server = e.server
	return g, b[12], nil
}

// parseRotate reads the file that follows.
func parseRotate(e event) (file string, offset uint64, err error) {
	b := e.body()
	if len(b) < 9 {
		return "", 0, errShortEvent
	}
	return string(b[8:]), binary.LittleEndian.Uint64(b), nil
}

// parseXAPrepare reads the end of a prepared group. onePhase means that it was
// committed with it.
func parseXAPrepare(e event) (xid []byte, onePhase bool, err error) {
	b := e.body()
	if len(b) < 13 {
		return nil, false, errShortEvent
	}
	gtrid, bqual := binary.LittleEndian.Uint32(b[5:]), binary.LittleEndian.Uint32(b[9:])
	if gtrid > 64 || bqual > 64 || uint32(len(b)-13) < gtrid+bqual {
		return nil, false, errShortEvent
	}
	return makeXID(binary.LittleEndian.Uint32(b[1:]), b[13:13+gtrid], b[13+gtrid:13+gtrid+bqual]), b[0] != 0, nil
}

// makeXID is the opaque form of an XA transaction's name: format, length of
// the global part, global part, branch.
func makeXID(format uint32, gtrid, bqual []byte) []byte {
	x := binary.LittleEndian.AppendUint32(nil, format)
	x = append(x, byte(len(gtrid)))
	x = append(x, gtrid...)
	return append(x, bqual...)
}

// tableMapName reads the table id and the name's bytes off a TABLE_MAP event.
func tableMapName(e event) (id uint64, schema, name []byte, err error) {
	b := e.body()
	if len(b) < 9 {
		return 0, nil, nil, errShortEvent
	}
	id, b = tableID(b), b[8:]
	for _, part := range []*[]byte{&schema, &name} {
		if len(b) < 1 || len(b) < int(b[0])+2 {
			return 0, nil, nil, errShortEvent
		}
		*part, b = b[1:1+int(b[0])], b[2+int(b[0]):]
	}
	return id, schema, name, nil
}

func tableID(b []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
}
