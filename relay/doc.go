// Package relay is the core of Towpath: it turns the source's rows into
// confirmed messages and moves the position behind them.
//
// # Promises
//
// They are fixed; the lines that enforce them name their number.
//
//   - P1 No ghosts. A row is published only if its transaction committed.
//   - P2 No loss. Every committed row of a configured table ends as exactly one
//     of: confirmed, parked, deferred, withdrawn, gone, filtered.
//   - P3 Position behind settlement. The saved position never passes a row
//     without one of those ends, and is always the end of an event group.
//   - P4 Fenced. A relay that lost the lease can neither move the position nor
//     write row state; a new leader publishes only after the old one's broker
//     connections are dead.
//   - P5 Same bytes. A row's message is byte-identical on every publish of it.
//   - P6 Order. Rows of one table with one ordering key are first delivered in
//     commit order, as far as the stream delivers them.
//   - P7 Bounded. Memory is bounded by configuration.
//   - P8 An outage is not a failure. It burns no attempt and needs no restart.
//   - P9 Isolation. A bad row, a full queue or a locked row stops neither other
//     keys nor other tables, nor the position.
//   - P10 Withdrawn stays withdrawn, and a row-state write never overwrites a
//     value that the application set meanwhile.
//
// # How a row travels
//
//	canal.Source --Batch--> intake --> preparer --entry--> flow --Ticket--> rabbit.Lane
//	                                                         ^                   |
//	                                     writer <--writes-- loop <----Outcome----+
//
// One goroutine owns each piece of state. The source's goroutine decodes and
// fills the intake. The preparer maps rows to messages, and reads by SQL what
// the binlog could not say. The loop owns the flow: the window in commit order,
// the key gate and the lanes' room; it hears outcomes, settles, and hands the
// writer what is due. The writer owns the leader's SQL session: row state,
// parked rows and position go in one transaction that ends in the lease's lock.
// Everything is handed over in batches of whatever has gathered meanwhile.
//
// # What is refused
//
// A row that the broker does not take is parked: made durable in the state
// tables, and settled with that. From then on the lot, which the loop owns too,
// says when it is due; the retrier reads it anew, and it goes through the flow
// like any row. Rows of a strict key stand in line, and later ones line up
// behind. What decides between a bad row and a bad destination is what else the
// destination took:
//
//   - It took others since the row's last attempt, and refused only this one:
//     an attempt counts, and when all are used up the row has failed and waits
//     for a person. The first refusal never counts.
//   - It refuses one row after the other, or has never taken any: it closes.
//     Rows for it are parked unsent, one of them is its probe after each pause,
//     and no attempt counts. Whatever it takes opens it, from one message in
//     flight upwards.
//
// The parked row's end is remembered until the saved position has passed the
// row: a stream that reads the row again after a crash must find that it was
// sent, discarded or withdrawn. For the same reason an end counts, and lets the
// next of the line go, only once it is durable.
//
// # What is not obvious
//
//   - A confirmed row is settled before its row state is written: a row that the
//     application keeps locked holds back nothing (P9); after a crash the
//     fallback finds it unsent and sends it again under the same id.
//   - The relay's own writes come back through the binlog as groups without
//     rows of interest. Such groups never make a save due, they only ride along.
//   - There is one recovery path, start-up: a leader that fails in any way gives
//     up its state and begins again from the saved position.
package relay
