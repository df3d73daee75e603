package canal

import (
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// place is where the stream stands in the server's binlog.
type place struct {
	file    string
	created uint32 // file's creation stamp, 0 until its first event was seen
	offset  uint64 // 64-bit: the protocol's own field wraps at 4 GiB
	pending uint64 // bytes read since offset was last told
}

// pass moves the place behind an event of size bytes. The server tells only
// the low half of the new offset, and not with every event (MariaDB 11.4 tells
// none inside a group), so the next offset is the first one with that low half
// that is not before what was read. That is exact while what the server strips
// on the wire (checksums, groups that we have) is under 4 GiB at a time.
func (p *place) pass(size int, logPos uint32) {
	p.pending += uint64(size)
	if logPos == 0 {
		return
	}
	least := p.offset + p.pending
	next := least&^0xffffffff | uint64(logPos)
	if next < least {
		next += 1 << 32
	}
	p.offset, p.pending = next, 0
}

// pass moves the place behind an event of the file.
func (r *reader) pass(e event) error {
	if r.byGTID && r.sameFile() && r.from.Offset >= wrapNear && isGTID(e.kind) {
		// The server left out the groups that we have, and with them the
		// events that would have shown the offset wrap.
		if least := r.from.Offset - wrapSlack; r.place.offset < least {
			r.place.offset, r.place.pending = least, 0
		}
	}
	if e.logPos == 0 && !r.group.open {
		return nil // the copy of a file's first event at the start of a stream
	}
	start := r.place.offset
	r.place.pass(len(e.raw), e.logPos)
	first := !r.moved
	r.moved = true
	if r.byGTID || !r.sameFile() {
		return nil
	}
	across := start < r.from.Offset && r.place.offset > r.from.Offset
	// What begins at the position must end where it says, give or take the
	// checksum that the server may leave out.
	beside := first && start == r.from.Offset && r.place.offset-start > uint64(len(e.raw)+2*replication.BinlogChecksumLength)
	if across || beside {
		return r.insideEvent()
	}
	return nil
}

func (r *reader) insideEvent() error {
	return &GapError{Kind: GapHistory, From: r.from, Detail: "the position is inside of an event"}
}

const (
	wrapNear  = 3 << 30 // from here on a file is taken to be one whose offsets wrap
	wrapSlack = 1 << 30 // how far before the position the server may go back
)

// sameFile says whether the place is in the file that the position is in.
func (r *reader) sameFile() bool { return r.place.file == r.from.File && r.server == r.from.Server }

// behind says whether the place is behind the position that the stream began
// at. Two streams go there all the same: one by file past 4 GiB, which reads
// the file from its start, and one by GTID whose set lacks the groups that were
// just being committed when the position was read.
func (r *reader) behind() bool {
	if r.server != r.from.Server || r.from.File == "" || r.place.file == "" {
		return false
	}
	if r.place.file == r.from.File {
		return r.place.offset <= r.from.Offset
	}
	return checkpoint.CompareFiles(r.place.file, r.from.File) < 0
}

func isGTID(t replication.EventType) bool {
	switch t {
	case replication.GTID_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
		return true
	}
	return false
}

// format takes a file's first event, or its copy at the start of a stream.
func (r *reader) format(e event) error {
	checksum, err := r.rows.format(e)
	if err != nil {
		return r.halt(HaltUndecodable, "format description makes no sense", nil)
	}
	r.checksum = checksum
	r.place.created = e.stamp
	if r.sameFile() && r.from.Created != 0 && r.place.created != r.from.Created {
		return &GapError{Kind: GapHistory, From: r.from, Detail: fmt.Sprintf("%s was created at %s, the position is of one from %s",
			r.place.file, time.Unix(int64(r.place.created), 0).UTC(), time.Unix(int64(r.from.Created), 0).UTC())}
	}
	return r.between(e)
}

// rotate takes the name of the file that the next events are of.
func (r *reader) rotate(e event) error {
	file, offset, err := parseRotate(e)
	if err != nil {
		return r.halt(HaltUndecodable, "rotation makes no sense", nil)
	}
	if e.artificial() && file == r.place.file {
		return nil // the server's echo of what the real one said
	}
	// No group spans files: an open one was cut off by a crash of the server,
	// which rolled it back.
	r.drop()
	if r.sameFile() && r.behind() && r.place.offset < r.from.Offset && !r.byGTID {
		return &GapError{Kind: GapAhead, From: r.from, Detail: r.place.file + " ends before the position"}
	}
	r.place = place{file: file, offset: offset}
	return nil
}

// between reports the place behind an event that belongs to no group.
func (r *reader) between(e event) error {
	if r.group.open {
		return nil // P3: never a mark inside of a group
	}
	if e.artificial() || e.logPos == 0 || r.behind() {
		return nil
	}
	mark := r.mark()
	mark.Time = e.time()
	return r.emit(Batch{End: &mark, Time: mark.Time})
}

// mark is the current place, without a group.
func (r *reader) mark() checkpoint.Mark {
	return checkpoint.Mark{File: r.place.file, Offset: r.place.offset, Created: r.place.created}
}
