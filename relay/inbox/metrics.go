package inbox

import (
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are one consumer's figures.
type metrics struct {
	inProgress                 prometheus.Gauge
	outcomes                   map[Outcome]prometheus.Counter
	retried, contentions       prometheus.Counter
	isolated                   *prometheus.CounterVec // by reason
	databaseWaits, brokerWaits prometheus.Counter
	purged                     prometheus.Counter
	time, delay                prometheus.Histogram
	waiting                    waitings
}

func newMetrics(c Config, db *sql.DB) (*metrics, error) {
	m := &metrics{outcomes: map[Outcome]prometheus.Counter{}, waiting: waitings{all: map[*waiting]struct{}{}}}
	var all []prometheus.Collector
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Name: "towpath_inbox_" + name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		n := prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
		all = append(all, n)
		return n
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "towpath_inbox_" + name, Help: help, Buckets: buckets})
		all = append(all, h)
		return h
	}
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts(opts("processed_total", "Deliveries acknowledged as processed, by outcome: applied, duplicate.")), []string{"outcome"})
	for _, o := range []Outcome{Applied, Duplicate} {
		m.outcomes[o] = outcomes.WithLabelValues(string(o))
	}
	m.isolated = prometheus.NewCounterVec(prometheus.CounterOpts(opts("isolated_total", "Messages moved to the isolation queue, by reason.")), []string{"reason"})
	m.inProgress = prometheus.NewGauge(prometheus.GaugeOpts(opts("in_progress", "Deliveries being processed.")))
	all = append(all, outcomes, m.isolated, m.inProgress)
	m.retried = counter("retried_total", "Messages moved to a retry queue.")
	m.contentions = counter("contentions_total", "Transactions tried again at once after a deadlock or a lock time-out.")
	m.databaseWaits = counter("database_waits_total", "Pauses because the database did not answer or refused a record.")
	m.brokerWaits = counter("broker_waits_total", "Pauses because the broker did not take a copy for a retry or isolation.")
	m.purged = counter("purged_total", "Records deleted by retention.")
	m.time = histogram("processing_seconds", "Time from the begin of a transaction that committed to its commit; a batch's for each of its deliveries.", prometheus.ExponentialBuckets(.0005, 2, 16))
	m.delay = histogram("delay_seconds", "Time from the message's timestamp to the commit; timestamps are whole seconds.", []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400})
	all = append(all,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("waiting", "Deliveries received and not yet settled.")), func() float64 { return float64(m.waiting.count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("oldest_waiting_seconds", "Age of the oldest delivery received and not yet settled, 0 for none.")),
			func() float64 { return m.waiting.oldest(time.Now()).Seconds() }),
		prometheus.NewCounterFunc(prometheus.CounterOpts(opts("pool_waits_total", "Waits for a connection of the pool.")), func() float64 { return float64(db.Stats().WaitCount) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts(opts("pool_wait_seconds_total", "Time waited for a connection of the pool.")), func() float64 { return db.Stats().WaitDuration.Seconds() }))
	if c.Metrics == nil {
		return m, nil
	}
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"consumer": c.Consumer}, c.Metrics)
	var faults []error
	for _, collector := range all {
		faults = append(faults, reg.Register(collector))
	}
	return m, errors.Join(faults...)
}

func (m *metrics) processed(d Delivery, outcome Outcome, took time.Duration) {
	m.outcomes[outcome].Inc()
	m.time.Observe(took.Seconds())
	if outcome == Applied && !d.Timestamp.IsZero() {
		m.delay.Observe(max(0, time.Since(d.Timestamp).Seconds()))
	}
}

// waiting is a delivery that is received and not settled.
type waiting struct {
	Delivery
	since time.Time // when it was published, or received if that is not known
}

// waitings are all of them, at most the prefetch and a few.
type waitings struct {
	mu  sync.Mutex
	all map[*waiting]struct{}
}

func (ws *waitings) add(d Delivery) *waiting {
	w := &waiting{d, d.Timestamp}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all[w] = struct{}{}
	return w
}

func (ws *waitings) remove(settled ...*waiting) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range settled {
		delete(ws.all, w)
	}
}

func (ws *waitings) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.all)
}

func (ws *waitings) oldest(now time.Time) (age time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		age = max(age, now.Sub(w.since))
	}
	return age
}
