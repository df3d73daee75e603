// Package rabbit is everything AMQP: the connection with its coalescing
// writer, the fence, publisher confirms and returns, and their translation to
// [Outcome]s.
//
// A [Lane] is one connection with one confirm channel. It is given messages
// and reports exactly one outcome for each, in any order. A message that was
// sent and not answered is never guessed at: the lane closes its session,
// takes its fence anew and publishes what is unsettled again, in the order it
// was given (promise P2). It publishes nothing before its fence is held and the
// lease was proven after that (promise P4). An outage is a state, never an
// outcome (P8), and no message holds up others for longer than a moment (P9),
// except one of the same id to the same destination.
//
// From the outside in:
//
//	lane.go       the loop: sessions one after another, channels within a session
//	session.go    one connection from its fence on, and how it ends without hanging
//	fence.go      the exclusive queue that lets one connection at a time publish
//	flight.go     passive: what is unsettled, what may be sent, which answer is whose
//	probation.go  passive: finding the message that ends channels or connections
//	wire.go       the socket: writes gather while the system call before runs
//	broker.go     urls, TLS, logins, names
//	message.go, validate.go   the message, and what of it AMQP can carry
//	probe.go      looking at a broker without changing it
//
// What is not obvious:
//
//   - The library settles what is in flight as nacked when a channel closes.
//     Only a nack on an open channel is the broker's.
//   - A channel that a message killed is replaced on the same connection: the
//     fence is still held, and the broker was through with the old channel
//     before it said so.
//   - The lane wakes when the library asks the socket for more bytes: then it has
//     dispatched all that came. So it looks once at a whole batch of answers,
//     and waits for no single one.
//   - Socket errors reach the library only by its next read. A session ends by
//     closing the socket first; the library's own shutdown can wait for ever
//     for a writer that is blocked in it.
package rabbit
