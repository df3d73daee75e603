package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay/outbox"
)

// An order and the message that announces it commit together.
func ExampleTable_Insert() {
	db, end := shop()
	defer end()
	ctx := context.Background()

	place := func(order string, total int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, total) VALUES (?, ?)", order, total); err != nil {
			return err
		}
		_, err = outbox.Orders().Insert(ctx, tx, outbox.Message{
			Key: order, Type: "order.created", Body: fmt.Appendf(nil, `{"id": %q, "total": %d}`, order, total),
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := place("4711", 12); err != nil {
		log.Fatal(err)
	}
	var announced string
	if err := db.QueryRow("SELECT biz_type FROM biz_outbox WHERE biz_id='4711'").Scan(&announced); err != nil {
		log.Fatal(err)
	}
	fmt.Println(announced)
	// Output: order.created
}

// A payment is captured once, and its event is written once.
func ExampleTable_Transition() {
	db, end := shop()
	defer end()
	ctx := context.Background()

	capture := func(payment string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		_, err = outbox.Payments().Transition(ctx, tx, outbox.Message{
			Key: payment, Type: "CAPTURED", Body: []byte(`{}`), More: map[string]any{"payment_id": payment},
		}, "UPDATE payment SET state='CAPTURED' WHERE id=? AND state='AUTHORIZED'", payment)
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(capture("p1"))
	fmt.Println(errors.Is(capture("p1"), outbox.ErrNotInState))
	// Output:
	// <nil>
	// true
}

// A table of one's own, with a tenant, in a schema of its own.
func ExampleTable() {
	db, end := shop()
	defer end()
	ctx := context.Background()
	events := outbox.Table{Name: "shop.event", ID: "uid", Key: "subject", Body: "data"}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	id, err := events.Insert(ctx, tx, outbox.Message{Key: "cart-1", Body: []byte("text"), More: map[string]any{"tenant": "eu"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(id))
	// Output: 36
}

// shop starts a server with the tables of the examples.
func shop() (db *sql.DB, end func()) {
	server, err := lab.StartMySQL(context.Background(), lab.MySQLOptions{Kind: lab.MariaDB1011})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := server.RootDB().Exec("CREATE DATABASE shop"); err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("mysql", server.DSN("shop", "multiStatements=true")); err != nil {
		log.Fatal(err)
	}
	statements := `CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY, total INT NOT NULL);
		CREATE TABLE payment (id VARCHAR(20) PRIMARY KEY, state VARCHAR(20) NOT NULL); INSERT INTO payment VALUES ('p1', 'AUTHORIZED');
		CREATE TABLE event (uid CHAR(36) PRIMARY KEY, subject VARCHAR(40) NOT NULL, tenant VARCHAR(8) NOT NULL, data TEXT);`
	for _, file := range []string{"practice-b-orders", "practice-c-payments"} {
		ddl, err := os.ReadFile("../../deploy/sql/" + file + ".sql")
		if err != nil {
			log.Fatal(err)
		}
		statements += string(ddl)
	}
	if _, err := db.Exec(statements); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = server.Close()
	}
}
