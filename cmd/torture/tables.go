package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// table is one outbox table: how it is made, written, relayed and found empty.
type table struct {
	label    string
	name     string
	ddl      string // a statement, or a file of deploy/sql
	insert   string // takes id, key, kind and body; of drafts also status and deliver_at
	ordering string // strict, fast or none
	body     func(*rand.Rand) any
	column   string // of the body
	id       string // column that the inserted id is in
	message  string // message id, with {id}
	yaml     string // of the configuration, without table, name, ordering, retry
	unsent   string // condition on rows that should not be left; "" when all rows stay
	alters   bool   // its columns change meanwhile
	uuid     bool   // its ids are UUIDs
}

const statusLines = "    after_publish: mark\n    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED%s}\n"

var tables = []*table{
	{
		label: "bills", name: "ss_bill_outbox", ddl: "practice-a-bills.sql", ordering: "strict", body: jsonBody, column: "payload", id: "id", message: "bill-{id}",
		insert: "INSERT INTO ss_bill_outbox (id, bill_id, event_type, payload) VALUES (?, ?, ?, ?)",
		yaml: `    columns: {id: "bill-{id}", key: bill_id, body: payload}
    publish: {exchange: torture, routing_key: "bills.{event_type}", type: "{event_type}", content_type: application/json, headers: {bill_id: "{bill_id}"}, timestamp: created_at}
` + fmt.Sprintf(statusLines, ", withdrawn: [ABANDONED], processing: PROCESSING, locked_until: locked_until, attempts: retry_count, next_attempt_at: next_retry_at"),
		unsent: "status NOT IN ('SENT', 'ABANDONED')",
	},
	{
		label: "orders", name: "biz_outbox", ddl: "practice-b-orders.sql", ordering: "strict", body: jsonBody, column: "payload", id: "msg_id", message: "{id}",
		insert: "INSERT INTO biz_outbox (msg_id, biz_id, biz_type, payload) VALUES (?, ?, ?, ?)",
		yaml: `    columns: {id: msg_id, key: biz_id, body: payload}
    publish: {exchange: torture, routing_key: "orders.{biz_type}", type: "{biz_type}", content_type: application/json, headers: {biz_id: "{biz_id}"}, timestamp: created_at}
    after_publish: mark
    status: {column: status, pending: 0, sent: 1, failed: 9, sent_at: sent_at, attempts: retry_count, next_attempt_at: next_retry_time}
`,
		unsent: "status <> 1",
	},
	{
		label: "payments", name: "outbox_event", ddl: "practice-c-payments.sql", ordering: "strict", body: jsonBody, column: "payload", id: "event_id", message: "{id}", uuid: true,
		insert: "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, payment_id) VALUES (?, ?, ?, ?, event_id)",
		yaml: `    columns: {id: event_id, key: aggregate_id, body: payload}
    publish: {exchange: torture, routing_key: "payments.{event_type}", type: "{event_type}", content_type: application/json, headers: {payload_version: "{payload_version}"}, timestamp: created_at}
` + fmt.Sprintf(statusLines, ", processing: PROCESSING, locked_until: lease_expires_at, attempts: attempts, next_attempt_at: next_attempt_at"),
		unsent: "status <> 'SENT'",
	},
	plain("tasks", "strict", "delete", "LONGBLOB", blobBody),
	plain("files", "fast", "delete", "LONGBLOB", blobBody),
	plain("letters", "fast", "mark", "TEXT CHARACTER SET latin1", latinBody),
	plain("notes", "none", "keep", "TEXT CHARACTER SET latin1", latinBody),
	plain("facts", "strict", "keep", "JSON", jsonBody),
	drafts,
}

// drafts is the table of rows that are not to be sent at once, or at all.
var drafts = &table{
	label: "drafts", name: "draft_outbox", ordering: "none", body: jsonBody, column: "body", id: "id", message: "drafts-{id}",
	ddl: `CREATE TABLE draft_outbox (id BIGINT PRIMARY KEY, k VARCHAR(40) NOT NULL, kind VARCHAR(40) NOT NULL, body JSON NOT NULL,
		status VARCHAR(12) NOT NULL DEFAULT 'PENDING', deliver_at DATETIME(3) NULL, KEY by_status (status, id))`,
	insert: "INSERT INTO draft_outbox (id, k, kind, body, status, deliver_at) VALUES (?, ?, ?, ?, ?, ?)",
	yaml: `    columns: {id: "drafts-{id}", body: body}
    publish: {exchange: torture, routing_key: "drafts.{kind}"}
    deliver_at: deliver_at
` + fmt.Sprintf(statusLines, ", withdrawn: [ABANDONED]"),
	unsent: "status NOT IN ('SENT', 'ABANDONED')",
}

// plain is a table of the simplest form.
func plain(label, ordering, after, columnType string, body func(*rand.Rand) any) *table {
	t := &table{label: label, name: label + "_outbox", ordering: ordering, body: body, column: "body", id: "id", message: label + "-{id}", alters: true}
	t.ddl = fmt.Sprintf(`CREATE TABLE %s (id BIGINT PRIMARY KEY, k VARCHAR(40) NOT NULL, kind VARCHAR(40) NOT NULL, body %s NULL,
		status VARCHAR(12) NOT NULL DEFAULT 'PENDING', KEY by_status (status, id))`, t.name, columnType)
	t.insert = fmt.Sprintf("INSERT INTO %s (id, k, kind, body) VALUES (?, ?, ?, ?)", t.name)
	t.yaml = fmt.Sprintf(`    columns: {id: "%s-{id}", key: k, body: body}
    publish: {exchange: torture, routing_key: "%[1]s.{kind}", headers: {kind: "{kind}"}}
`, label)
	switch after {
	case "mark":
		t.yaml += fmt.Sprintf(statusLines, "")
		t.unsent = "status <> 'SENT'"
	case "delete":
		t.yaml += "    after_publish: delete\n"
		t.unsent = "TRUE"
	case "keep":
		t.yaml += "    after_publish: keep\n    start: now\n"
	}
	return t
}

// statement reads the table's definition.
func (t *table) statement(root string) (string, error) {
	if !strings.HasSuffix(t.ddl, ".sql") {
		return t.ddl, nil
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "sql", t.ddl))
	return string(text), err
}

// rowID is the id of the nth row as it is inserted.
func (t *table) rowID(n uint64) string {
	if t.uuid {
		return fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n)
	}
	return fmt.Sprint(n)
}

func (t *table) messageID(rowID string) string { return strings.ReplaceAll(t.message, "{id}", rowID) }

// jsonBody is a document that a server does not keep as it was written.
func jsonBody(r *rand.Rand) any {
	return fmt.Sprintf(`{"z": %d, "amount":%d.%02d,"text":"grün 漢字 \u20ac \"%s\"", "list":[1,2.50,null,true,{"b":1,"a":-%d}], "e":1.5e%d}`,
		r.IntN(1000), r.IntN(100000), r.IntN(100), strings.Repeat("x", size(r)), r.IntN(1<<30), r.IntN(20))
}

func blobBody(r *rand.Rand) any {
	if r.IntN(50) == 0 {
		return nil
	}
	b := make([]byte, size(r))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func latinBody(r *rand.Rand) any {
	return "Müßiggang für 5 € – " + strings.Repeat("é", size(r)/4)
}

// size is mostly small, and now and then large.
func size(r *rand.Rand) int {
	switch n := r.IntN(1000); {
	case n < 5:
		return 100_000 + r.IntN(100_000)
	case n < 50:
		return 2000 + r.IntN(10_000)
	}
	return r.IntN(300)
}
