package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/rabbit/consumer"
)

// A service credits an account once for each message, however often it comes.
func ExampleNew() {
	db, end := bank()
	defer end()
	in, err := inbox.New(db, inbox.Config{
		Consumer: "bank", Queue: "payments",
		Metrics: prometheus.NewRegistry(),
		Delays:  []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour},
		Handler: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			result, err := tx.ExecContext(ctx, "UPDATE account SET balance=balance+1 WHERE id=?", string(m.Body))
			if err != nil {
				return err // tried again later
			}
			if n, err := result.RowsAffected(); err != nil || n == 0 {
				return inbox.Permanent(errors.Join(errors.New("no such account"), err)) // no retry can mend it
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// A service runs it until it is told to stop:
	//
	//	err := consumer.Run(ctx, consumer.Config{URLs: []string{"amqps://bank@mq1/shop", "amqps://bank@mq2/shop"}}, in)
	//
	// What happens to one message:
	m := inbox.Message{ID: "0197-4711", Type: "payment.captured", Body: []byte("1")}
	for range 2 {
		outcome, err := in.Once(context.Background(), m)
		fmt.Println(outcome, err)
	}
	m.Body = []byte("2")
	_, err = in.Once(context.Background(), m)
	fmt.Println(errors.Is(err, inbox.ErrDifferentContent))
	// Output:
	// applied <nil>
	// duplicate <nil>
	// true
}

// A service with an AMQP connection of its own hands deliveries over as they
// are. The publisher is its own, too: it must wait for confirms.
func ExampleInbox_Run() {
	var (
		in        *inbox.Inbox
		publisher inbox.Publisher
		messages  <-chan amqp.Delivery
	)
	serve := func(ctx context.Context) {
		deliveries := make(chan inbox.Delivery)
		go func() {
			defer close(deliveries)
			for m := range messages {
				deliveries <- consumer.Delivery(m)
			}
		}()
		in.Run(ctx, deliveries, publisher)
	}
	_ = serve
}

// bank starts a server with an account and an inbox.
func bank() (db *sql.DB, end func()) {
	server, err := lab.StartMySQL(context.Background(), lab.MySQLOptions{Kind: lab.MariaDB1011})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := server.RootDB().Exec("CREATE DATABASE bank"); err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("mysql", server.DSN("bank", "multiStatements=true")); err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	ddl, err := os.ReadFile("../../deploy/sql/inbox.sql")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(string(ddl) + "CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL); INSERT INTO account VALUES (1, 0)"); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = server.Close()
	}
}
