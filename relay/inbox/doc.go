// Package inbox is for services that receive messages: it processes a delivery
// once, however often it comes. The relay delivers at least once, under the
// same message id; this package is the other half.
//
// It promises:
//
//   - Once. The record (consumer, message id) and the handler's changes commit
//     in one local transaction. A delivery is acknowledged after that commit.
//     Whoever is killed in between finds the record when the delivery comes
//     again, and acknowledges it without calling the handler.
//   - Same id, same content. The record holds a hash of the content. A delivery
//     whose id is known under other content is never taken for a duplicate: it
//     goes to isolation.
//   - Nothing is lost on the way to a retry or to isolation: the copy is
//     confirmed by the broker, and was not returned, before the original is
//     acknowledged. Nothing is ever requeued, so no delivery spins.
//   - Retries are bounded in number and in time, and wait in the broker. An
//     outage of the database or the broker burns none of them.
//   - Records are kept for the replay window at least.
//
// What it cannot promise is left to the handler. It makes its changes through
// the transaction it is given and through nothing else, commits and rolls back
// nothing, and returns every error that a statement gave it: a deadlock that is
// swallowed has rolled back the record, too. Effects outside the database need
// an outbox of their own (package outbox works in the same transaction).
//
// The package knows nothing of the relay and of any AMQP library. [Inbox.Run]
// takes deliveries and a [Publisher]; package relay/rabbit/consumer brings both,
// with reconnects. [Inbox.Once] alone suits a service with a loop of its own.
package inbox
