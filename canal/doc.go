// Package canal turns a MySQL or MariaDB binlog into committed outbox rows and
// the ends of event groups. It knows nothing of AMQP.
//
// A [Source] reads one server as a replication client. Nothing of an event
// group leaves it before the group's end was seen (promise P1); what it hands
// on is a [Batch] of [Row]s, in commit order, whose last one carries the
// [checkpoint.Mark] up to which the position may move (promise P3). A Row holds
// its columns as SELECT shows them under utf8mb4 and UTC (promise P5), so a row
// that the fallback reads by SQL is the same value as one from the binlog.
package canal
