package reconcile_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
	"github.com/towpath/towpath/relay"
	"github.com/towpath/towpath/relay/inbox"
	"github.com/towpath/towpath/relay/reconcile"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// onBoth runs a test with the outbox on one kind of server and the inbox on the other.
func onBoth(t *testing.T, config, ddl string, test func(*testing.T, *rig)) {
	for _, kinds := range [][2]lab.Kind{{lab.MySQL97, lab.MariaDB1011}, {lab.MariaDB1011, lab.MySQL97}} {
		t.Run("outbox on "+string(kinds[0]), func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, kinds[0], kinds[1], config, ddl))
		})
	}
}

type rig struct {
	t        *testing.T
	schema   string
	db       *sql.DB // of the outbox
	inbox    *sql.DB
	config   *configs.Config
	table    string
	source   *sql.DB // as the command connects
	records  reconcile.Inbox
	now      time.Time
	expected map[string]reconcile.Class
	options  reconcile.Options
}

func newRig(t *testing.T, outboxKind, inboxKind lab.Kind, config, ddl string) *rig {
	t.Helper()
	r := &rig{t: t, expected: map[string]reconcile.Class{}}
	server, other := labtest.MySQL(t, lab.MySQLOptions{Kind: outboxKind}), labtest.MySQL(t, lab.MySQLOptions{Kind: inboxKind})
	r.schema, r.db = labtest.DB(t, server)
	var schema string
	schema, r.inbox = labtest.DB(t, other)
	for db, file := range map[*sql.DB]string{r.db: ddl, r.inbox: "inbox.sql"} {
		text, err := os.ReadFile("../../deploy/sql/" + file)
		if err != nil {
			t.Fatal(err)
		}
		r.exec(db, string(text))
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer("ADDRESS", server.Addr(), "SCHEMA", r.schema).Replace(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.config, err = configs.Load(path); err != nil {
		t.Fatal(err)
	}
	r.table = r.config.Tables[0].Tables[0].String()
	connect := func(s *lab.MySQLServer) *sql.DB {
		db := checkpoint.Connect(checkpoint.Endpoint{Address: s.Addr(), User: "root"}, checkpoint.Session{IdleTimeout: time.Minute})
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	r.source = connect(server)
	r.records = reconcile.Inbox{DB: connect(other), Table: schema + ".towpath_inbox", Consumer: "stock"}
	r.now = time.Now().UTC()
	r.options = reconcile.Options{From: r.now.Add(-24 * time.Hour), Settle: 10 * time.Minute, CompleteSince: r.now.Add(-48 * time.Hour), SpoolDir: t.TempDir()}
	return r
}

func (r *rig) exec(db *sql.DB, query string, args ...any) {
	r.t.Helper()
	if _, err := db.ExecContext(r.t.Context(), query, args...); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
}

// ago is a time in SQL.
func (r *rig) ago(age time.Duration) string {
	return r.now.Add(-age).Format("2006-01-02 15:04:05.000000")
}

const header = `name: x
source: {address: "ADDRESS", user: root}
broker: {urls: ["amqp://guest:guest@127.0.0.1:1/x"]}
`

const orders = header + `tables:
  - table: SCHEMA.biz_outbox
    columns: {id: msg_id, key: biz_id, body: payload}
    publish: {exchange: orders, routing_key: "{biz_type}", type: "{biz_type}", timestamp: created_at}
    where: {biz_type: {not: [debug]}}
    after_publish: mark
    status: {column: status, pending: 0, sent: 1, failed: 9, sent_at: sent_at}
    retention: {sent_for: 168h, archive_to: SCHEMA.biz_outbox_history}
`

// order writes an outbox row.
func (r *rig) order(id, kind string, status int, age time.Duration) {
	r.t.Helper()
	r.exec(r.db, "INSERT INTO biz_outbox (msg_id, biz_type, biz_id, payload, status, created_at) VALUES (?,?,'1',?,?,?)", id, kind, `{"id": "`+id+`"}`, status, r.ago(age))
}

// processed writes a record.
func (r *rig) processed(id, kind, body string, age time.Duration) {
	r.t.Helper()
	content := inbox.Content(kind, []byte(body))
	r.exec(r.inbox, "INSERT INTO towpath_inbox (consumer, message_id, content, processed_at) VALUES ('stock',?,?,?)", []byte(id), content[:], r.ago(age))
}

func body(id string) string { return `{"id": "` + id + `"}` }

// run reconciles and compares the differences with what is expected.
func (r *rig) run() reconcile.Summary {
	r.t.Helper()
	sent, err := relay.OpenSent(r.t.Context(), r.config, r.source, r.table, "")
	if err != nil {
		r.t.Fatal(err)
	}
	found := map[string]reconcile.Class{}
	s, err := reconcile.Run(r.t.Context(), sent, r.records, r.options, func(d reconcile.Difference) error {
		if _, twice := found[d.MessageID]; twice {
			r.t.Errorf("%s is reported twice", d.MessageID)
		}
		found[d.MessageID] = d.Class
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for id, class := range r.expected {
		if found[id] != class {
			r.t.Errorf("%s is found to be %q, want %q", id, found[id], class)
		}
	}
	for id, class := range found {
		if r.expected[id] == "" {
			r.t.Errorf("%s is found to be %s and is nothing of the kind", id, class)
		}
	}
	if s.Clean() != (len(r.expected)+int(s.Unjudged) == 0) {
		r.t.Errorf("clean: %v", s.Clean())
	}
	return s
}

func TestEveryDifferenceIsFoundAndNothingElse(t *testing.T) {
	onBoth(t, orders, "practice-b-orders.sql", func(t *testing.T, r *rig) {
		const created = "order.created"
		fine := func(id string, status int, written, done time.Duration) {
			r.order(id, created, status, written)
			r.processed(id, created, body(id), done)
		}
		fine("a", 1, time.Hour, time.Hour-time.Second)
		fine("B", 1, time.Hour, time.Minute) // processed late
		fine("É", 2, 20*time.Hour, 19*time.Hour)
		fine("before the range", 1, 25*time.Hour, 23*time.Hour)
		fine("not yet marked as sent", 0, time.Hour, time.Hour)
		fine("after the range", 1, time.Minute, time.Second)
		r.exec(r.db, "INSERT INTO biz_outbox_history SELECT * FROM biz_outbox WHERE msg_id IN ('before the range', 'B')")
		r.exec(r.db, "DELETE FROM biz_outbox WHERE msg_id IN ('before the range', 'B')")
		for i, status := range []int{0, 9} {
			r.order(fmt.Sprint("unsent ", i), created, status, time.Hour)
		}
		r.order("filtered", "debug", 1, time.Hour)
		r.order("within the settle time", created, 1, time.Minute)
		r.order("too old", created, 1, 25*time.Hour)

		r.order("lost", created, 1, time.Hour)
		r.order("zlast", created, 2, time.Hour)
		r.order("other body", created, 1, time.Hour)
		r.processed("other body", created, "{}", time.Hour)
		r.order("other type", created, 1, time.Hour)
		r.processed("other type", "order.deleted", body("other type"), time.Hour)
		r.processed("invented", created, "{}", time.Hour)
		r.processed("0", created, "{}", 30*time.Minute)
		r.processed("invented long ago", created, "{}", 30*time.Hour)
		r.exec(r.inbox, "INSERT INTO towpath_inbox SELECT 'other consumer', 'lost', content, processed_at FROM towpath_inbox WHERE message_id='a'")
		r.expected = map[string]reconcile.Class{"lost": reconcile.Missing, "zlast": reconcile.Missing, "other body": reconcile.Different,
			"other type": reconcile.Different, "invented": reconcile.Unknown, "0": reconcile.Unknown}
		s := r.run()
		if s.Sent != 7 || s.Processed != 3 || s.Unsent != 4 || s.Unjudged != 0 || s.Marked != 0 {
			t.Errorf("summary %+v", s)
		}
	})
}

func TestWhatIsOlderThanTheInboxIsCountedAndNotCalledMissing(t *testing.T) {
	onBoth(t, orders, "practice-b-orders.sql", func(t *testing.T, r *rig) {
		r.options.CompleteSince = time.Time{}
		r.order("old", "x", 1, 5*time.Hour)
		r.order("young", "x", 1, time.Hour)
		if s := r.run(); s.Unjudged != 2 {
			t.Errorf("an empty inbox proves something: %+v", s)
		}
		r.order("oldest processed", "x", 1, 3*time.Hour)
		r.processed("oldest processed", "x", body("oldest processed"), 3*time.Hour+time.Second)
		r.expected = map[string]reconcile.Class{"young": reconcile.Missing}
		if s := r.run(); s.Unjudged != 1 {
			t.Errorf("summary %+v", s)
		}
		r.options.CompleteSince = r.now.Add(-30 * time.Hour)
		r.expected["old"] = reconcile.Missing
		if s := r.run(); s.Unjudged != 0 {
			t.Errorf("summary %+v", s)
		}
	})
}

func TestRowsThatWereSentAndProcessedAloneAreOfferedAsDone(t *testing.T) {
	onBoth(t, orders, "practice-b-orders.sql", func(t *testing.T, r *rig) {
		for id, status := range map[string]int{"sent": 1, "done": 2, "failed": 9, "missing": 1} {
			r.order(id, "x", status, time.Hour)
			if id != "missing" {
				r.processed(id, "x", body(id), time.Hour)
			}
		}
		r.order("different", "x", 1, time.Hour)
		r.processed("different", "x", "{}", time.Hour)
		r.expected = map[string]reconcile.Class{"missing": reconcile.Missing, "different": reconcile.Different}
		var offered []string
		r.options.Done = func(keys []string) (int64, error) {
			offered = append(offered, keys...)
			return int64(len(keys)), nil
		}
		if s := r.run(); s.Marked != 1 || s.Processed != 2 {
			t.Errorf("summary %+v", s)
		}
		sent, err := relay.OpenSent(t.Context(), r.config, r.source, r.table, "")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		if err := sent.Rows(t.Context(), r.now.Add(-2*time.Hour), r.now, func(row relay.SentRow) error {
			if slices.Contains(offered, row.Key) {
				ids = append(ids, row.ID)
			}
			return nil
		}); err != nil || !slices.Equal(ids, []string{"sent"}) || len(offered) != 1 {
			t.Errorf("offered %v of %d keys, %v", ids, len(offered), err)
		}
		for _, taken := range []string{"0", "1", "9", ""} {
			if sent.CheckDone(taken) == nil {
				t.Errorf("%q is taken for done", taken)
			}
		}
	})
}

// Ids that are made of numbers sort otherwise as text than their rows do.
func TestIDsMadeFromRowNumbersMatch(t *testing.T) {
	onBoth(t, header+`tables:
  - table: SCHEMA.ss_bill_outbox
    columns: {id: "bill-{id}", key: bill_id, body: payload}
    publish: {exchange: bills, routing_key: "x", type: "{event_type}", timestamp: created_at}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED, withdrawn: [ABANDONED]}
`, "practice-a-bills.sql", func(t *testing.T, r *rig) {
		for i := 1; i <= 120; i++ {
			status := "SENT"
			if i%40 == 0 {
				status = "ABANDONED"
			}
			r.exec(r.db, "INSERT INTO ss_bill_outbox (id, bill_id, event_type, payload, status, created_at) VALUES (?,?,'settled','{}',?,?)", i, i, status, r.ago(time.Hour))
			if i != 9 && i != 100 && i%40 != 0 {
				r.processed(fmt.Sprint("bill-", i), "settled", "{}", time.Hour)
			}
		}
		for _, id := range []string{"bill-", "bill-x", "bill-121", "bill-01", "other"} {
			r.processed(id, "settled", "{}", time.Hour)
			r.expected[id] = reconcile.Unknown
		}
		r.processed("bill-40", "settled", "{}", time.Hour) // was sent before it was withdrawn
		r.expected["bill-9"], r.expected["bill-100"] = reconcile.Missing, reconcile.Missing
		if s := r.run(); s.Processed != 115 || s.Unsent != 3 {
			t.Errorf("summary %+v", s)
		}
	})
}

func TestRandomTablesAreAccountedForExactly(t *testing.T) {
	onBoth(t, header+`tables:
  - table: SCHEMA.event
    columns: {id: "{id:uuid_swapped}", body: data}
    publish: {exchange: x, routing_key: "x", timestamp: at}
    after_publish: keep
    start: now
`, "inbox.sql", func(t *testing.T, r *rig) {
		r.exec(r.db, "CREATE TABLE event (id BINARY(16) PRIMARY KEY, data BLOB, at INT NOT NULL)")
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		var rows, records []string
		var rowArgs, recordArgs []any
		add := func(id string, stored []byte, row, record bool, data string) {
			if row {
				rows, rowArgs = append(rows, "(?,?,?)"), append(rowArgs, stored, "data", r.now.Add(-time.Hour).Unix())
			}
			if record {
				content := inbox.Content("", []byte(data))
				records, recordArgs = append(records, "('stock',?,?,?)"), append(recordArgs, []byte(id), content[:], r.ago(30*time.Minute))
			}
		}
		for range 6000 {
			b := make([]byte, 16)
			for i := range b {
				b[i] = byte(random.IntN(256))
			}
			shown := slices.Concat(b[4:8], b[2:4], b[0:2], b[8:])
			id := fmt.Sprintf("%x-%x-%x-%x-%x", shown[:4], shown[4:6], shown[6:8], shown[8:10], shown[10:])
			switch random.IntN(20) {
			case 0:
				add(id, b, true, false, "")
				r.expected[id] = reconcile.Missing
			case 1:
				add(id, b, false, true, "data")
				r.expected[id] = reconcile.Unknown
			case 2:
				add(id, b, true, true, "other")
				r.expected[id] = reconcile.Different
			default:
				add(id, b, true, true, "data")
			}
		}
		for chunk := range slices.Chunk(rows, 1000) {
			r.exec(r.db, "INSERT INTO event VALUES "+strings.Join(chunk, ","), rowArgs[:3*len(chunk)]...)
			rowArgs = rowArgs[3*len(chunk):]
		}
		for chunk := range slices.Chunk(records, 1000) {
			r.exec(r.inbox, "INSERT INTO towpath_inbox VALUES "+strings.Join(chunk, ","), recordArgs[:3*len(chunk)]...)
			recordArgs = recordArgs[3*len(chunk):]
		}
		r.run()
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
}
