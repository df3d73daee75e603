package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// benchTable is an outbox table as most look, with its configuration.
func benchTable(b testing.TB) (*configs.Table, *canal.Table, canal.Row) {
	c, err := configs.Parse("bench.yaml", []byte(`name: bench
source: {address: "127.0.0.1:3306", user: u}
broker: {urls: ["amqp://u:p@127.0.0.1/"]}
tables:
  - table: shop.outbox
    columns: {id: id, key: aggregate, body: payload}
    publish: {exchange: orders, routing_key: "order.{type}", type: "{type}", content_type: application/json, headers: {tenant: "{tenant}"}}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT}
`), func(string) (string, bool) { return "", false })
	if err != nil {
		b.Fatal(err)
	}
	shape := &canal.Table{TableName: canal.TableName{Schema: "shop", Name: "outbox"}, Primary: []int{0}, Columns: []canal.Column{
		{Name: "id", Type: "bigint", Integer: true}, {Name: "aggregate", Type: "varchar"}, {Name: "type", Type: "varchar"},
		{Name: "payload", Type: "json"}, {Name: "tenant", Type: "int", Integer: true}, {Name: "status", Type: "varchar"},
	}}
	row := canal.Row{Table: shape, Values: [][]byte{[]byte("1234567"), []byte("order-42"), []byte("created"),
		[]byte(fmt.Sprintf(`{"text": "%s"}`, strings.Repeat("x", 288))), []byte("7"), []byte("PENDING")}}
	return &c.Tables[0], shape, row
}

func BenchmarkMap(b *testing.B) {
	c, shape, row := benchTable(b)
	m, err := compileMapping(c, shape, 1)
	if err != nil {
		b.Fatal(err)
	}
	t := &table{name: shape.TableName, config: c}
	b.ReportAllocs()
	for b.Loop() {
		e := &entry{table: t, mapping: m, commit: time.Time{}}
		m.entry(&row, e)
		if e.fault != nil {
			b.Fatal(e.fault.reason)
		}
	}
}
