package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Handler makes the business change of one message in tx. An error rolls the
// change back; [Permanent] marks one that no retry can mend.
type Handler func(ctx context.Context, tx *sql.Tx, m Message) error

// Config says what one consumer does. Zero values mean the defaults in brackets.
type Config struct {
	Consumer string // its name in the table and in metrics: ASCII, at most 64 bytes; required
	Queue    string // the queue it reads; retry and isolation queues derive their names from it; required
	Table    string // [towpath_inbox], or schema.table
	Handler  Handler

	// Workers is how many transactions run at once. [the pool's MaxOpenConns, 8
	// at most; 8 for a pool without a limit]. It must not exceed MaxOpenConns:
	// workers would wait for each other's connections. With more than one the
	// order of messages is not kept.
	Workers int
	// Batch is how many deliveries that wait anyway share one transaction. [1]
	// If one of them fails, each is processed by itself.
	Batch     int
	Isolation sql.IsolationLevel // of the transactions; [the server's]
	Timeout   time.Duration      // of one transaction, handler included; [30s]

	// Delays are the pauses before each retry: as many retries as delays, then
	// isolation. Each is spread by a quarter either way. [1s 5s 30s 2m 10m 10m 10m]
	Delays []time.Duration
	// Within is the wall-clock limit of all tries, counted from the first that failed. [24h]
	Within time.Duration
	// StopWithin is how long a stop waits for transactions in progress. [10s]
	StopWithin time.Duration
	// ReplayWindow is how long after its first delivery a message may come
	// again: the outbox's retention, and what the broker holds. Records are
	// kept for it. [336h]
	ReplayWindow time.Duration

	Metrics prometheus.Registerer // nil for none
	Log     *slog.Logger          // transitions and isolations; nil for none
}

// Inbox processes the deliveries of one consumer. Its methods may be called
// from several goroutines.
type Inbox struct {
	Config
	db      *sql.DB
	metrics *metrics
	insert  string // one record's, without its values
	record  string
}

// New checks the configuration. The pool is the caller's and stays open; the
// driver must be github.com/go-sql-driver/mysql.
func New(db *sql.DB, c Config) (*Inbox, error) {
	c.setDefaults(db.Stats().MaxOpenConnections)
	if err := c.check(db.Stats().MaxOpenConnections); err != nil {
		return nil, fmt.Errorf("set up inbox: %w", err)
	}
	m, err := newMetrics(c, db)
	if err != nil {
		return nil, fmt.Errorf("set up inbox: register metrics: %w", err)
	}
	table := quoteTable(c.Table)
	return &Inbox{Config: c, db: db, metrics: m,
		insert: "INSERT INTO " + table + " (consumer, message_id, content, processed_at) VALUES ",
		// A locking read: the record may have been committed after this
		// transaction's snapshot.
		record: "SELECT content FROM " + table + " WHERE consumer=? AND message_id=? LOCK IN SHARE MODE",
	}, nil
}

// maxWorkers bounds the default: a pool without a limit is no invitation.
const maxWorkers = 8

func (c *Config) setDefaults(pool int) {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	if c.Table == "" {
		c.Table = "towpath_inbox"
	}
	if c.Workers == 0 {
		c.Workers = maxWorkers
		if pool > 0 {
			c.Workers = min(pool, maxWorkers)
		}
	}
	if c.Batch == 0 {
		c.Batch = 1
	}
	if c.Delays == nil {
		c.Delays = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute}
	}
	set(&c.Timeout, 30*time.Second)
	set(&c.Within, 24*time.Hour)
	set(&c.StopWithin, 10*time.Second)
	set(&c.ReplayWindow, 14*24*time.Hour)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// check names every fault at once.
func (c *Config) check(pool int) error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	notASCII := func(r rune) bool { return r < ' ' || r > '~' }
	fault(c.Consumer == "" || len(c.Consumer) > 64 || strings.ContainsFunc(c.Consumer, notASCII),
		"Consumer must be a name of 1 to 64 ASCII characters, not %q", c.Consumer)
	fault(c.Queue == "" || len(c.Queue) > 200, "Queue must be a name of 1 to 200 bytes")
	fault(c.Handler == nil, "Handler is missing")
	fault(c.Workers < 1, "Workers must be positive")
	fault(pool > 0 && c.Workers > pool, "%d workers on a pool of %d connections wait for each other: raise SetMaxOpenConns or lower Workers", c.Workers, pool)
	fault(c.Batch < 1 || c.Batch > 1000, "Batch must be from 1 to 1000")
	fault(slices.ContainsFunc(c.Delays, func(d time.Duration) bool { return d < 10*time.Millisecond || d > 24*time.Hour }),
		"each of Delays must be from 10ms to 24h")
	fault(min(c.Timeout, c.Within, c.StopWithin) < 0, "Timeout, Within and StopWithin must not be negative")
	fault(c.Within >= c.ReplayWindow, "Within (%v) must be shorter than ReplayWindow (%v): a record would be gone before the last retry", c.Within, c.ReplayWindow)
	return errors.Join(faults...)
}

// Prefetch is how many deliveries the broker may have out: what the workers
// process, and as much again so that none waits for the network.
func (in *Inbox) Prefetch() int { return 2 * in.Workers * in.Batch }

// Outcome is what became of a message that was processed without an error.
type Outcome string

const (
	Applied   Outcome = "applied"   // its change is committed
	Duplicate Outcome = "duplicate" // it was committed before, with the same content
)

// ErrDifferentContent says that the id is recorded with other content.
var ErrDifferentContent = errors.New("the message id was processed with different content")

// errNoID refuses what cannot be told from its duplicates.
var errNoID = errors.New("the message has no message id, or one longer than 255 bytes")

// Permanent marks an error that no retry can mend; nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// databaseError is a failure that says nothing about the message.
type databaseError struct{ error }

func (e *databaseError) Unwrap() error { return e.error }

// lostError is a handler's failure on a connection that was lost meanwhile,
// whatever the handler made of it.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// Once processes one message: its record and the handler's change commit in one
// transaction, or neither does. After an error the message may be given again,
// also when it is not known whether the commit arrived.
func (in *Inbox) Once(ctx context.Context, m Message) (Outcome, error) {
	if m.ID == "" || len(m.ID) > 255 {
		return "", Permanent(errNoID)
	}
	tx, err := in.begin(ctx)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after a commit
	known, err := in.note(ctx, tx, m)
	switch {
	case err != nil:
		return "", err
	case known:
		return Duplicate, nil
	}
	if err := in.call(ctx, tx, m); err != nil {
		if lost := tx.Rollback(); lost != nil && !errors.Is(lost, sql.ErrTxDone) {
			return "", &lostError{err}
		}
		return "", err
	}
	if ctx.Err() != nil { // the transaction is rolled back; the database is not to blame
		return "", fmt.Errorf("the handler ended too late: %w", context.Cause(ctx))
	}
	if err := tx.Commit(); err != nil {
		return "", &databaseError{fmt.Errorf("commit: %w", err)}
	}
	return Applied, nil
}

func (in *Inbox) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := in.db.BeginTx(ctx, &sql.TxOptions{Isolation: in.Isolation})
	if err != nil {
		return nil, &databaseError{fmt.Errorf("begin: %w", err)}
	}
	return tx, nil
}

// values are one record's.
const values = "(?, ?, ?, UTC_TIMESTAMP(6))"

func (in *Inbox) arguments(m Message) []any {
	content := Content(m.Type, m.Body)
	return []any{in.Consumer, []byte(m.ID), content[:]}
}

// note writes the record, or finds it there already. Another transaction that
// has written it and not ended is waited for.
func (in *Inbox) note(ctx context.Context, tx *sql.Tx, m Message) (known bool, err error) {
	args := in.arguments(m)
	_, err = tx.ExecContext(ctx, in.insert+values, args...)
	switch {
	case err == nil:
		return false, nil
	case !isDuplicateKey(err):
		return false, &databaseError{fmt.Errorf("write the record in %s: %w", in.Table, err)}
	}
	var content []byte
	if err := tx.QueryRowContext(ctx, in.record, args[:2]...).Scan(&content); err != nil {
		return false, &databaseError{fmt.Errorf("read the record in %s: %w", in.Table, err)}
	}
	if string(content) != string(args[2].([]byte)) {
		return false, Permanent(ErrDifferentContent)
	}
	return true, nil
}

// call runs the handler. A panic is a failure like another: the delivery that
// causes it must not take the process down again and again.
func (in *Inbox) call(ctx context.Context, tx *sql.Tx, m Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, 4096)
			in.Log.Error("the handler panicked", "consumer", in.Consumer, "message_id", m.ID, "stack", string(stack[:runtime.Stack(stack, false)]))
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return in.Handler(ctx, tx, m)
}

// all processes several messages in one transaction, or none of them: whatever
// is not plain success is an error, and each is then processed by itself.
func (in *Inbox) all(ctx context.Context, ds []Delivery) error {
	tx, err := in.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	args := make([]any, 0, 3*len(ds))
	for i := range ds {
		if ds[i].ID == "" || len(ds[i].ID) > 255 {
			return errNoID
		}
		args = append(args, in.arguments(ds[i].Message)...)
	}
	query := in.insert + values + strings.Repeat(", "+values, len(ds)-1)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return err
	}
	for i := range ds {
		if err := in.call(ctx, tx, ds[i].Message); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func quoteTable(name string) string {
	parts := strings.SplitN(name, ".", 2)
	for i := range parts {
		parts[i] = "`" + strings.ReplaceAll(parts[i], "`", "``") + "`"
	}
	return strings.Join(parts, ".")
}
