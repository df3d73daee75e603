package canal

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/towpath/towpath/checkpoint"
)

// TLSMode says how much of TLS a connection needs.
type TLSMode string

// The modes.
const (
	TLSDisabled  TLSMode = "disabled"
	TLSPreferred TLSMode = "preferred" // if the server has it; its certificate is not checked
	TLSRequired  TLSMode = "required"  // its certificate is not checked unless a CA is given
	TLSVerify    TLSMode = "verify"    // its certificate and name are checked
)

// Options say what to read and how to reach it.
type Options struct {
	Address  string                      // host:port, or the path of a socket
	User     string                      // needs REPLICATION SLAVE and REPLICATION CLIENT
	Password func() (string, error)      // asked at each connect; nil for none
	TLSMode  TLSMode                     // "" is disabled
	TLS      func() (*tls.Config, error) // asked at each connect; nil for a plain configuration
	ServerID uint32                      // 0 chooses one that no replica of the server has

	Tables   func(TableName) (Interest, bool) // which tables' rows are wanted
	Existing []TableName                      // wanted tables that exist now: what a statement-format write may touch
	DB       *sql.DB                          // the same server by SQL, to read tables' definitions

	TransactionBytes int64  // a larger transaction is spooled to disk; 0 is 8 MiB
	SpoolDir         string // "" is the system's temporary folder

	// Opened is told of the server as soon as the stream's connection stands,
	// before the first batch. An error ends the stream with it. May be nil.
	Opened func(Session) error
	Logger *zap.Logger
}

// Session is the server as the stream's own connection sees it.
type Session struct {
	Server       string // identity, see [checkpoint.Identity]
	Flavor       checkpoint.Flavor
	Version      string
	GTID         bool // the stream goes by GTID, else by file and offset
	ConnectionID uint32
}

// Start says where a stream begins and what is known there.
type Start struct {
	Position checkpoint.Position
	// Shapes are the tables' shapes at Position. A missing one is read from the
	// server when a row needs it.
	Shapes Shapes
	// Skip passes the one place that a [HaltError] named.
	Skip *checkpoint.Mark
}

// Progress is how far a stream has read, whether or not it was settled.
type Progress struct {
	Heard  time.Time // when the server last sent anything, heartbeats included
	Event  time.Time // time stamp of the last event, whole seconds
	File   string
	Offset uint64
}

const (
	// The server sends a heartbeat when it has had nothing else to send for so
	// long; a connection that is silent for three of them is dead. The server
	// in turn notices a reader that is gone when it sends one.
	heartbeatPeriod = 5 * time.Second
	silenceLimit    = 3 * heartbeatPeriod

	// How long the server waits for us to read on. The relay stops reading
	// while the broker is away; past this the server ends the dump, and the
	// relay opens it again.
	netWriteTimeout = 3600 // seconds

	defaultTransactionBytes = 8 << 20
)

// Source reads the binlog of one server.
type Source struct {
	options    Options
	serverID   uint32 // the same for all connections: MariaDB then ends an earlier one that it still has
	registered bool   // the server_id was found to be free
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	heartbeat  time.Duration
	silence    time.Duration

	heard  atomic.Int64 // Unix nanoseconds
	stamp  atomic.Uint32
	file   atomic.Pointer[string]
	offset atomic.Uint64
}

// NewSource makes a source. It connects to nothing.
func NewSource(o Options) *Source {
	if o.TransactionBytes == 0 {
		o.TransactionBytes = defaultTransactionBytes
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Source{
		options:   o,
		serverID:  cmp.Or(o.ServerID, randomServerID()),
		dial:      (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		heartbeat: heartbeatPeriod,
		silence:   silenceLimit,
	}
}

// randomServerID is one that people do not choose.
func randomServerID() uint32 { return math.MaxUint32/2 + rand.Uint32N(math.MaxUint32/2) }

// Progress may be called at any time, from any goroutine.
func (s *Source) Progress() Progress {
	p := Progress{Offset: s.offset.Load()}
	if n := s.heard.Load(); n != 0 {
		p.Heard = time.Unix(0, n)
	}
	if n := s.stamp.Load(); n != 0 {
		p.Event = time.Unix(int64(n), 0).UTC()
	}
	if f := s.file.Load(); f != nil {
		p.File = *f
	}
	return p
}

// Stream reads from a position until ctx ends or something fails, and calls
// emit with each batch, in binlog order, on one goroutine. While emit blocks
// nothing is read; it must return when ctx ends. A batch with an End may be
// settled on its own: its Mark is where a later Stream can begin.
//
// It always returns an error: ctx's cause, emit's own, a [*GapError], a
// [*HaltError], one of the Err values of this package, or what went wrong with
// the connection, which a later try may mend.
func (s *Source) Stream(ctx context.Context, start Start, emit func(Batch) error) error {
	if start.Position.IsZero() {
		return errors.New("stream binlog: no position to begin at")
	}
	for {
		byGTID := !start.Position.GTIDs.IsZero()
		err := s.stream(ctx, start, byGTID, emit)
		if errors.Is(err, errNoGTID) {
			err = s.stream(ctx, start, false, emit)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, errTakenID) {
			return err
		}
		s.serverID = randomServerID()
	}
}

// errNoGTID says that the server has GTIDs off: the position's file counts.
var errNoGTID = errors.New("server has GTIDs off")

// errTakenID says that a replica has the server_id that was chosen.
var errTakenID = errors.New("server_id is taken")

func (s *Source) stream(ctx context.Context, start Start, byGTID bool, emit func(Batch) error) error {
	c := &connection{source: s, ctx: ctx, start: start, byGTID: byGTID, emit: emit}
	config, err := c.config()
	if err != nil {
		return err
	}
	err = c.run(config)
	if s.options.TLSMode == TLSPreferred && errors.Is(err, ErrTLS) {
		config.TLSConfig = nil
		err = c.run(config)
	}
	return err
}

// note keeps what Progress tells.
func (s *Source) note(stamp uint32, p *place) {
	if stamp != 0 {
		s.stamp.Store(stamp)
	}
	if f := s.file.Load(); f == nil || *f != p.file {
		file := p.file
		s.file.Store(&file)
	}
	s.offset.Store(p.offset)
}
