package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// retry is a parked row to be read.
type retry struct {
	berth    *berth // the loop's: not looked into
	table    *table
	ref      string
	sequence uint64
	size     int64
	ordered  bool // it stands in the line of its key
}

// retried is a parked row as it was read.
type retried struct {
	berth *berth
	entry *entry                 // its message id alone is set for one that has ended
	end   checkpoint.ParkedState // it is not to be sent; "": it is
	later bool                   // it cannot be read now
}

// retrier reads parked rows whose next attempt is due, in the order that the
// loop gives them, and maps them anew under the present configuration (P5). The
// rows of mark and delete tables are read as they are now, under a lock, so
// that what the application withdrew is not sent (P10); rows of keep tables
// come from their images. It runs on one goroutine and keeps no state of its own.
type retrier struct {
	stream  string
	store   *checkpoint.Store
	current *current
	in      *queue[retry]
	out     *queue[retried]
	log     *zap.Logger

	images   map[*table]*mapping // of the image that was mapped last
	refusing map[*table]bool     // tables whose rows cannot be read: logged once
}

func newRetrier(stream string, store *checkpoint.Store, c *current, in *queue[retry], out *queue[retried], log *zap.Logger) *retrier {
	return &retrier{stream: stream, store: store, current: c, in: in, out: out, log: log, images: map[*table]*mapping{}, refusing: map[*table]bool{}}
}

// Bounds of what is read at once (P7).
const (
	retryRows  = 64
	retryBytes = 4 << 20
)

// run works until ctx ends.
func (r *retrier) run(ctx context.Context) error {
	var due []retry
	for {
		select {
		case <-r.in.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		due = r.in.take(due)
		for rest := due; len(rest) > 0; {
			n := retryPage(rest)
			for _, d := range r.read(ctx, rest[:n]) {
				weight := int64(entryOverhead)
				if d.entry != nil {
					weight += d.entry.weight
				}
				if err := r.out.put(ctx, d, weight); err != nil {
					return err
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			rest = rest[n:]
		}
	}
}

// retryPage is how many rows, of one table, are read together.
func retryPage(due []retry) int {
	n, bytes := 0, int64(0)
	for n < len(due) && n < retryRows && due[n].table == due[0].table {
		if bytes += due[n].size; bytes > retryBytes && n > 0 {
			break
		}
		n++
	}
	return n
}

// read reads rows of one table. It tries until the database answers (P8);
// rows of a table that cannot be read come later (P9).
func (r *retrier) read(ctx context.Context, due []retry) []retried {
	t := due[0].table
	for failures := 0; ; failures++ {
		var page []retried
		var err error
		if t.config.AfterPublish == configs.Keep {
			page, err = r.readImages(ctx, t, due)
		} else {
			page, err = r.readRows(ctx, t, due)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			delete(r.refusing, t)
			return page
		case !outage(err):
			if !r.refusing[t] {
				r.refusing[t] = true
				r.log.Error("parked rows cannot be read: they are tried again later; correct what the error says", zap.String("table", t.label), zap.Error(err))
			}
			page = page[:0]
			for _, d := range due {
				page = append(page, retried{berth: d.berth, later: true})
			}
			return page
		case failures == 0:
			r.log.Warn("parked rows cannot be read, trying on", zap.Error(err))
		}
		if !sleep(ctx, backoff(failures, 100*time.Millisecond, 5*time.Second)) {
			return nil
		}
	}
}

// readRows reads rows as they are now.
func (r *retrier) readRows(ctx context.Context, t *table, due []retry) ([]retried, error) {
	refs := make([]string, len(due))
	for i, d := range due {
		refs[i] = d.ref
	}
	read := time.Now()
	rows, m, locked, err := r.free(ctx, t, refs)
	if err != nil {
		return nil, err
	}
	gone := checkpoint.ParkedGone
	if t.config.AfterPublish == configs.Delete {
		gone = checkpoint.ParkedWithdrawn // or it was sent, by a leader that could not say so
	}
	page := make([]retried, len(due))
	for i, d := range due {
		switch row := rows[d.ref]; {
		case row != nil:
			page[i] = r.mapped(d, m, row, read)
		case locked[d.ref]:
			page[i] = retried{berth: d.berth, later: true}
		default:
			page[i] = retried{berth: d.berth, entry: &entry{}, end: gone}
		}
	}
	return page, nil
}

// free reads rows under a lock, past those that somebody holds: they come
// later, and hold up no other (P9). A row that a plain read does not show either
// is asked for by itself: it may be locked by its own insert, which the binlog
// shows before the engine does.
func (r *retrier) free(ctx context.Context, t *table, refs []string) (map[string]*canal.Row, *mapping, map[string]bool, error) {
	lock := canal.ShareLock(r.current.server.Flavor)
	rows, m, err := r.current.rows(ctx, t, refs, lock+" SKIP LOCKED")
	if err != nil {
		return nil, nil, nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return rows[ref] != nil })
	if len(missing) == 0 {
		return rows, m, nil, nil
	}
	committed, _, err := r.current.rows(ctx, t, missing, "")
	if err != nil {
		return nil, nil, nil, err
	}
	locked := map[string]bool{}
	for _, ref := range missing {
		if committed[ref] != nil {
			locked[ref] = true
			continue
		}
		one, _, err := r.current.rows(ctx, t, []string{ref}, lock+" NOWAIT")
		switch {
		case isLockWait(err):
			locked[ref] = true
		case err != nil:
			return nil, nil, nil, err
		case one[ref] != nil:
			rows[ref] = one[ref]
		}
	}
	return rows, m, locked, nil
}

// readImages reads rows as they were when they were parked.
func (r *retrier) readImages(ctx context.Context, t *table, due []retry) ([]retried, error) {
	sequences := make([]uint64, len(due))
	for i, d := range due {
		sequences[i] = d.sequence
	}
	images, err := r.store.ParkedImages(ctx, r.stream, sequences)
	if err != nil {
		return nil, err
	}
	page := make([]retried, len(due))
	for i, d := range due {
		page[i] = r.readImage(t, d, images[d.sequence])
	}
	return page, nil
}

func (r *retrier) readImage(t *table, d retry, image []byte) retried {
	poison := func(err error) retried {
		return retried{berth: d.berth, entry: &entry{table: t, origin: fromParked, ref: d.ref, fault: &fault{class: classPoison, reason: err.Error()}}}
	}
	if image == nil {
		return poison(errors.New("the parked row has no image"))
	}
	row, err := canal.ParseImage(image)
	if err != nil {
		return poison(err)
	}
	m := r.images[t]
	if m == nil || !slices.Equal(m.shape.Columns, row.Table.Columns) || !slices.Equal(m.shape.Primary, row.Table.Primary) {
		if m, err = compileMapping(t.config, row.Table, t.number); err != nil {
			return poison(err)
		}
		r.images[t] = m
	}
	row.Table = m.shape
	return r.mapped(d, m, &row, time.Now())
}

// mapped makes the row's entry, or says what end it has come to.
func (r *retrier) mapped(d retry, m *mapping, row *canal.Row, read time.Time) retried {
	t := d.table
	e := &entry{table: t, mapping: m, origin: fromParked, fresh: read}
	m.entry(row, e)
	e.ref = d.ref // what it is parked under
	if !d.ordered && t.strict() {
		e.gate = ""
	}
	done := retried{berth: d.berth, entry: e}
	switch {
	case !m.passes(row):
		done.end = checkpoint.ParkedFiltered
	case m.status >= 0:
		c := &t.config.Status
		status := configs.StatusValue(row.Values[m.status])
		switch {
		case slices.Contains(c.Withdrawn, status): // P10
			done.end = checkpoint.ParkedWithdrawn
		case status == c.Sent:
			done.end = checkpoint.ParkedSent
		case status == c.Failed && status != "":
			e.seen = string(status)
		default:
			e.seen = string(c.Pending) // of another status the application's value wins
		}
	}
	return done
}

// ParkedMessage is the message that a parked row would be sent as now. It
// returns the end that the row would come to instead, if any.
func ParkedMessage(ctx context.Context, c *configs.Config, db *sql.DB, store *checkpoint.Store, p checkpoint.Parked) (rabbit.Message, checkpoint.ParkedState, error) {
	ts := newTables(c, NewMetrics(prometheus.NewRegistry(), c.Name))
	t := ts.find(canal.TableName{Schema: p.Schema, Name: p.Name})
	if t == nil {
		return rabbit.Message{}, "", fmt.Errorf("table %s.%s is not in the configuration", p.Schema, p.Name)
	}
	r := newRetrier(c.Name, store, newCurrent(db, canal.Server{Flavor: store.Flavor()}, ts), nil, nil, zap.NewNop())
	due := []retry{{table: t, ref: t.ref(p.Key), sequence: p.Sequence, ordered: true}}
	read := r.readRows
	if t.config.AfterPublish == configs.Keep {
		read = r.readImages
	}
	page, err := read(ctx, t, due)
	switch {
	case err != nil:
		return rabbit.Message{}, "", err
	case page[0].later:
		return rabbit.Message{}, "", errors.New("the row is locked by another transaction")
	case page[0].end == "" && page[0].entry.fault != nil:
		return rabbit.Message{}, "", errors.New(page[0].entry.fault.reason)
	}
	return page[0].entry.message, page[0].end, nil
}
