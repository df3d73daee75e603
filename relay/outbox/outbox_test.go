package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay/outbox"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// onBoth runs a test on a database of MySQL and of MariaDB that holds the
// practices' tables and one business table.
func onBoth(t *testing.T, test func(*testing.T, *sql.DB)) {
	for _, kind := range []lab.Kind{lab.MySQL97, lab.MariaDB1011} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			_, db := labtest.DB(t, labtest.MySQL(t, lab.MySQLOptions{Kind: kind}))
			for _, file := range []string{"practice-a-bills", "practice-b-orders", "practice-c-payments"} {
				ddl, err := os.ReadFile("../../deploy/sql/" + file + ".sql")
				if err != nil {
					t.Fatal(err)
				}
				exec(t, db, string(ddl))
			}
			exec(t, db, "CREATE TABLE payment (id INT PRIMARY KEY, state VARCHAR(16) NOT NULL); INSERT INTO payment VALUES (1,'NEW'), (2,'NEW')")
			test(t, db)
		})
	}
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// within runs a function in a transaction that commits when it returns nil.
func within(t *testing.T, db *sql.DB, do func(*sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := do(tx); err != nil {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return nil
}

func value(t *testing.T, db *sql.DB, query string, args ...any) (v string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestMessageIsThereIfAndOnlyIfTheTransactionCommits(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		order := outbox.Message{Key: "4711", Type: "order.created", Body: []byte(`{"total": 12}`)}
		var id string
		_ = within(t, db, func(tx *sql.Tx) (err error) {
			id, err = outbox.Orders().Insert(t.Context(), tx, order)
			return err
		})
		if got := value(t, db, "SELECT CONCAT_WS('|', msg_id, biz_type, biz_id, JSON_EXTRACT(payload, '$.total'), status) FROM biz_outbox"); got != id+"|order.created|4711|12|0" {
			t.Errorf("row %q", got)
		}
		failed := errors.New("business says no")
		err := within(t, db, func(tx *sql.Tx) error {
			_, err := outbox.Orders().Insert(t.Context(), tx, order)
			return errors.Join(err, failed)
		})
		if !errors.Is(err, failed) || value(t, db, "SELECT COUNT(*) FROM biz_outbox") != "1" {
			t.Errorf("%v; a message without its business is there", err)
		}
	})
}

func TestReturnedIDIsTheOneThatTheRelaySends(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		_ = within(t, db, func(tx *sql.Tx) error {
			id, err := outbox.Bills().Insert(t.Context(), tx, outbox.Message{Key: "12", Type: "settled", Body: []byte(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			if want := "bill-" + strconvRow(t, tx); id != want {
				t.Errorf("id %q, want %q", id, want)
			}
			kept, err := outbox.Payments().Insert(t.Context(), tx, outbox.Message{ID: "mine", Key: "a", Type: "PAID", Body: []byte(`{}`),
				More: map[string]any{"payment_id": "1", "payload_version": 3}})
			if err != nil || kept != "mine" {
				t.Errorf("id %q, %v", kept, err)
			}
			return err
		})
		if got := value(t, db, "SELECT CONCAT_WS('|', event_id, payment_id, payload_version) FROM outbox_event"); got != "mine|1|3" {
			t.Errorf("row %q", got)
		}
	})
}

func strconvRow(t *testing.T, tx *sql.Tx) (id string) {
	if err := tx.QueryRowContext(t.Context(), "SELECT id FROM ss_bill_outbox").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTransitionWritesItsMessageOnlyForOneChangedRow(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		paid := func(id string) outbox.Message {
			return outbox.Message{Key: id, Type: "PAID", Body: []byte(`{}`), More: map[string]any{"payment_id": id}}
		}
		pay := func(tx *sql.Tx) error {
			_, err := outbox.Payments().Transition(t.Context(), tx, paid("1"), "UPDATE payment SET state='PAID' WHERE id=? AND state='NEW'", 1)
			return err
		}
		if err := within(t, db, pay); err != nil {
			t.Fatal(err)
		}
		if err := within(t, db, pay); !errors.Is(err, outbox.ErrNotInState) {
			t.Errorf("the second transition answers %v", err)
		}
		var many *outbox.TooManyRowsError
		err := within(t, db, func(tx *sql.Tx) error {
			_, err := outbox.Payments().Transition(t.Context(), tx, paid("2"), "UPDATE payment SET state='LOST'")
			return err
		})
		if !errors.As(err, &many) || many.Rows != 2 {
			t.Errorf("a transition of two rows answers %v", err)
		}
		if n := value(t, db, "SELECT COUNT(*) FROM outbox_event"); n != "1" {
			t.Errorf("%s messages, want 1", n)
		}
	})
}

func TestOfManyThatMakeOneTransitionOneWritesAMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		var mu sync.Mutex
		answers := map[string]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = outbox.Payments().Transition(t.Context(), tx, outbox.Message{Key: "2", Type: "PAID", Body: []byte(`{}`),
					More: map[string]any{"payment_id": "2"}}, "UPDATE payment SET state='PAID' WHERE id=2 AND state='NEW'")
				answer := "message"
				if errors.Is(err, outbox.ErrNotInState) {
					answer = "not in state"
				} else if err != nil {
					answer = err.Error()
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				answers[answer]++
				mu.Unlock()
			})
		}
		all.Wait()
		if answers["message"] != 1 || answers["not in state"] != 7 {
			t.Errorf("answers %v", answers)
		}
	})
}

func TestABodyThatIsNoTextGoesToABinaryColumnUnchanged(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		exec(t, db, "CREATE TABLE `odd``name` (`my id` VARCHAR(36) PRIMARY KEY, `body` BLOB)")
		table := outbox.Table{Name: "odd`name", ID: "my id", Body: "body"}
		body := []byte{0, 0xff, '\'', '\\', 0xc3, 0x28}
		if err := within(t, db, func(tx *sql.Tx) error {
			_, err := table.Insert(t.Context(), tx, outbox.Message{Body: body})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got := value(t, db, "SELECT body FROM `odd``name`"); got != string(body) {
			t.Errorf("body %x", got)
		}
	})
}

func TestIDsAscendWithTime(t *testing.T) {
	var ids []string
	for range 1000 {
		id, err := outbox.NewID()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Error("ids are not unique and ascending")
	}
}

// refused is a transaction that must not be used.
type refused struct{}

func (refused) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("was used")
}

func TestWhatWouldWriteNoMessageIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		table outbox.Table
		tx    outbox.Transaction
		m     outbox.Message
		want  string
	}{
		"no transaction":    {outbox.Orders(), &sql.DB{}, outbox.Message{}, "commits on its own"},
		"a bare connection": {outbox.Orders(), &sql.Conn{}, outbox.Message{}, "commits on its own"},
		"no table":          {outbox.Table{ID: "id"}, refused{}, outbox.Message{}, "Name is empty"},
		"no id":             {outbox.Table{Name: "t"}, refused{}, outbox.Message{}, "exactly one"},
		"id of one's own":   {outbox.Bills(), refused{}, outbox.Message{ID: "x"}, "must be empty"},
		"long id":           {outbox.Orders(), refused{}, outbox.Message{ID: strings.Repeat("x", 256)}, "AMQP takes 255"},
		"column twice":      {outbox.Orders(), refused{}, outbox.Message{More: map[string]any{"biz_id": 1}}, "maps already"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.table.Transition(t.Context(), c.tx, c.m, "UPDATE x SET y=1")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, err := c.table.Insert(t.Context(), c.tx, c.m); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
