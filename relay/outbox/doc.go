// Package outbox is for services that send messages: it writes a message into
// an outbox table in the caller's transaction, so that the message is sent if,
// and only if, the business change commits. The relay does the rest.
//
// It promises:
//
//   - A message is written by the transaction it is given, and by nothing else:
//     a *sql.DB or a *sql.Conn is refused, as it would commit on its own.
//   - Ids are unique and ascend with time (UUID version 7), so that they are
//     cheap in an index; an id that the caller gives is kept.
//   - A transition writes its message only if its UPDATE changed exactly one
//     row: of two that compete, one writes a message and the other gets
//     [ErrNotInState].
//
// It knows nothing of the relay and of AMQP, and works with whatever has an
// ExecContext: database/sql's Tx, sqlx's Tx, or GORM's tx.Statement.ConnPool.
package outbox
