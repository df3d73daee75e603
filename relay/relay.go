package relay

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// Relay relays one stream for as long as it holds its lease.
type Relay struct {
	config  *configs.Config
	metrics *Metrics
	log     *zap.Logger
	holder  string
	about   About
	health  health
	leading atomic.Pointer[leader] // at work; nil while there is none
}

// New returns a relay that has done nothing yet. Its figures go to reg.
func New(c *configs.Config, reg prometheus.Registerer, log *zap.Logger) *Relay {
	return &Relay{config: c, metrics: NewMetrics(reg, c.Name), log: log.With(zap.String("stream", c.Name)), holder: NewHolder()}
}

// Introduce says what others see of this process. It is called before Run.
func (r *Relay) Introduce(about About) { r.about = about }

// Run stands by and leads until ctx ends, then drains and returns nil. A
// database that is away is waited for; an error is something that waiting does
// not mend, such as missing state tables or a refused login, found at the start.
func (r *Relay) Run(ctx context.Context) error {
	db := checkpoint.Connect(Endpoint(r.config), checkpoint.Session{IdleTimeout: r.config.Lease.TTL})
	defer db.Close()
	store, err := r.open(ctx, db)
	if err != nil {
		return err
	}
	presence, leave := context.WithCancel(context.WithoutCancel(ctx)) // it shows while it drains, too
	var present sync.WaitGroup
	present.Go(func() { r.present(presence, store) })
	defer present.Wait()
	defer leave()
	elector := NewElector(store, LeaseConfig{
		Stream: r.config.Name, Holder: r.holder, TTL: r.config.Lease.TTL, Fast: r.config.Lease.FastTakeover,
		Observe: r.observe, Log: r.log,
	})
	for failures := 0; ; failures++ {
		began := time.Now()
		err := elector.Run(ctx, r.lead)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
		// Whatever went wrong with a leadership, the next one is its recovery.
		if time.Since(began) > time.Minute {
			failures = 0
		}
		r.log.Warn("the leadership failed, beginning again", zap.Error(err))
		if !sleep(ctx, backoff(failures, 200*time.Millisecond, 10*time.Second)) {
			return nil
		}
	}
}

// observe takes the elector's news.
func (r *Relay) observe(s LeaseState) {
	r.health.beat()
	r.health.observe(s)
	set(r.metrics.Leading, s.Leading)
	if s.Leading {
		r.metrics.Term.Set(float64(s.Term))
		r.metrics.Takeovers.Inc()
	} else {
		r.metrics.Term.Set(0)
	}
}

// open returns the state's store once the database can be reached and nothing
// stands in the way of relaying.
func (r *Relay) open(ctx context.Context, db *sql.DB) (*checkpoint.Store, error) {
	for failures := 0; ; {
		err := r.preflight(ctx, db)
		if err == nil {
			var store *checkpoint.Store
			if store, err = checkpoint.Open(ctx, db, r.config.State.Schema); err == nil {
				return store, nil
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("stopped before the database was reached: %w", err)
		}
		if !outage(err) {
			return nil, err
		}
		if failures++; failures == 1 {
			r.log.Warn("waiting for the database", zap.Error(err))
		}
		r.health.beat()
		sleep(ctx, backoff(failures, 200*time.Millisecond, 5*time.Second))
	}
}

// preflight finds what no waiting mends before anything is begun.
func (r *Relay) preflight(ctx context.Context, db *sql.DB) error {
	findings, err := CheckSource(ctx, r.config, db)
	if errors.Is(err, canal.ErrPrivilege) && r.hasBegun(ctx, db) {
		return nil // tables are served by polling, and the leader says so
	}
	if err != nil {
		return err
	}
	var faults []error
	for _, f := range findings {
		switch f.Level {
		case Fail:
			if f.What == "binlog" && r.hasBegun(ctx, db) {
				continue // as above
			}
			faults = append(faults, errors.New(f.String()))
		case Warn:
			r.log.Warn(f.Text, zap.String("what", f.What), zap.String("remedy", f.Remedy))
		}
	}
	return errors.Join(faults...)
}

// hasBegun says whether the stream has a position: then its tables can be
// served without a binlog.
func (r *Relay) hasBegun(ctx context.Context, db *sql.DB) bool {
	store, err := checkpoint.Open(ctx, db, r.config.State.Schema)
	if err != nil {
		return false
	}
	c, err := store.Checkpoint(ctx, r.config.Name)
	return err == nil && !c.Position.IsZero()
}

// outage tells a server that is away or not ready from one that has answered no.
func outage(err error) bool {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return slices.Contains([]uint16{1040, 1053, 1129, 1205, 1213, 1290, 1836, 4031}, server.Number)
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded)
}
