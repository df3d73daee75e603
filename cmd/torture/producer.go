package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// producer commits transactions with outbox rows, and notes in the ledger what
// was committed. Its keys are its own, so that the order of each key's commits
// is known. A transaction whose end it does not know it looks up.
type producer struct {
	db      *sql.DB
	ledger  *ledger
	number  int
	every   time.Duration
	ids     *atomic.Uint64 // of all producers: rows, transactions
	random  *rand.Rand
	mariaDB bool

	prepared []*basket      // XA transactions that are to be decided
	later    []func() error // changes of rows that were committed
}

const keysPerTable = 5 // of one producer

// run commits until ctx ends. All that is open is then decided.
func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		if !p.act() {
			pause(ctx, 50*time.Millisecond) // the database is away: wait for it, as a shop does
		}
	}
	for len(p.prepared) > 0 {
		p.decide()
	}
	for _, change := range p.later {
		p.insist(change)
	}
}

func (p *producer) act() bool {
	switch n := p.random.IntN(100); {
	case n < 6 && len(p.prepared) < 3:
		return p.prepare()
	case n < 20 && len(p.prepared) > 0:
		p.decide()
		return true
	case n < 22:
		return p.draft()
	case n < 24:
		return p.unroutable()
	case n < 28 && len(p.later) > 0:
		if err := p.later[0](); err != nil {
			return false
		}
		p.later = p.later[1:]
		return true
	}
	return p.transaction()
}

// transaction commits, or takes back, some rows.
func (p *producer) transaction() bool {
	b, err := p.begin("START TRANSACTION")
	if err != nil {
		return false
	}
	defer b.end()
	p.write(b)
	if b.err != nil || p.random.IntN(100) < 12 {
		b.exec("ROLLBACK")
		p.ledger.rollback(len(b.rows) + b.undone)
		return b.err == nil
	}
	return p.commit(b)
}

// write fills a transaction.
func (p *producer) write(b *basket) {
	n := 1 + p.random.IntN(5)
	if p.random.IntN(150) == 0 {
		n = 50 + p.random.IntN(200)
	}
	for range n {
		b.insert(tables[p.random.IntN(len(tables)-1)]) // all but drafts
	}
	if p.random.IntN(100) < 15 {
		b.exec("SAVEPOINT gift")
		kept := len(b.rows)
		for range 1 + p.random.IntN(3) {
			b.insert(tables[p.random.IntN(len(tables)-1)])
		}
		b.exec("ROLLBACK TO SAVEPOINT gift")
		b.undone += len(b.rows) - kept
		b.rows = b.rows[:kept]
	}
}

// commit commits and notes it, or finds out what became of it.
func (p *producer) commit(b *basket) bool {
	b.sent(time.Now())
	b.exec("COMMIT")
	if b.err != nil {
		b.end()
		if !p.happened(b.number) {
			p.ledger.rollback(len(b.rows) + b.undone)
			return false
		}
	}
	p.ledger.commit(b.rows)
	p.ledger.rollback(b.undone)
	return true
}

// happened looks up whether a transaction was committed. The read locks, so
// that it waits for one whose COMMIT is still under way.
func (p *producer) happened(number uint64) (committed bool) {
	p.insist(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
		defer cancel()
		var n int
		err := p.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM business WHERE id = ? FOR UPDATE", number).Scan(&n)
		committed = n == 1
		return err
	})
	return committed
}

// insist does something until the database has done it.
func (p *producer) insist(do func() error) {
	for do() != nil {
		time.Sleep(100 * time.Millisecond)
	}
}

// prepare leaves an XA transaction prepared. One whose PREPARE is not known to
// have succeeded is to be rolled back.
func (p *producer) prepare() bool {
	b, err := p.begin("")
	if err != nil {
		return false
	}
	b.xid = fmt.Sprintf("'torture-%d'", b.number)
	b.exec("XA START " + b.xid)
	b.witness()
	p.write(b)
	b.exec("XA END " + b.xid)
	if b.err != nil { // the end of its session takes it back
		b.abandon()
		p.ledger.rollback(len(b.rows) + b.undone)
		return false
	}
	b.exec("XA PREPARE " + b.xid)
	b.back = b.err != nil || p.random.IntN(100) < 30
	p.prepared = append(p.prepared, b)
	if b.err != nil {
		b.abandon()
	} else if !p.mariaDB { // MariaDB leaves it to its session until that ends
		b.end()
	}
	return true
}

// decide commits or rolls back a prepared transaction.
func (p *producer) decide() {
	at := p.random.IntN(len(p.prepared))
	b := p.prepared[at]
	p.prepared = append(p.prepared[:at:at], p.prepared[at+1:]...)
	verdict := "XA COMMIT "
	if b.back {
		verdict = "XA ROLLBACK "
	}
	b.sent(time.Now())
	if b.conn != nil {
		b.err = nil
		b.exec(verdict + b.xid)
		if b.err != nil {
			b.abandon()
		} else {
			b.end()
			p.decided(b, !b.back)
			return
		}
	}
	p.insist(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
		defer cancel()
		_, err := p.db.ExecContext(ctx, verdict+b.xid)
		if !isNumber(err, errNoSuchXID) {
			return err
		}
		// It was decided, or its session has not let go of it yet: then its rows are locked.
		var n int
		return p.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM business WHERE id = ? FOR UPDATE", b.number).Scan(&n)
	})
	p.decided(b, p.happened(b.number))
}

func (p *producer) decided(b *basket, committed bool) {
	if committed {
		p.ledger.commit(b.rows)
		p.ledger.rollback(b.undone)
	} else {
		p.ledger.rollback(len(b.rows) + b.undone)
	}
}

// errNoSuchXID is the server's word for an XA transaction that it does not have.
const errNoSuchXID = 1397

func isNumber(err error, number uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == number
}

// draft commits a row that is not to be sent yet: in a state of the
// application's own, or due later; and later releases or withdraws it.
func (p *producer) draft() bool {
	b, err := p.begin("START TRANSACTION")
	if err != nil {
		return false
	}
	defer b.end()
	if p.random.IntN(2) == 0 {
		r := b.insertKeyed(drafts, "", "ok.draft", "DRAFT", nil)
		r.due = time.Now()
		return p.draftLater(b, r, "DRAFT", 0)
	}
	wait := time.Duration(4000+p.random.IntN(3000)) * time.Millisecond
	due := time.Now().Add(wait).UTC().Truncate(time.Millisecond)
	r := b.insertKeyed(drafts, "", "ok.draft", "PENDING", due)
	r.due = due
	return p.draftLater(b, r, "PENDING", wait)
}

// draftLater commits a draft and plans what becomes of it.
func (p *producer) draftLater(b *basket, r *row, status string, wait time.Duration) bool {
	id := b.lastID
	withdraw := p.random.IntN(2) == 0
	r.fate = never
	if status == "PENDING" && !withdraw {
		r.fate = must
	}
	if b.err != nil {
		b.exec("ROLLBACK")
		p.ledger.rollback(1)
		return false
	}
	if !p.commit(b) || r.fate == must {
		return true
	}
	if !withdraw {
		p.later = append(p.later, func() error {
			return p.update(r, must, "UPDATE draft_outbox SET status = 'PENDING' WHERE id = ? AND status = 'DRAFT'", id)
		})
		return true
	}
	withdrawal := func() error {
		return p.update(r, never, "UPDATE draft_outbox SET status = 'ABANDONED' WHERE id = ? AND status IN ('DRAFT', 'PENDING')", id)
	}
	if wait == 0 {
		p.later = append(p.later, withdrawal)
		return true
	}
	p.insist(withdrawal)
	if time.Until(r.due) < 2*time.Second { // too late to say which came first
		p.ledger.decide(r, may)
	}
	return true
}

// unroutable commits two rows of one key, the first to a place that does not
// exist before the end; it may be withdrawn while it waits.
func (p *producer) unroutable() bool {
	bills := tables[0]
	b, err := p.begin("START TRANSACTION")
	if err != nil {
		return false
	}
	defer b.end()
	key := fmt.Sprint(1_000_000 + p.ids.Add(1))
	r := b.insertKeyed(bills, key, "nowhere")
	id := b.lastID
	b.insertKeyed(bills, key, "ok.behind")
	if b.err != nil {
		b.exec("ROLLBACK")
		p.ledger.rollback(2)
		return false
	}
	if !p.commit(b) {
		return false
	}
	if p.random.IntN(2) == 0 {
		p.later = append(p.later, func() error {
			return p.update(r, never, "UPDATE ss_bill_outbox SET status = 'ABANDONED' WHERE id = ? AND status IN ('PENDING', 'FAILED')", id)
		})
	}
	return true
}

// update changes a row's status, and what has to become of it once that is
// known to have happened. Doing it twice does no harm.
func (p *producer) update(r *row, f fate, statement, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	if _, err := p.db.ExecContext(ctx, statement, id); err != nil {
		return err
	}
	p.ledger.decide(r, f)
	return nil
}

// statementTimeout bounds a statement: the database may be paused or held.
const statementTimeout = 20 * time.Second

// basket is a transaction under way. Its first error stays.
type basket struct {
	producer *producer
	conn     *sql.Conn
	number   uint64
	xid      string
	rows     []*row
	undone   int    // rows taken back to a savepoint
	lastID   string // of the row that was inserted last
	back     bool   // an XA transaction that is to be rolled back
	err      error
}

// begin opens a transaction on a session that is set up by chance.
func (p *producer) begin(statement string) (*basket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	b := &basket{producer: p, conn: conn, number: p.ids.Add(1)}
	images := []string{"FULL", "FULL", "FULL", "MINIMAL", "NOBLOB"}
	level := "READ COMMITTED" // a prepared transaction that holds gaps would hold up everybody
	if statement != "" && p.random.IntN(2) == 0 {
		level = "REPEATABLE READ"
	}
	b.exec("SET SESSION binlog_row_image = '" + images[p.random.IntN(len(images))] + "'")
	b.exec("SET SESSION TRANSACTION ISOLATION LEVEL " + level)
	b.exec("SET SESSION innodb_lock_wait_timeout = 1")
	if statement != "" {
		b.exec(statement)
		b.witness()
	}
	if b.err != nil {
		b.abandon()
		return nil, b.err
	}
	return b, nil
}

// witness writes the row by which the transaction is looked up: outbox rows may
// be gone as soon as they are sent.
func (b *basket) witness() { b.exec("INSERT INTO business (id) VALUES (?)", b.number) }

func (b *basket) exec(statement string, args ...any) {
	if b.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	_, b.err = b.conn.ExecContext(ctx, statement, args...)
}

func (b *basket) insert(t *table) {
	p := b.producer
	key := fmt.Sprint(p.number*keysPerTable + p.random.IntN(keysPerTable))
	kinds := []string{"ok.created", "ok.settled"}
	b.insertKeyed(t, key, kinds[p.random.IntN(len(kinds))])
}

func (b *basket) insertKeyed(t *table, key, kind string, more ...any) *row {
	p := b.producer
	b.lastID = t.rowID(p.ids.Add(1))
	b.exec(t.insert, append([]any{b.lastID, key, kind, t.body(p.random)}, more...)...)
	if t.ordering == "none" {
		key = ""
	}
	r := &row{id: t.messageID(b.lastID), table: t, key: key, body: b.shown(t)}
	b.rows = append(b.rows, r)
	return r
}

// shown is the body as SELECT shows it, which is what has to arrive.
func (b *basket) shown(t *table) (sum [sha256.Size]byte) {
	if b.err != nil {
		return sum
	}
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	var body []byte
	b.err = b.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s = ?", t.column, t.name, t.id), b.lastID).Scan(&body)
	return sha256.Sum256(body)
}

func (b *basket) sent(at time.Time) {
	for _, r := range b.rows {
		r.committed = at
	}
}

// end gives the session back.
func (b *basket) end() {
	if b.conn == nil {
		return
	}
	if b.err != nil {
		b.abandon()
		return
	}
	_ = b.conn.Close() // back to the pool
	b.conn = nil
}

// abandon ends the session, and with it what it has not committed.
func (b *basket) abandon() {
	if b.conn == nil {
		return
	}
	_ = b.conn.Raw(func(any) error { return errBroken })
	_ = b.conn.Close()
	b.conn = nil
}

var errBroken = fmt.Errorf("give up the session: %w", driver.ErrBadConn)

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
