// Package checkpoint holds the position of a stream as a value, and its fenced
// store on the source server.
//
// A [Position] says up to which event group everything is settled. It always
// carries the server's identity, the binlog file with a 64-bit offset and the
// file's creation stamp, and the GTID set where the server has GTIDs on. It is
// advanced by [Mark]s, each of which is the end of exactly one event group
// (promise P3: a position is never inside a group).
//
// The [Store] keeps it, with the lease and all else that must outlive a
// process, in tables beside the outbox, so that one transaction can write row
// state and the position. It promises (P4) that whoever lost the lease writes
// nothing: every write of a leader goes through [Store.Fenced], whose last
// statement before COMMIT locks the lease row by term and holder, and a
// takeover ([LeaseSession.Take]) changes that row before it reads the position.
// Neither depends on a clock. Expiry, which does, only decides when somebody
// may try.
//
// Files: position.go and gtid.go are the values, passive; identity.go says
// which server is which; connect.go makes SQL sessions; schema.go and schema/
// are the tables; grants.go the privileges; fence.go the leader's transaction;
// store.go and the files named after a table are what is done to it.
package checkpoint
