// Package canal turns a MySQL or MariaDB binlog into committed outbox rows and
// the ends of event groups. It knows nothing of AMQP.
//
// A [Source] reads one server as a replication client. Nothing of an event
// group leaves it before the group's end was seen (promise P1); what it hands
// on is a [Batch] of [Row]s, in commit order, whose last one carries the
// [checkpoint.Mark] up to which the position may move (promise P3). A Row holds
// its columns as SELECT shows them under utf8mb4 and UTC (promise P5), so a row
// that the fallback reads by SQL is the same value as one from the binlog.
//
// What cannot be read is never passed in silence (promise P2). A position that
// the server cannot continue is a [GapError]; an incident, an unknown event or
// one that makes no sense is a [HaltError]; rows that only a look at the table
// can tell are listed in [Batch].Sweep. Everything else that ends a stream is
// worth another try.
//
// Old rows are read with the columns of their own time. Where the binlog names
// them (binlog_row_metadata=FULL) that is simple; where it does not, the reader
// keeps the [Shapes] of the tables beside the position, drops one at each
// statement that may change it, and takes a new one from the server only if the
// binlog from that place to now shows that it was the same then.
//
// Memory is bounded (promise P7): a group past [Options].TransactionBytes waits
// for its end on disk, a compressed one is unpacked as it is read, and a large
// one is handed on in parts.
package canal
