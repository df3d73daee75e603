package checkpoint

import "time"

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
