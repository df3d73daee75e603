package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"
)

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
