package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Transaction is the caller's open transaction.
type Transaction interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Message is one message to send.
type Message struct {
	ID   string // unique for ever; empty: NewID. Stays empty for a table that numbers its rows
	Key  string // what the message is about; messages of one key stay in order
	Type string // what happened, as order.created
	Body []byte // JSON, or whatever the body's column takes

	// More are values of further columns, by column: a tenant, a version, a
	// second unique key.
	More map[string]any
}

// Table says where a message goes: the names of an outbox table and its
// columns. A column that is left empty is not written.
type Table struct {
	Name            string // table or schema.table
	ID              string // column of the message id
	Key, Type, Body string

	// Numbered makes the message id of a table without a column for it, from
	// the number that AUTO_INCREMENT gave the row. It must say what the relay's
	// configuration says. Exactly one of ID and Numbered is set.
	Numbered func(row int64) string
}

// Bills is the table of deploy/sql/practice-a-bills.sql. The key is the bill's
// id, a number in decimal.
func Bills() Table {
	return Table{Name: "ss_bill_outbox", Key: "bill_id", Type: "event_type", Body: "payload",
		Numbered: func(row int64) string { return "bill-" + strconv.FormatInt(row, 10) }}
}

// Orders is the table of deploy/sql/practice-b-orders.sql.
func Orders() Table {
	return Table{Name: "biz_outbox", ID: "msg_id", Key: "biz_id", Type: "biz_type", Body: "payload"}
}

// Payments is the table of deploy/sql/practice-c-payments.sql. The column
// payment_id goes in Message.More: with the type it is unique, one event for a
// transition.
func Payments() Table {
	return Table{Name: "outbox_event", ID: "event_id", Key: "aggregate_id", Type: "event_type", Body: "payload"}
}

// ErrNotInState is the answer of a transition whose UPDATE found nothing to
// change: the row is not there, or another transaction was first. No message
// was written; what to do is the caller's to decide.
var ErrNotInState = errors.New("the row is not in the state that the transition starts from")

// TooManyRowsError is the answer of a transition whose UPDATE changed several
// rows, which one message cannot speak for. The transaction must be rolled back.
type TooManyRowsError struct{ Rows int64 }

func (e *TooManyRowsError) Error() string {
	return fmt.Sprintf("the transition changed %d rows, not one: its condition must name one row by its key; roll the transaction back", e.Rows)
}

// NewID returns a unique id that ascends with time: a UUID of version 7 as
// text of 36 characters.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make a message id: %w", err)
	}
	return id.String(), nil
}

// Insert writes a message in the caller's transaction and returns its id, the
// one that the consumer will see.
func (t Table) Insert(ctx context.Context, tx Transaction, m Message) (string, error) {
	if err := t.check(tx, m); err != nil {
		return "", err
	}
	if t.Numbered == nil && m.ID == "" {
		id, err := NewID()
		if err != nil {
			return "", err
		}
		m.ID = id
	}
	query, args := t.insert(m)
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return "", fmt.Errorf("write a message to %s: %w", t.Name, err)
	}
	if t.Numbered == nil {
		return m.ID, nil
	}
	row, err := result.LastInsertId()
	if err != nil {
		return "", fmt.Errorf("read the number of a message in %s: %w", t.Name, err)
	}
	if row == 0 {
		return "", fmt.Errorf("table %s numbers no rows: it needs an AUTO_INCREMENT column, or Table.ID must name the id's column", t.Name)
	}
	return t.Numbered(row), nil
}

// Transition moves a business row from one state to the next and writes the
// message that says so, in the caller's transaction. The statement is an UPDATE
// whose condition names the row and the state it must be in:
//
//	UPDATE payment SET state='PAID' WHERE id=? AND state='AUTHORIZED'
//
// It must change exactly one row. If it changed none, the error is
// [ErrNotInState] and no message is written. With the driver's option
// clientFoundRows an UPDATE that sets what is there already counts as well, so
// the condition should exclude the new state.
func (t Table) Transition(ctx context.Context, tx Transaction, m Message, update string, args ...any) (string, error) {
	if err := t.check(tx, m); err != nil {
		return "", err
	}
	result, err := tx.ExecContext(ctx, update, args...)
	if err != nil {
		return "", fmt.Errorf("make the transition: %w", err)
	}
	rows, err := result.RowsAffected()
	switch {
	case err != nil:
		return "", fmt.Errorf("count the rows of the transition: %w", err)
	case rows == 0:
		return "", ErrNotInState
	case rows > 1:
		return "", &TooManyRowsError{Rows: rows}
	}
	return t.Insert(ctx, tx, m)
}

// check refuses what would write no message, or one outside the transaction.
func (t Table) check(tx Transaction, m Message) error {
	switch tx.(type) {
	case *sql.DB, *sql.Conn:
		return fmt.Errorf("write a message to %s: a %T commits on its own; give the transaction of the business change", t.Name, tx)
	}
	switch {
	case t.Name == "":
		return errors.New("write a message: Table.Name is empty")
	case (t.ID == "") == (t.Numbered == nil):
		return fmt.Errorf("write a message to %s: exactly one of Table.ID and Table.Numbered must be set", t.Name)
	case t.Numbered != nil && m.ID != "":
		return fmt.Errorf("write a message to %s: the table numbers its rows, so Message.ID must be empty", t.Name)
	case len(m.ID) > 255:
		return fmt.Errorf("write a message to %s: the id has %d bytes, and AMQP takes 255", t.Name, len(m.ID))
	}
	for _, c := range []string{t.ID, t.Key, t.Type, t.Body} {
		if _, twice := m.More[c]; twice && c != "" {
			return fmt.Errorf("write a message to %s: Message.More names column %s, which the table maps already", t.Name, c)
		}
	}
	return nil
}

// insert builds the statement. Its text depends on the columns alone, so that a
// driver can keep it prepared.
func (t Table) insert(m Message) (query string, args []any) {
	var columns []string
	add := func(column string, value any) {
		if column != "" {
			columns = append(columns, quote(column))
			args = append(args, value)
		}
	}
	add(t.ID, m.ID)
	add(t.Key, m.Key)
	add(t.Type, m.Type)
	add(t.Body, text(m.Body))
	for _, column := range slices.Sorted(maps.Keys(m.More)) {
		add(column, m.More[column])
	}
	schema, name, two := strings.Cut(t.Name, ".")
	table := quote(schema)
	if two {
		table += "." + quote(name)
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" +
		strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ") + ")", args
}

// text gives the body as text where it is text: a JSON column refuses a binary string.
func text(body []byte) any {
	switch {
	case body == nil:
		return nil
	case utf8.Valid(body):
		return string(body)
	}
	return body
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
