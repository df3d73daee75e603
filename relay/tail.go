package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// Tailed is one row as it would be published.
type Tailed struct {
	Table   string // its label
	Commit  time.Time
	Message rabbit.Message
	Key     string // ordering key, "" when unordered
	Fault   string // why it could not be sent; "" when it could
}

// TailOptions say what to show.
type TailOptions struct {
	// From is where to begin; zero: at the binlog's present end.
	From checkpoint.Position
	// Started is told the position that tailing begins at. May be nil.
	Started func(checkpoint.Position)
}

// ErrTailed ends a Tail whose show function has seen enough.
var ErrTailed = errors.New("enough was shown")

// Tail reads the binlog and calls show with each row that the configuration
// would publish. It publishes nothing, saves nothing and takes no lease. Rows
// of XA transactions are shown at XA PREPARE's commit only when that is in one
// phase; rows that a statement wrote, and rows that need a read by primary key,
// are not shown. It ends with ctx, with show's error, or with that of the source.
func Tail(ctx context.Context, c *configs.Config, o TailOptions, show func(Tailed) error) error {
	db := checkpoint.Connect(Endpoint(c), checkpoint.Session{IdleTimeout: time.Hour})
	defer db.Close()
	server, err := canal.Inspect(ctx, db)
	if err != nil {
		return err
	}
	start := canal.Start{Position: o.From}
	if start.Position.IsZero() {
		start.Position = server.Position
	}
	if start.Position.Server == "" { // a place that a person named is one of this server
		start.Position.Flavor, start.Position.Server = server.Flavor, server.Identity
	}
	if o.Started != nil {
		o.Started(start.Position)
	}
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	options := sourceOptions(c, ts, zap.NewNop())
	options.DB = db
	t := &tailer{tables: ts, mappings: map[*table]*mapping{}}
	err = canal.NewSource(options).Stream(ctx, start, func(b canal.Batch) error {
		if b.Kind != canal.Committed {
			return nil
		}
		for i := range b.Rows {
			if err := t.row(&b.Rows[i], b.Time, show); err != nil {
				return err
			}
		}
		return nil
	})
	if ctx.Err() != nil || errors.Is(err, ErrTailed) {
		return nil
	}
	return fmt.Errorf("tail the binlog: %w", err)
}

type tailer struct {
	tables   *tables
	mappings map[*table]*mapping
}

func (t *tailer) row(row *canal.Row, commit time.Time, show func(Tailed) error) error {
	tb := t.tables.find(row.Table.TableName)
	m := t.mappings[tb]
	if m == nil || m.shape != row.Table {
		var err error
		if m, err = compileMapping(tb.config, row.Table, tb.number); err != nil {
			return err
		}
		t.mappings[tb] = m
	}
	if row.Incomplete || !m.passes(row) {
		return nil
	}
	if m.status >= 0 && string(row.Values[m.status]) != string(tb.config.Status.Pending) {
		return nil
	}
	e := &entry{table: tb, mapping: m}
	m.entry(row, e)
	shown := Tailed{Table: tb.label, Commit: commit, Message: e.message}
	if e.gate != "" {
		shown.Key = e.gate[4:]
	}
	if e.fault != nil {
		shown.Fault = e.fault.reason
	}
	return show(shown)
}
