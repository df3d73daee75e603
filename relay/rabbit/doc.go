// Package rabbit is everything AMQP: the connection with its coalescing
// writer, the fence, publisher confirms and returns, and their translation to
// [Outcome]s.
//
// A [Lane] is one connection with one confirm channel. It is given messages
// and reports exactly one outcome for each, in any order. A message that was
// sent and not answered is never guessed at: the lane closes its session,
// takes its fence anew and publishes what is unsettled again, in the order it
// was given (promise P2). It publishes nothing before its fence is held and the
// lease was proven after that (promise P4).
package rabbit
