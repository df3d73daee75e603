package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/towpath/towpath/checkpoint/broken"
)

// Fence names one leadership of a stream. Every write of a leader proves it.
type Fence struct {
	Stream string
	Term   uint64
	Holder string // unique per start of a process
}

func (f Fence) String() string {
	return fmt.Sprintf("term %d of stream %s, held by %s", f.Term, f.Stream, f.Holder)
}

var (
	// ErrFenced says that another leadership has begun, or this one was given
	// up. Nothing was written, and nothing ever will be under this fence.
	ErrFenced = errors.New("the lease is held by another leader")
	// ErrUnknown says that the connection was lost at COMMIT: the transaction
	// may have happened or not. A caller looks again before it relies on either.
	ErrUnknown = errors.New("it is not known whether the transaction was committed")
)

// Answered reports whether an error is the server's answer to a statement, such
// as a lock wait that took too long. The session can go on after one, and what
// it holds it still holds; after any other error it cannot be trusted.
func Answered(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e)
}

// rollbackTimeout bounds the last words to a session; one that does not answer
// them is ended, which the server takes for a rollback too.
const rollbackTimeout = time.Second

// Tx is a leader's transaction, see [Store.Fenced].
type Tx struct {
	store *Store
	conn  *sql.Conn
	fence Fence
}

// Exec runs one statement of the transaction.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.conn.ExecContext(ctx, query, args...)
}

// Query runs one reading statement of the transaction. Its rows must be closed
// before the next statement.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.conn.QueryContext(ctx, query, args...)
}

// Fenced runs work in a transaction that only the leader can commit
// (promise P4): after work, as the last statement before COMMIT, it locks the
// lease row by term and holder. A takeover that came first has changed the
// row: the result is [ErrFenced] and nothing was written. One that comes later
// waits for this COMMIT, and reads the position that it saved. The lock comes
// last so that it is held for one round trip: work may wait for rows that an
// application has locked, and a renewal must not wait for them.
//
// On an error everything is rolled back, save for [ErrUnknown].
func (s *Store) Fenced(ctx context.Context, f Fence, work func(ctx context.Context, tx *Tx) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	err = work(ctx, &Tx{store: s, conn: conn, fence: f})
	if err == nil {
		err = s.lockLease(ctx, conn, f)
	}
	if err != nil {
		rollback(ctx, conn)
		return withoutData(err)
	}
	return commit(ctx, conn)
}

// lockLease is the fence (promise P4).
func (s *Store) lockLease(ctx context.Context, conn *sql.Conn, f Fence) error {
	if broken.SkipTerm {
		return nil
	}
	var term uint64
	err := conn.QueryRowContext(ctx, s.sql("SELECT term FROM {schema}.lease WHERE stream=? AND term=? AND holder=?"+s.forShare()),
		f.Stream, f.Term, f.Holder).Scan(&term)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: no longer %s", ErrFenced, f)
	}
	if err != nil {
		return fmt.Errorf("prove the lease: %w", err)
	}
	return nil
}

// rollback ends the transaction of a session that goes back to its pool.
func rollback(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		discard(conn)
	}
}

func commit(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "COMMIT")
	if err == nil {
		return nil
	}
	discard(conn)
	if hasNumber(err, errDeadlock, errLockWait, errRolledBack, errCommitFailed, errReadOnlyOption, errReadOnlyTransaction) {
		return fmt.Errorf("commit: %w", err)
	}
	return fmt.Errorf("commit: %w: %w", ErrUnknown, err)
}

// withoutData takes the text out of server errors that quote values: a row's
// payload must not reach a log.
func withoutData(err error) error {
	var e *mysql.MySQLError
	if errors.As(err, &e) && hasNumber(e, errDuplicateKey, errSyntax, errTruncated, errTruncatedWrong, errWrongValue, errInvalidJSON, errWrongValueForType) {
		e.Message = "(the server's text is withheld, it can quote row data)"
	}
	return err
}

const (
	errDuplicateKey        = 1062
	errSyntax              = 1064
	errCommitFailed        = 1180
	errTruncated           = 1265
	errReadOnlyOption      = 1290
	errTruncatedWrong      = 1292
	errWrongValue          = 1366
	errWrongValueForType   = 1411
	errReadOnlyTransaction = 1792
	errRolledBack          = 3101
	errInvalidJSON         = 3140
)
