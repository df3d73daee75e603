package main

import (
	"context"
	"database/sql"
	"errors"
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

const (
	keysPerTable = 5   // of one producer
	largest      = 250 // rows of a transaction
)

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
		n = largest - p.random.IntN(200)
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

func isNumber(err error, number uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == number
}

// statementTimeout bounds a statement: the database may be paused or held.
const statementTimeout = 20 * time.Second

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
