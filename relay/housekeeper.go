package relay

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// housekeeper measures what a person has to know before it is too late, and
// removes rows whose time is over. It runs on one goroutine, slowly, with
// sessions of its own, so that neither can hold up the stream.
type housekeeper struct {
	stream  string
	tables  *tables
	db      *sql.DB
	server  canal.Server
	store   *checkpoint.Store
	fence   checkpoint.Fence
	current *current
	found   *found
	metrics *Metrics
	log     *zap.Logger

	seen    map[*table]firstUnsent
	failing map[string]bool // what failed last time: logged once
}

// firstUnsent is the lowest unsent row of a table and since when it is seen.
type firstUnsent struct {
	ref   string
	since time.Time
}

const (
	measureEvery   = 5 * time.Second
	retentionEvery = 5 * time.Second
	// measureRows bounds what a look at the backlog of one table reads.
	measureRows = 10000
)

// run works until ctx ends.
func (h *housekeeper) run(ctx context.Context) error {
	measure, retain := time.NewTimer(time.Second), time.NewTimer(time.Second)
	defer measure.Stop()
	defer retain.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-measure.C:
			h.measure(ctx)
			measure.Reset(measureEvery)
		case <-retain.C:
			h.retain(ctx)
			retain.Reset(retentionEvery)
		}
	}
}

// note logs a failure when it is new, and its end.
func (h *housekeeper) note(ctx context.Context, what string, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !h.failing[what]:
		h.log.Warn("housekeeping failed, trying on", zap.String("what", what), zap.Error(err))
		h.failing[what] = true
	case err == nil:
		delete(h.failing, what)
	}
}

func (h *housekeeper) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measureEvery)
	defer cancel()
	for _, t := range h.tables.polled() {
		h.current.forget(t)
		h.note(ctx, "backlog of "+t.name.String(), h.backlog(ctx, t))
	}
	h.note(ctx, "binlog", h.binlog(ctx))
	prepared, err := h.store.Prepared(ctx, h.stream)
	if err == nil {
		h.metrics.XAPrepared.Set(float64(len(prepared)))
	}
	h.note(ctx, "prepared XA transactions", err)
}

// backlog counts the unsent rows of a table, up to measureRows of them: the
// oldest by key, which are the ones to know of.
func (h *housekeeper) backlog(ctx context.Context, t *table) error {
	m, _, err := h.current.mapping(ctx, t)
	if err != nil {
		return err
	}
	if err := m.pageable(); err != nil {
		return err
	}
	index, err := h.current.statusIndex(ctx, t)
	if err != nil {
		return err
	}
	hint := ""
	if index != "" {
		hint = " FORCE INDEX (" + canal.Quote(index) + ")"
	}
	now := time.Now()
	var all, due where
	if t.marks() {
		all.in(m.shape.Columns[m.status], []configs.Value{{Text: string(t.config.Status.Pending)}})
	}
	for _, i := range [...]int{m.deliverAt, m.nextAt} {
		if i >= 0 {
			due.before(m.shape.Columns[i], now, true)
		}
	}
	age := "NULL"
	if c := t.config.Publish.Timestamp; c != "" {
		age = canal.Quote(c)
	}
	isDue, condition := "TRUE", "TRUE"
	if len(due.terms) > 0 {
		isDue = strings.Join(due.terms, " AND ")
	}
	if len(all.terms) > 0 {
		condition = strings.Join(all.terms, " AND ")
	}
	query := fmt.Sprintf(`SELECT COUNT(*), COALESCE(SUM(NOT due), 0), MIN(CASE WHEN due THEN age END) FROM
		(SELECT (%s) AS due, %s AS age FROM %s%s WHERE %s ORDER BY %s LIMIT %d) AS unsent`,
		isDue, age, t.name.Quote(), hint, condition, m.keyOrder(""), measureRows)
	var unsent, deferred float64
	var oldest sql.NullString
	if err := h.db.QueryRowContext(ctx, query, append(due.args, all.args...)...).Scan(&unsent, &deferred, &oldest); err != nil {
		return fmt.Errorf("count unsent rows of %s: %w", t.name, err)
	}
	seconds, err := h.oldest(ctx, t, oldest, index, now)
	if err != nil {
		return err
	}
	h.metrics.Unsent.WithLabelValues(t.label).Set(unsent)
	h.metrics.Deferred.WithLabelValues(t.label).Set(deferred)
	h.metrics.OldestUnsent.WithLabelValues(t.label).Set(seconds)
	return h.claims(ctx, t, m, index)
}

// oldest is the age of the oldest row that is due: by its own time stamp, or
// without one by since when this leader has seen it as the first.
func (h *housekeeper) oldest(ctx context.Context, t *table, stamp sql.NullString, index string, now time.Time) (float64, error) {
	if stamp.Valid {
		if at, err := parseTime([]byte(stamp.String)); err == nil {
			return max(0, now.Sub(at).Seconds()), nil
		}
	}
	first, err := h.current.page(ctx, t, look{what: forPending, limit: 1, index: index}, now)
	if err != nil || len(first) == 0 {
		delete(h.seen, t)
		return 0, err
	}
	if h.seen[t].ref != first[0].ref {
		h.seen[t] = firstUnsent{first[0].ref, now}
	}
	return now.Sub(h.seen[t].since).Seconds(), nil
}

// claims counts the claims of a former poller, which this relay adopts when
// they run out; one that never runs out needs a person.
func (h *housekeeper) claims(ctx context.Context, t *table, m *mapping, index string) error {
	if t.config.Status.Processing == "" {
		return nil
	}
	var w where
	w.in(m.shape.Columns[m.status], []configs.Value{{Text: string(t.config.Status.Processing)}})
	hint := ""
	if index != "" {
		hint = " FORCE INDEX (" + canal.Quote(index) + ")"
	}
	var n float64
	query := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s%s WHERE %s LIMIT %d) AS claimed", t.name.Quote(), hint, strings.Join(w.terms, " AND "), measureRows)
	if err := h.db.QueryRowContext(ctx, query, w.args...).Scan(&n); err != nil {
		return fmt.Errorf("count claims of %s: %w", t.name, err)
	}
	h.metrics.Claimed.WithLabelValues(t.label).Set(n)
	return nil
}

// binlog measures how far the saved position is from the oldest binlog that is
// kept: what the server may still purge before rows are lost.
func (h *housekeeper) binlog(ctx context.Context) error {
	server, err := canal.Inspect(ctx, h.db)
	if err != nil {
		return err
	}
	saved := h.found.progress.get()
	distance, lag := 0.0, 0.0
	for _, log := range server.Logs {
		switch order := checkpoint.CompareFiles(log.Name, saved.File); {
		case order < 0:
			distance += float64(log.Size)
		case order == 0:
			distance += float64(saved.Offset)
			lag += float64(log.Size) - float64(saved.Offset)
		default:
			lag += float64(log.Size)
		}
	}
	h.metrics.BinlogDistance.Set(distance)
	h.metrics.BinlogLag.Set(max(0, lag))
	if server.Retention == 0 {
		return nil // kept for ever
	}
	left := float64(server.Retention)
	if settled := h.found.settledAt.Load(); settled > 0 && lag > 0 {
		left -= max(0, float64(time.Now().Unix()-settled))
	}
	h.metrics.RetentionLeft.Set(left)
	return nil
}

// registerHousekeeping registers the figures that the housekeeper measures.
func (m *Metrics) registerHousekeeping(reg prometheus.Registerer) {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "towpath_" + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	byTable := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "towpath_" + name, Help: help}, []string{"table"})
		reg.MustRegister(g)
		return g
	}
	m.Unsent = byTable("unsent_rows", fmt.Sprintf("Unsent rows in the table, those that are due later included; at most %d are counted.", measureRows))
	m.Deferred = byTable("deferred_rows", "Unsent rows whose time has not come, of those counted.")
	m.OldestUnsent = byTable("oldest_unsent_seconds", "Age of the oldest unsent row that is due: by publish.timestamp, without one since this leader saw it.")
	m.Claimed = byTable("claimed_rows", "Rows that a former poller has claimed.")
	m.XAPrepared = gauge("xa_prepared", "XA transactions without a verdict that have rows of ours, or may have.")
	m.BinlogDistance = gauge("binlog_oldest_distance_bytes", "Bytes from the oldest binlog that the server keeps to the saved position: 0 means that the next purge loses rows.")
	m.BinlogLag = gauge("binlog_lag_bytes", "Bytes from the saved position to the end of the binlog.")
	m.RetentionLeft = gauge("binlog_retention_left_seconds", "Seconds until the server may purge what the saved position needs, by its retention.")
	m.Retained = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "towpath_retention_rows_total", Help: "Sent rows that retention removed from the table."}, []string{"table"})
	reg.MustRegister(m.Retained)
}
