package main

import (
	"context"
	"fmt"
	"time"
)

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
