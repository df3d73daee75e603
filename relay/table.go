package relay

import (
	"slices"
	"sync"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/configs"
)

// table is one table of the source that an entry of the configuration matches,
// for the life of the process. What it holds never changes.
type table struct {
	name    canal.TableName
	label   string // in metrics and logs
	config  *configs.Table
	number  uint32 // tells tables apart in gates and refs
	metrics *tableMetrics
}

func (t *table) strict() bool { return t.config.Ordering == configs.OrderStrict }

func (t *table) fast() bool { return t.config.Ordering == configs.OrderFast }

// writesBack says whether a confirmed row is marked or deleted.
func (t *table) writesBack() bool { return t.config.AfterPublish != configs.Keep }

// marks says whether a confirmed row's status is set.
func (t *table) marks() bool { return t.config.AfterPublish == configs.Mark }

// halts says whether the stream halts where the binlog has hidden rows of the
// table: nothing can tell which, or nobody is to look.
func (t *table) halts() bool { return !t.writesBack() || t.config.OnGap == configs.GapHalt }

// isWithdrawn says whether the application withdraws a row by a status.
func (t *table) isWithdrawn(status string) bool {
	return slices.Contains(t.config.Status.Withdrawn, configs.StatusValue(status))
}

// tables finds the table for a name. The source, the preparer and the fallback
// ask it, each from its own goroutine.
type tables struct {
	config  *configs.Config
	metrics *Metrics

	mu    sync.Mutex
	known map[canal.TableName]*table // nil for a table that is not ours
	all   []*table                   // by number
}

func newTables(c *configs.Config, m *Metrics) *tables {
	return &tables{config: c, metrics: m, known: map[canal.TableName]*table{}}
}

// find returns nil for a table that the configuration does not match.
func (ts *tables) find(name canal.TableName) *table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t, asked := ts.known[name]; asked {
		return t
	}
	var t *table
	for i := range ts.config.Tables {
		if c := &ts.config.Tables[i]; c.Matches(name.Schema, name.Name) {
			label := c.Label(name.Schema, name.Name)
			t = &table{name: name, label: label, config: c, number: uint32(len(ts.all)), metrics: ts.metrics.table(label)}
			ts.all = append(ts.all, t)
			break
		}
	}
	ts.known[name] = t
	return t
}

// interest is what the source asks of every table that it meets.
func (ts *tables) interest(name canal.TableName) (canal.Interest, bool) {
	t := ts.find(name)
	if t == nil {
		return canal.Interest{}, false
	}
	return interest(t.config), true
}

// interest is the columns of a table's rows that are wanted.
func interest(c *configs.Table) canal.Interest {
	if c.AfterPublish == configs.Keep {
		return canal.Interest{} // a parked row of it carries its whole image
	}
	wanted := c.Reads()
	return canal.Interest{Columns: func(name string) bool { return containsFold(wanted, name) }}
}

// list is every table that is known by now, by number.
func (ts *tables) list() []*table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return append([]*table(nil), ts.all...)
}

// polled is every table whose rows show which are unsent.
func (ts *tables) polled() []*table {
	return slices.DeleteFunc(ts.list(), func(t *table) bool { return !t.writesBack() })
}

// keeps says whether a table's rows do not show which are unsent.
func (ts *tables) keeps() bool {
	return slices.ContainsFunc(ts.list(), func(t *table) bool { return !t.writesBack() })
}

// halting says whether the stream halts at a gap.
func (ts *tables) halting() bool { return slices.ContainsFunc(ts.list(), (*table).halts) }
