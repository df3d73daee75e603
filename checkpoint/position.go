package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Flavor names the two families of servers, whose GTIDs and statements differ.
type Flavor string

// The flavors.
const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
)

// GTID is the global transaction id of one event group. The zero value means
// that the group has none (GTIDs off, or an anonymous group).
type GTID struct {
	SID [16]byte // MySQL: the source's server_uuid
	Tag string   // MySQL 8.3 and later: the tag, lower case, "" without one
	Seq uint64   // MySQL: the group number; MariaDB: the sequence number; 0 means no GTID

	Domain uint32 // MariaDB only
	Server uint32 // MariaDB only: server_id of the originating server
}

// Mark is the end of one event group: what a position advances by.
type Mark struct {
	File    string    // binlog file that the group ends in
	Offset  uint64    // first byte after the group, 64-bit (the protocol's own is 32-bit and wraps)
	Created uint32    // the file's creation stamp: timestamp of its format description event, Unix seconds
	GTID    GTID      // the group's GTID, zero without one
	Time    time.Time // commit time as the source's clock had it, whole seconds on old events
}

// Position is the end of an event group, or a place between groups, in one
// server's binlog (promise P3). A plain copy shares its GTID set's memory: use
// Clone before one of the two is advanced.
type Position struct {
	Flavor  Flavor
	Server  string // identity of the server, see [Identity]
	File    string // binlog file
	Offset  uint64 // first byte that is not behind the position
	Created uint32 // File's creation stamp, Unix seconds; 0 when not known
	GTIDs   GTIDSet
	Last    GTID // of the last group behind the position, zero without one
}

// Advance moves the position to the end of the next group. The caller keeps
// commit order: a position advances over every group of its server, also over
// those without outbox rows. Flavor and Server stay.
func (p *Position) Advance(m Mark) {
	p.File, p.Offset, p.Created = m.File, m.Offset, m.Created
	if !m.GTID.IsZero() {
		p.GTIDs.Add(m.GTID)
		p.Last = m.GTID
	}
}

// IsZero reports whether there is no position yet.
func (p Position) IsZero() bool { return p.File == "" && p.GTIDs.IsZero() }

// Clone returns an independent copy.
func (p Position) Clone() Position {
	p.GTIDs = p.GTIDs.Clone()
	return p
}

// Compare orders two positions of the same server by file and offset: -1, 0 or
// +1. On different servers its answer means nothing.
func (p Position) Compare(o Position) int {
	return cmp.Or(CompareFiles(p.File, o.File), cmp.Compare(p.Offset, o.Offset))
}

// After reports whether p lies behind o in the same server's binlog.
func (p Position) After(o Position) bool { return p.Compare(o) > 0 }

// Reached reports whether p is at or past a place in the same server's binlog.
func (p Position) Reached(file string, offset uint64) bool {
	return p.Compare(Position{File: file, Offset: offset}) >= 0
}

// CompareFiles orders two binlog files of one server by the number that ends
// their names: after binlog.999999 comes binlog.1000000. A name without a
// number comes first.
func CompareFiles(a, b string) int {
	return cmp.Or(cmp.Compare(fileNumber(a), fileNumber(b)), strings.Compare(a, b))
}

func fileNumber(name string) uint64 {
	n, err := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// String is the position for logs and people.
func (p Position) String() string {
	if p.IsZero() {
		return "none"
	}
	s := fmt.Sprintf("%s:%d", p.File, p.Offset)
	if !p.GTIDs.IsZero() {
		s += " (" + p.GTIDs.String() + ")"
	}
	return s
}

// positionVersion is the version of a position's JSON form.
const positionVersion = 1

type positionJSON struct {
	Version int    `json:"version"`
	Flavor  Flavor `json:"flavor"`
	Server  string `json:"server"`
	File    string `json:"file"`
	Offset  uint64 `json:"offset"`
	Created uint32 `json:"created"`
	GTIDs   string `json:"gtids"`
	Last    string `json:"last"`
}

// MarshalJSON writes the versioned form that UnmarshalJSON reads.
func (p Position) MarshalJSON() ([]byte, error) {
	return json.Marshal(positionJSON{
		Version: positionVersion, Flavor: p.Flavor, Server: p.Server,
		File: p.File, Offset: p.Offset, Created: p.Created,
		GTIDs: p.GTIDs.String(), Last: p.Last.String(),
	})
}

// UnmarshalJSON reads a position strictly: a key or a version that it does not
// know, or a value that no server could have, is an error. A position that is
// guessed at would lose rows.
func (p *Position) UnmarshalJSON(data []byte) error {
	var j positionJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return fmt.Errorf("read position: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("read position: text after its end")
	}
	if j.Version != positionVersion {
		return fmt.Errorf("read position: version %d is not known to this program (it knows %d): use the version that wrote it, or a later one", j.Version, positionVersion)
	}
	if j.Flavor != MySQL && j.Flavor != MariaDB {
		return fmt.Errorf("read position: flavor %q is neither %s nor %s", j.Flavor, MySQL, MariaDB)
	}
	if j.File == "" && j.Offset != 0 || j.File != "" && fileNumber(j.File) == 0 {
		return fmt.Errorf("read position: %q is not the name of a binlog file", j.File)
	}
	set, err := ParseGTIDSet(j.Flavor, j.GTIDs)
	if err != nil {
		return fmt.Errorf("read position: %w", err)
	}
	last, err := ParseGTID(j.Flavor, j.Last)
	if err != nil {
		return fmt.Errorf("read position: last group: %w", err)
	}
	*p = Position{Flavor: j.Flavor, Server: j.Server, File: j.File, Offset: j.Offset, Created: j.Created, GTIDs: set, Last: last}
	return nil
}
