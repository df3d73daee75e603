package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
)

// Metrics are the stream's figures, on a registerer that the caller gives.
// Labels are bounded: tables by configuration, lanes by number.
type Metrics struct {
	Leading       prometheus.Gauge
	Term          prometheus.Gauge
	Takeovers     prometheus.Counter
	TakeoverTime  prometheus.Histogram
	Halted        *prometheus.GaugeVec // by reason, 1 while halted
	Streaming     prometheus.Gauge
	Reconnects    *prometheus.CounterVec // by side: source, broker, state
	Window        prometheus.Gauge
	LaneUp        *prometheus.GaugeVec // by lane
	LaneBlocked   *prometheus.GaugeVec // by lane
	Saves         prometheus.Counter
	SaveTime      prometheus.Histogram
	ReadTime      prometheus.Gauge // commit time of the last group read
	SettledTime   prometheus.Gauge // commit time of the low-water
	PendingWrites prometheus.Gauge

	rows           *prometheus.CounterVec // by table and end
	writes         *prometheus.CounterVec // by table and result
	latency        *prometheus.HistogramVec
	Unsent         *prometheus.GaugeVec // by table
	Deferred       *prometheus.GaugeVec // by table
	OldestUnsent   *prometheus.GaugeVec // by table
	Claimed        *prometheus.GaugeVec // by table
	XAPrepared     prometheus.Gauge
	BinlogDistance prometheus.Gauge
	BinlogLag      prometheus.Gauge
	RetentionLeft  prometheus.Gauge
	Retained       *prometheus.CounterVec // by table

	Polling     prometheus.Gauge
	Gaps        *prometheus.CounterVec // by kind
	Unseen      *prometheus.CounterVec // by table
	Sweeping    *prometheus.GaugeVec   // by table, 1 while it is swept
	foundRows   *prometheus.CounterVec // by table and look: sweep, fallback
	orderBreaks *prometheus.CounterVec
	refusals    *prometheus.CounterVec // by table and class
	retries     *prometheus.CounterVec // by table
	parked      *prometheus.GaugeVec   // by table, class and state

	ClosedDestinations prometheus.Gauge
}

// tableMetrics are one table's, looked up once.
type tableMetrics struct {
	confirmed, filtered, passed, deferred, withdrawn, gone prometheus.Counter
	absent, already, swept, found                          prometheus.Counter
	refusals                                               *prometheus.CounterVec // by class
	written, conflicts, busy, failedWrites                 prometheus.Counter
	latency                                                prometheus.Observer
	orderBreaks                                            prometheus.Counter
	replayed, discarded, retries                           prometheus.Counter
	parked                                                 *prometheus.GaugeVec // by class and state
}

// NewMetrics registers the figures of the stream.
func NewMetrics(reg prometheus.Registerer, stream string) *Metrics {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"stream": stream}, reg)
	m := &Metrics{}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "towpath_" + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "towpath_" + name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "towpath_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "towpath_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "towpath_" + name, Help: help, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	m.Leading = gauge("leading", "1 while this process holds the lease.")
	m.Term = gauge("term", "Number of the current leadership, 0 while standing by.")
	m.Takeovers = counter("takeovers_total", "Leases that this process has taken.")
	m.TakeoverTime = histogram("takeover_seconds", "Time from winning the lease to being allowed to publish.",
		[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60})
	m.Halted = gauges("halted", "1 while the stream stands still until a person acts, by reason.", "reason")
	m.Streaming = gauge("streaming", "1 while the binlog is being read.")
	m.Reconnects = counters("reconnects_total", "Connections that failed and were opened anew, by side.", "side")
	m.Window = gauge("window_rows", "Rows that were read and are not settled.")
	m.LaneUp = gauges("lane_up", "1 while the lane may publish, by lane.", "lane")
	m.LaneBlocked = gauges("lane_blocked", "1 while an alarm of the broker blocks the lane, by lane.", "lane")
	m.Saves = counter("checkpoint_saves_total", "Transactions that saved the position.")
	m.SaveTime = histogram("checkpoint_save_seconds", "Time that one save took, row state included.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	m.ReadTime = gauge("read_commit_timestamp_seconds", "Commit time of the last event group that was read.")
	m.SettledTime = gauge("settled_commit_timestamp_seconds", "Commit time of the last event group up to which everything is settled.")
	m.PendingWrites = gauge("row_state_pending_rows", "Confirmed rows whose row state is not written yet.")

	m.rows = counters("rows_total", "Rows by the end that they came to.", "table", "end")
	m.writes = counters("row_state_writes_total", "Row-state writes by result.", "table", "result")
	m.Polling = gauge("polling", "1 while the binlog cannot be read and mark and delete tables are served by polling.")
	m.Gaps = counters("gaps_total", "Places where the binlog could not show what was committed, by kind.", "kind")
	m.Unseen = counters("unseen_writes_total", "Statements that wrote to a table without showing their rows in the binlog.", "table")
	m.Sweeping = gauges("sweeping", "1 while the rows that were there are swept, by table.", "table")
	m.foundRows = counters("found_rows_total", "Unsent rows that a sweep or the fallback found, in primary-key order, by look.", "table", "look")
	m.orderBreaks = counters("order_breaks_total", "Rows of a fast table that may have been overtaken after a refusal.", "table")
	m.refusals = counters("refusals_total", "Rows that were parked, by class of the refusal.", "table", "class")
	m.retries = counters("retries_total", "Attempts to send a parked row.", "table")
	m.parked = gauges("parked_rows", "Rows that are parked, by class of their last refusal (or behind, closed, scheduled) and by state: "+
		"waiting are tried again, failed wait for a person.", "table", "class", "state")
	m.ClosedDestinations = gauge("closed_destinations", "Destinations that take nothing at present: each is sent one probe per backoff.")
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "towpath_commit_to_confirm_seconds", Help: "Time from a row's commit to the confirm of its message.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
	}, []string{"table"})
	reg.MustRegister(m.latency)
	m.registerHousekeeping(reg)
	m.begin()
	return m
}

// begin shows what has not happened yet as 0: an alert on the first time that
// something happens has to see it change.
func (m *Metrics) begin() {
	for _, reason := range []string{"gap", "mapping", "parked", "repair", "statement", "sweep", "xa",
		string(canal.HaltIncident), string(canal.HaltUnknown), string(canal.HaltUndecodable)} {
		m.Halted.WithLabelValues(reason)
	}
	for _, side := range []string{"source", "broker", "state"} {
		m.Reconnects.WithLabelValues(side)
	}
	for _, kind := range []canal.GapKind{canal.GapPurged, canal.GapOtherServer, canal.GapAhead, canal.GapHistory, canal.GapXA} {
		m.Gaps.WithLabelValues(string(kind))
	}
}

func (m *Metrics) table(label string) *tableMetrics {
	m.Unseen.WithLabelValues(label)
	m.Sweeping.WithLabelValues(label)
	for _, g := range []*prometheus.GaugeVec{m.Unsent, m.Deferred, m.OldestUnsent, m.Claimed} {
		g.WithLabelValues(label)
	}
	m.Retained.WithLabelValues(label)
	for _, c := range []class{classDestination, classUnknown, classPoison} {
		m.refusals.WithLabelValues(label, string(c))
		m.parked.WithLabelValues(label, string(c), string(checkpoint.ParkedFailed))
	}
	for _, c := range []class{classDestination, classUnknown, classBehind, classClosed, classScheduled} {
		m.parked.WithLabelValues(label, string(c), string(checkpoint.ParkedWaiting))
	}
	return &tableMetrics{
		confirmed:    m.rows.WithLabelValues(label, "confirmed"),
		filtered:     m.rows.WithLabelValues(label, "filtered"),
		passed:       m.rows.WithLabelValues(label, "passed"),
		deferred:     m.rows.WithLabelValues(label, "deferred"),
		withdrawn:    m.rows.WithLabelValues(label, "withdrawn"),
		gone:         m.rows.WithLabelValues(label, "gone"),
		absent:       m.rows.WithLabelValues(label, "absent"),
		already:      m.rows.WithLabelValues(label, "sent_before"),
		swept:        m.foundRows.WithLabelValues(label, "sweep"),
		found:        m.foundRows.WithLabelValues(label, "fallback"),
		refusals:     m.refusals.MustCurryWith(prometheus.Labels{"table": label}),
		written:      m.writes.WithLabelValues(label, "written"),
		conflicts:    m.writes.WithLabelValues(label, "conflict"),
		busy:         m.writes.WithLabelValues(label, "busy"),
		failedWrites: m.writes.WithLabelValues(label, "failed"),
		latency:      m.latency.WithLabelValues(label),
		orderBreaks:  m.orderBreaks.WithLabelValues(label),
		replayed:     m.rows.WithLabelValues(label, "replayed"),
		discarded:    m.rows.WithLabelValues(label, "discarded"),
		retries:      m.retries.WithLabelValues(label),
		parked:       m.parked.MustCurryWith(prometheus.Labels{"table": label}),
	}
}

// sinceCommit observes how old a confirmed row's commit is. Clocks of two
// machines differ: what would be negative counts as zero.
func (t *tableMetrics) sinceCommit(commit, now time.Time) {
	if !commit.IsZero() {
		t.latency.Observe(max(0, now.Sub(commit).Seconds()))
	}
}

// end counts the end of a parked row that was not confirmed.
func (t *tableMetrics) end(end checkpoint.ParkedState) {
	switch end {
	case checkpoint.ParkedDiscarded:
		t.discarded.Inc()
	case checkpoint.ParkedWithdrawn:
		t.withdrawn.Inc()
	case checkpoint.ParkedGone:
		t.gone.Inc()
	case checkpoint.ParkedFiltered:
		t.filtered.Inc()
	case checkpoint.ParkedSent: // its status said so
		t.passed.Inc()
	}
}

// countParked counts a row in or out of the parked ones.
func countParked(b *berth, by float64) {
	b.table.metrics.parked.WithLabelValues(string(b.class), string(b.state)).Add(by)
}
