package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// shop commits orders, each with its outbox rows in the same transaction. Some
// transactions are rolled back, some only in part, to a savepoint.
type shop struct {
	db   *sql.DB
	note func(func(*demo))
	rate float64 // transactions a second, of all workers
	ids  atomic.Uint64
}

const (
	shopWorkers = 3
	customers   = 60
)

// The three outbox tables show three ways to keep one.
var shopTables = []string{
	`CREATE TABLE orders (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, cents INT NOT NULL)`,
	`CREATE TABLE order_outbox (
		id BIGINT UNSIGNED PRIMARY KEY, customer INT NOT NULL, event_type VARCHAR(40) NOT NULL, payload JSON NOT NULL,
		status VARCHAR(12) NOT NULL DEFAULT 'PENDING', sent_at DATETIME(6) NULL, KEY by_status (status, id))`,
	`CREATE TABLE payment_outbox (
		event_id BIGINT UNSIGNED PRIMARY KEY, account VARCHAR(20) NOT NULL, payload JSON NOT NULL)`,
	`CREATE TABLE mail_outbox (
		id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, msg_id BIGINT UNSIGNED NOT NULL UNIQUE, template VARCHAR(40) NOT NULL,
		body TEXT NOT NULL, state TINYINT NOT NULL DEFAULT 0, KEY by_state (state, id))`,
}

// run commits until ctx ends; no transaction is then left open.
func (s *shop) run(ctx context.Context) error {
	var wg sync.WaitGroup
	failed := make([]error, shopWorkers)
	for w := range shopWorkers {
		wg.Go(func() { failed[w] = s.work(ctx, w) })
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return fmt.Errorf("commit an order: %w", err)
		}
	}
	return nil
}

// work serves the customers that are this worker's alone, so that the order of
// each customer's commits is known.
func (s *shop) work(ctx context.Context, worker int) error {
	every := time.NewTicker(time.Duration(float64(time.Second) * shopWorkers / s.rate))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := s.order(worker + shopWorkers*rand.IntN(customers/shopWorkers)); err != nil {
			return err
		}
	}
}

// order is one transaction. It is never cut short, so that its end is known.
func (s *shop) order(customer int) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	b := basket{tx: tx, shop: s, customer: customer}
	cents := 100 + rand.IntN(100_000)
	b.exec("INSERT INTO orders (customer, cents) VALUES (?, ?)", customer, cents)
	b.orderEvent("order.created", cents)
	if rand.IntN(100) < 20 { // the customer takes a gift and gives it back
		b.exec("SAVEPOINT gift")
		first := len(b.rows)
		b.orderEvent("order.gift", cents)
		b.mail("gift")
		b.exec("ROLLBACK TO SAVEPOINT gift")
		b.undone, b.rows = append(b.undone, b.rows[first:]...), b.rows[:first:first]
	}
	if rand.IntN(100) < 60 {
		b.payment(cents)
	}
	if rand.IntN(100) < 40 {
		b.mail("thanks")
	}
	var refused *mysql.MySQLError
	deadlock := errors.As(b.err, &refused) && refused.Number == 1213
	if b.err != nil && !deadlock {
		return b.err
	}
	s.note(func(d *demo) {
		d.ledger.open(append(b.rows[:len(b.rows):len(b.rows)], b.undone...))
		d.ledger.undo(b.undone)
	})
	// After rollbacks two orders can meet in a gap; the server then takes one back.
	if deadlock || rand.IntN(100) < 15 {
		if err := tx.Rollback(); err != nil {
			return err
		}
		s.note(func(d *demo) {
			d.ledger.undo(b.rows)
			d.ledger.rolledBackTransactions++
		})
		return nil
	}
	sent := time.Now()
	if err := tx.Commit(); err != nil {
		return err
	}
	s.note(func(d *demo) {
		d.ledger.commit(b.rows, sent)
		d.ledger.transactions++
	})
	return nil
}

// basket is a transaction under way. Its first error stays.
type basket struct {
	tx       *sql.Tx
	shop     *shop
	customer int
	rows     []row
	undone   []row // taken back to a savepoint
	err      error
}

func (b *basket) exec(statement string, args ...any) {
	if b.err == nil {
		_, b.err = b.tx.Exec(statement, args...)
	}
}

func (b *basket) insert(key, statement string, args ...any) {
	r := row{id: b.shop.ids.Add(1), key: key}
	b.exec(statement, append([]any{r.id}, args...)...)
	b.rows = append(b.rows, r)
}

func (b *basket) orderEvent(kind string, cents int) {
	b.insert("order/"+strconv.Itoa(b.customer), "INSERT INTO order_outbox (id, customer, event_type, payload) VALUES (?, ?, ?, ?)",
		b.customer, kind, fmt.Sprintf(`{"customer": %d, "cents": %d, "note": "zwölf 十二"}`, b.customer, cents))
}

func (b *basket) payment(cents int) {
	account := "account-" + strconv.Itoa(b.customer)
	b.insert("payment/"+account, "INSERT INTO payment_outbox (event_id, account, payload) VALUES (?, ?, ?)",
		account, fmt.Sprintf(`{"account": %q, "cents": %d}`, account, cents))
}

func (b *basket) mail(template string) {
	b.insert("", "INSERT INTO mail_outbox (msg_id, template, body) VALUES (?, ?, ?)", template, "Dear customer, ...")
}
