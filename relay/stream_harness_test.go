package relay

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// A shop is one stream's surroundings on real servers: a database, a queue,
// what arrived in it, and relays that run in this process.
type shop struct {
	*testing.T
	server *lab.MySQLServer
	schema string
	state  string
	db     *sql.DB // root, in schema
	vhost  lab.Vhost
	tables string        // lines of tables in the configuration
	source string        // address
	user   string        // what stands behind user in the configuration
	level  zapcore.Level // of the log
	adjust func(*configs.Config)
	log    *observer.ObservedLogs

	mu       sync.Mutex
	arrived  []string // message ids in order
	times    map[string]int
	sawAt    map[string]time.Time // first arrival
	changed  chan struct{}
	registry *prometheus.Registry
}

// servers are the kinds that most promises are tested on.
var servers = map[string]lab.MySQLOptions{
	"mysql with GTID":    {Kind: lab.MySQL97, GTID: true, RowMetadata: "FULL"},
	"mysql without GTID": {Kind: lab.MySQL97, RowMetadata: "FULL"},
	"mariadb":            {Kind: lab.MariaDB1011, RowMetadata: "FULL"},
}

func onEach(t *testing.T, test func(t *testing.T, server *lab.MySQLServer)) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, labtest.MySQL(t, servers[name]))
		})
	}
}

const (
	markBills = `
  - table: {schema}.bill
    columns: {id: "{id}", key: "{k}", body: payload}
    publish: {exchange: "", routing_key: bills}
    after_publish: mark
    status: {column: status, pending: PENDING, sent: SENT, failed: FAILED, withdrawn: [ABANDONED], processing: PROCESSING, locked_until: locked_until, sent_at: sent_at}
    deliver_at: deliver_at
    fallback: {every: 300ms, batch: 100}
`
	createBill = `CREATE TABLE bill (id BIGINT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, payload VARCHAR(200) NOT NULL DEFAULT '{}',
		status VARCHAR(12) NOT NULL DEFAULT 'PENDING', locked_until DATETIME(6) NULL, sent_at DATETIME(6) NULL, deliver_at DATETIME(6) NULL, KEY (status))`
	keepNotes = `
  - table: {schema}.note
    columns: {id: "n{id}", body: payload}
    publish: {exchange: "", routing_key: bills, timestamp: at}
    after_publish: keep
    start: all
`
	createNote  = `CREATE TABLE note (id BIGINT AUTO_INCREMENT PRIMARY KEY, payload VARCHAR(200) NOT NULL DEFAULT '{}', at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))`
	deleteSlips = `
  - table: {schema}.slip
    columns: {id: "s{id}", body: payload}
    publish: {exchange: "", routing_key: bills}
    after_publish: delete
    fallback: {every: 300ms, batch: 100}
`
	createSlip = `CREATE TABLE slip (id BIGINT AUTO_INCREMENT PRIMARY KEY, payload VARCHAR(200) NOT NULL DEFAULT '{}')`
)

func newShop(t *testing.T, server *lab.MySQLServer, tables string, statements ...string) *shop {
	t.Helper()
	s := &shop{T: t, server: server, tables: tables, times: map[string]int{}, sawAt: map[string]time.Time{}, changed: make(chan struct{}, 1), source: server.Addr(), user: "root"}
	s.schema, s.db = labtest.DB(t, server)
	s.state = labtest.Database(t, server)
	s.vhost = labtest.Vhost(t, labtest.Rabbit(t, lab.RabbitOptions{Kind: lab.Rabbit43}))
	if _, _, err := checkpoint.Init(t.Context(), s.db, s.state); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		s.exec(statement)
	}
	s.consume()
	return s
}

func (s *shop) exec(query string, args ...any) sql.Result {
	s.Helper()
	r, err := s.db.ExecContext(s.Context(), query, args...)
	if err != nil {
		s.Fatalf("%.200s: %v", query, err)
	}
	return r
}

func (s *shop) value(query string, args ...any) string {
	s.Helper()
	var v sql.NullString
	if err := s.db.QueryRowContext(s.Context(), strings.ReplaceAll(query, "{state}", s.state), args...).Scan(&v); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return v.String
}

// session is a connection of its own; the statement "" ends it.
func (s *shop) session() func(statement string) {
	s.Helper()
	conn, err := s.db.Conn(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		conn.Raw(func(any) error { return driver.ErrBadConn })
		conn.Close()
	})
	s.Cleanup(end)
	return func(statement string) {
		s.Helper()
		if statement == "" {
			end()
			return
		}
		if _, err := conn.ExecContext(s.Context(), statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
}

func (s *shop) consume() {
	conn, err := amqp.Dial(s.vhost.URL())
	if err != nil {
		s.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		s.Fatal(err)
	}
	if _, err := ch.QueueDeclare("bills", true, false, false, false, nil); err != nil {
		s.Fatal(err)
	}
	deliveries, err := ch.Consume("bills", "", true, false, false, false, nil)
	if err != nil {
		s.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range deliveries {
			s.mu.Lock()
			s.arrived = append(s.arrived, d.MessageId)
			if s.times[d.MessageId]++; s.times[d.MessageId] == 1 {
				s.sawAt[d.MessageId] = time.Now()
			}
			s.mu.Unlock()
			signal(s.changed)
		}
	}()
	s.Cleanup(func() {
		conn.Close()
		<-done
	})
}

// emptied waits until everything that is in the queue now has arrived: a
// message of its own comes behind it.
func (s *shop) emptied() {
	s.Helper()
	conn, err := amqp.Dial(s.vhost.URL())
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		s.Fatal(err)
	}
	if err := ch.PublishWithContext(s.Context(), "", "bills", false, false, amqp.Publishing{MessageId: "emptied"}); err != nil {
		s.Fatal(err)
	}
	s.wait("the queue is empty", func() bool { return s.times["emptied"] > 0 })
}

// config is the configuration as it is now.
func (s *shop) config() string {
	return strings.ReplaceAll(fmt.Sprintf(`name: shop
source: {address: "%s", user: %s}
state: {schema: %s}
broker: {urls: ["%s"], heartbeat: 2s}
checkpoint: {every: 50ms, idle: 1s}
lease: {ttl: 3s}
tables:%s`, s.source, s.user, s.state, s.vhost.URL(), s.tables), "{schema}", s.schema)
}

// run starts a relay; stop drains it, as SIGTERM does.
func (s *shop) run() (stop func()) {
	s.Helper()
	c, err := configs.Parse("test.yaml", []byte(s.config()), func(string) (string, bool) { return "", false })
	if err != nil {
		s.Fatal(err)
	}
	if s.adjust != nil {
		s.adjust(c)
	}
	core, logs := observer.New(s.level)
	s.log, s.registry = logs, prometheus.NewRegistry()
	r := New(c, s.registry, zap.New(core))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					s.Errorf("the relay ended with %v", err)
				}
			case <-time.After(30 * time.Second):
				s.Error("the relay did not end")
			}
			s.readable()
			if s.Failed() {
				s.dump()
			}
		})
	}
	s.Cleanup(stop)
	return stop
}

// readable checks that no line of the log has a key twice or a stack.
func (s *shop) readable() {
	for _, e := range s.log.All() {
		fields := slices.DeleteFunc(slices.Clone(e.Context), func(f zap.Field) bool { return f.Type == zapcore.SkipType })
		if m := e.ContextMap(); len(m) != len(fields) || m["errorVerbose"] != nil {
			s.Errorf("the log line %q has the fields %v", e.Message, e.Context)
		}
	}
}

func (s *shop) dump() {
	for _, e := range s.log.All() {
		s.Logf("%s %s %v", e.Time.Format("15:04:05.000"), e.Message, e.ContextMap())
	}
}

// wait waits until ok holds of the ids that arrived, for as long as more arrive.
func (s *shop) wait(what string, ok func() bool) {
	s.Helper()
	const patience = 30 * time.Second
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for arrived := -1; ; {
		s.mu.Lock()
		done := ok()
		if n := len(s.arrived); n != arrived {
			arrived = n
			deadline.Reset(patience)
		}
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.changed:
		case <-tick.C:
		case <-deadline.C:
			s.Fatalf("waited in vain: %s (%d arrived, %d ids)", what, len(s.arrived), len(s.times))
		}
	}
}

// waitFor waits until so many different ids arrived.
func (s *shop) waitFor(ids int) {
	s.Helper()
	s.wait(fmt.Sprintf("%d ids", ids), func() bool { return len(s.times) >= ids })
}

// waitLog waits for a line of the log.
func (s *shop) waitLog(message string) {
	s.Helper()
	s.wait("log line "+message, func() bool { return s.log.FilterMessageSnippet(message).Len() > 0 })
}

// begun waits until all tables have begun and the binlog is read.
func (s *shop) begun() {
	s.Helper()
	s.wait("the stream has begun", func() bool {
		return s.metric("streaming") == 1 && s.value(`SELECT COUNT(*) FROM {state}.checkpoint_table WHERE sweep LIKE '%"sweep"%'`) == "0"
	})
}

// once checks that each of the ids arrived, and how often any arrived twice.
func (s *shop) twice() (twice []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.times {
		if n > 1 {
			twice = append(twice, id)
		}
	}
	return twice
}

// metric is a sample's value, summed over the series whose labels contain all of labels.
func (s *shop) metric(name string, labels ...string) (sum float64) {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "towpath_"+name {
			continue
		}
		for _, m := range f.Metric {
			if hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool {
		return !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == v })
	})
}
