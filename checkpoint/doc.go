// Package checkpoint holds the position of a stream as a value, and its fenced
// store on the source server.
//
// A [Position] says up to which event group everything is settled. It always
// carries the server's identity, the binlog file with a 64-bit offset and the
// file's creation stamp, and the GTID set where the server has GTIDs on. It is
// advanced by [Mark]s, each of which is the end of exactly one event group
// (promise P3: a position is never inside a group).
package checkpoint
