package canal

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// reader turns the events of one binlog stream, in order, into batches. It
// frames groups: what it hands on has been committed, or prepared, because the
// end of its group was seen (promise P1). It is passive: it has no goroutine,
// clock or logger of its own.
type reader struct {
	flavor   checkpoint.Flavor
	from     checkpoint.Position // where the stream was asked to begin
	server   string              // identity of the server that is read
	filter   *filter
	rows     *rowReader
	emit     func(Batch) error
	skip     *checkpoint.Mark // the one place to pass in spite of a HaltError
	checksum int              // trailing bytes of each event
	unpack   unpacker

	place  place
	byGTID bool
	moved  bool // an event of a file was read
	// nameless leaves the GTIDs out of the marks: the position has no set that
	// they could complete.
	nameless bool
	group    group
}

// group is the event group that is being read.
type group struct {
	open     bool // between the group's first event and its end
	bracket  bool // ends by COMMIT, XID or XA PREPARE; else with the first statement
	gtid     checkpoint.GTID
	time     time.Time // commit time, if the group's GTID event tells it
	xa       bool      // XA START was seen, or MariaDB announced a prepared group
	verdict  bool      // MariaDB: the group is an XA COMMIT or XA ROLLBACK
	updates  int
	sweep    map[TableName]bool // survives a dropped group
	shape    map[TableName]bool
	received spool
}

func newReader(flavor checkpoint.Flavor, from checkpoint.Position, server string, f *filter, rows *rowReader, emit func(Batch) error) *reader {
	return &reader{flavor: flavor, from: from, server: server, filter: f, rows: rows, emit: emit}
}

// close gives back what an open group holds.
func (r *reader) close() { r.group.received.reset() }

// read takes the next event; raw becomes the reader's.
func (r *reader) read(raw []byte) error {
	checksum := r.checksum
	if len(raw) > 4 && replication.EventType(raw[4]) == replication.FORMAT_DESCRIPTION_EVENT {
		checksum = 0 // it says itself what follows
	}
	e, err := parseEvent(raw, checksum)
	if err != nil {
		return r.halt(HaltUndecodable, "event without a frame", nil)
	}
	if !e.artificial() && e.kind != replication.HEARTBEAT_EVENT && e.kind != replication.HEARTBEAT_LOG_EVENT_V2 {
		if err := r.pass(e); err != nil {
			return err
		}
	}
	return r.handle(e)
}

// handle takes one event of the stream, or one that was inside a compressed
// transaction. Its list of types is complete: what is not in it may carry rows
// and halts the stream (P2).
func (r *reader) handle(e event) error {
	switch e.kind {
	case replication.WRITE_ROWS_EVENTv2, replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv0,
		replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1:
		return r.rowsEvent(e, true)
	case replication.UPDATE_ROWS_EVENTv2, replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv0,
		replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1, replication.PARTIAL_UPDATE_ROWS_EVENT,
		replication.DELETE_ROWS_EVENTv2, replication.DELETE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv0,
		replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1:
		return r.rowsEvent(e, false)
	case replication.TABLE_MAP_EVENT:
		return r.tableMap(e)
	case replication.QUERY_EVENT, replication.MARIADB_QUERY_COMPRESSED_EVENT:
		return r.query(e)
	case replication.XID_EVENT:
		return r.end(e, Committed, nil)
	case replication.GTID_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
		return r.begin(e)
	case replication.XA_PREPARE_LOG_EVENT:
		return r.prepare(e)
	case replication.TRANSACTION_PAYLOAD_EVENT:
		return r.payload(e)
	case replication.EXECUTE_LOAD_QUERY_EVENT:
		return r.query(e)
	case replication.FORMAT_DESCRIPTION_EVENT:
		return r.format(e)
	case replication.ROTATE_EVENT:
		return r.rotate(e)
	case replication.INCIDENT_EVENT:
		return r.halt(HaltIncident, "the server logged an incident: events may be missing from its binlog", nil)
	case replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2:
		return nil // a sign of life; never a position
	case replication.START_EVENT_V3, replication.STOP_EVENT,
		replication.PREVIOUS_GTIDS_EVENT, replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT,
		replication.MARIADB_START_ENCRYPTION_EVENT:
		return r.between(e)
	case replication.INTVAR_EVENT, replication.RAND_EVENT, replication.USER_VAR_EVENT, // the statement behind them decides
		replication.BEGIN_LOAD_QUERY_EVENT, replication.APPEND_BLOCK_EVENT, replication.DELETE_FILE_EVENT, // EXECUTE_LOAD_QUERY decides
		replication.ROWS_QUERY_EVENT, replication.MARIADB_ANNOTATE_ROWS_EVENT,
		replication.TRANSACTION_CONTEXT_EVENT, replication.VIEW_CHANGE_EVENT, replication.SLAVE_EVENT:
		return nil
	case replication.IGNORABLE_EVENT:
		return r.between(e)
	}
	if e.flags&flagIgnorable != 0 {
		return r.between(e) // the server vouches that a reader may pass it
	}
	return r.halt(HaltUnknown, fmt.Sprintf("event of unknown type %d", e.kind), nil)
}

// begin takes the event that opens a group.
func (r *reader) begin(e event) error {
	r.drop()
	g := &r.group
	var err error
	var flags byte
	switch e.kind {
	case replication.MARIADB_GTID_EVENT:
		g.gtid, flags, err = parseMariaGTID(e)
		g.bracket = flags&mariaStandalone == 0
		g.xa = flags&mariaPreparedXA != 0
		g.verdict = flags&mariaCompletedXA != 0
	case replication.GTID_TAGGED_LOG_EVENT:
		g.gtid, g.time, err = parseTaggedGTID(e)
	default:
		g.gtid, g.time, err = parseGTID(e)
	}
	if err != nil {
		return r.halt(HaltUndecodable, "GTID makes no sense", nil)
	}
	g.open = true
	return nil
}

// tableMap notes whether the table's rows are wanted.
func (r *reader) tableMap(e event) error {
	id, schema, name, err := tableMapName(e)
	if err != nil {
		return r.halt(HaltUndecodable, "table map makes no sense", nil)
	}
	wanted := r.filter.mapTable(id, schema, name)
	if wanted == nil || r.behind() {
		return nil
	}
	return r.group.received.add(e.raw)
}

// rowsEvent takes rows; foreign ones are passed by their header alone.
func (r *reader) rowsEvent(e event, insert bool) error {
	b := e.body()
	if len(b) < 8 {
		return r.halt(HaltUndecodable, "rows event makes no sense", nil)
	}
	id := tableID(b)
	if id == dummyTable {
		return nil // ends a statement whose tables are not logged
	}
	table, known := r.filter.byID(id)
	if !known {
		return r.halt(HaltUndecodable, "rows event of a table that was not announced", nil)
	}
	if table == nil || r.behind() {
		return nil
	}
	if !r.group.open {
		return r.halt(HaltUndecodable, "rows event outside of a group", []TableName{table.name})
	}
	if !insert {
		r.group.updates++
		return nil
	}
	return r.group.received.add(e.raw)
}

// prepare takes the end of a prepared XA group.
func (r *reader) prepare(e event) error {
	xid, onePhase, err := parseXAPrepare(e)
	if err != nil {
		return r.halt(HaltUndecodable, "XA PREPARE makes no sense", nil)
	}
	if onePhase {
		return r.end(e, Committed, nil)
	}
	return r.end(e, Prepared, xid)
}

// drop forgets the open group: it ended in a rollback, or has no end.
func (r *reader) drop() {
	if !r.group.open {
		return
	}
	s, sweep := r.group.received, r.group.sweep
	s.reset()
	r.group = group{received: s, sweep: sweep}
	r.filter.forget()
}

// rollback ends the group without its rows. Non-transactional changes before
// the rollback were made all the same, but the tables are InnoDB (check says
// so) and statements that may have touched them are swept.
func (r *reader) rollback(e event) error {
	r.group.received.reset()
	return r.end(e, Committed, nil)
}

// end hands the group on. This is the only place that lets rows out, and it is
// reached by the events that end a group alone (P1).
func (r *reader) end(e event, kind Kind, xid []byte) error {
	g := &r.group
	defer r.drop()
	g.open = true // also for a group of a server without GTIDs
	mark := r.mark()
	mark.GTID, mark.Time = g.gtid, g.time
	if r.nameless {
		mark.GTID = checkpoint.GTID{}
	}
	if mark.Time.IsZero() {
		mark.Time = e.time()
	}
	if r.behind() {
		if !r.byGTID || mark.GTID.IsZero() {
			return nil
		}
		// Settled by its place, but not yet in the set.
		mark.File, mark.Offset, mark.Created = r.from.File, r.from.Offset, r.from.Created
		return r.emit(Batch{End: &mark, Time: mark.Time})
	}
	last := Batch{Kind: kind, XID: xid, Updates: g.updates, End: &mark, Time: mark.Time}
	last.Shape = keys(g.shape)
	for _, t := range last.Shape {
		r.rows.forget(t)
	}
	if err := r.send(&last); err != nil {
		return err
	}
	last.Sweep = append(last.Sweep, keys(g.sweep)...)
	g.sweep = nil
	return r.emit(last)
}

func keys(set map[TableName]bool) []TableName {
	if len(set) == 0 {
		return nil
	}
	var list []TableName
	for t := range set {
		list = append(list, t)
	}
	return list
}

// A part of a large group is handed on when it has this much.
const (
	partBytes = 1 << 20
	partRows  = 1000
)

// send decodes the group's rows and emits all parts but the last, which it
// leaves in last.
func (r *reader) send(last *Batch) error {
	if r.group.received.empty() {
		return nil
	}
	var size int
	return r.group.received.each(func(raw []byte) error {
		if len(last.Rows) >= partRows || size >= partBytes {
			part := *last
			part.End, part.Sweep, part.Shape, part.Updates = nil, nil, nil, 0
			if err := r.emit(part); err != nil {
				return err
			}
			last.Rows, last.Shapes, size = nil, nil, 0
		}
		size += len(raw)
		return r.decode(raw, last)
	})
}

// decode appends an event's rows to a batch. What cannot be decoded halts the
// stream, or is swept if the user chose to pass it; rows whose columns cannot
// be told are swept in any case.
func (r *reader) decode(raw []byte, b *Batch) error {
	table, err := r.rows.read(raw, *b.End, b)
	var bad *undecodable
	var unsure *uncertain
	switch {
	case errors.As(err, &bad):
		return r.haltAt(*b.End, HaltUndecodable, bad.Error(), []TableName{table})
	case errors.As(err, &unsure):
		r.sweep(table)
		return nil
	}
	return err
}

// halt is what every unreadable thing ends in: an error, or, if the user has
// chosen to pass this very place, a sweep of the tables it may have touched
// (all that are known when it does not say which).
func (r *reader) halt(reason HaltReason, detail string, touched []TableName) error {
	return r.haltAt(r.mark(), reason, detail, touched)
}

func (r *reader) haltAt(mark checkpoint.Mark, reason HaltReason, detail string, touched []TableName) error {
	if r.behind() {
		return nil
	}
	if s := r.skip; s == nil || s.File != mark.File || s.Offset != mark.Offset || s.Created != mark.Created {
		return &HaltError{Reason: reason, Mark: mark, Detail: detail}
	}
	if touched == nil {
		touched = r.filter.known()
	}
	r.sweep(touched...)
	return nil
}

// sweep notes tables that need one: the next group's end says so.
func (r *reader) sweep(tables ...TableName) {
	if r.group.sweep == nil {
		r.group.sweep = map[TableName]bool{}
	}
	for _, t := range tables {
		r.group.sweep[t] = true
	}
}
