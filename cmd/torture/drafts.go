package main

import (
	"context"
	"fmt"
	"time"
)

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
