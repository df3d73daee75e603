package canal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/zap"
)

// connection is the stream over one connection to the server.
type connection struct {
	source  *Source
	ctx     context.Context
	start   Start
	byGTID  bool
	emit    func(Batch) error
	session Session
	reader  *reader
	err     error // why open or HandleEvent gave up, before the library wraps it
}

func (c *connection) config() (replication.BinlogSyncerConfig, error) {
	o := &c.source.options
	config := replication.BinlogSyncerConfig{
		ServerID:                c.source.serverID,
		Flavor:                  string(c.start.Position.Flavor),
		Host:                    o.Address,
		User:                    o.User,
		Localhost:               ReplicaHost,
		RawModeEnabled:          true, // the reader frames by itself: foreign tables cost next to nothing
		HeartbeatPeriod:         c.source.heartbeat,
		DisableRetrySync:        true, // the library would go on in the middle of a group
		DiscardGTIDSet:          true,
		VerifyChecksum:          true,
		EventCacheCount:         1, // not used: events go to the handler
		Option:                  c.open,
		SynchronousEventHandler: c,
		Logger:                  quiet(o.Logger),
	}
	var err error
	if o.Password != nil {
		if config.Password, err = o.Password(); err != nil {
			return config, fmt.Errorf("read source password: %w", err)
		}
	}
	config.TLSConfig, err = o.tlsConfig()
	return config, err
}

// tlsConfig is nil for a connection without TLS.
func (o *Options) tlsConfig() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if o.TLSMode == "" || o.TLSMode == TLSDisabled || err != nil { // a socket needs none
		return nil, nil
	}
	config := &tls.Config{}
	if o.TLS != nil {
		given, err := o.TLS()
		if err != nil {
			return nil, fmt.Errorf("read source TLS files: %w", err)
		}
		config = given.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	if o.TLSMode == TLSPreferred || o.TLSMode == TLSRequired && config.RootCAs == nil {
		config.InsecureSkipVerify = true
	}
	return config, nil
}

// run connects and reads until something fails, and leaves nothing behind.
func (c *connection) run(config replication.BinlogSyncerConfig) error {
	sockets := &sockets{source: c.source}
	config.Dialer = sockets.dial
	stop := context.AfterFunc(c.ctx, sockets.shut)
	defer stop()

	syncer := replication.NewBinlogSyncer(config)
	defer func() {
		// First the sockets: Close alone waits for a server that hangs, and
		// connects once more to kill the old session.
		sockets.shut()
		syncer.Close()
		if c.reader != nil {
			c.reader.close()
		}
	}()
	streamer, err := c.dump(syncer)
	if err == nil {
		_, err = streamer.GetEvent(context.Background()) // ends when the handler or a socket fails
	}
	if c.err != nil {
		return c.err
	}
	err = classify(err, c.start.Position)
	if errors.Is(err, ErrDamaged) && c.reader != nil && !c.reader.moved && !c.byGTID {
		return c.reader.insideEvent()
	}
	if errors.Is(err, ErrAccess) && c.reader != nil {
		return fmt.Errorf("register as a replica: %w", ErrPrivilege) // it was let in before
	}
	return err
}

func (c *connection) dump(syncer *replication.BinlogSyncer) (*replication.BinlogStreamer, error) {
	from := c.start.Position
	if c.byGTID {
		set, err := from.GTIDs.Library(from.Flavor)
		if err != nil {
			return nil, fmt.Errorf("ask for GTIDs: %w", err)
		}
		return syncer.StartSyncGTID(set)
	}
	offset := from.Offset
	if offset > math.MaxUint32 {
		offset = 4 // the protocol cannot say it: read the file from its start, see reader.before
	}
	return syncer.StartSync(gomysql.Position{Name: from.File, Pos: uint32(offset)})
}

// HandleEvent implements the library's interface.
func (c *connection) HandleEvent(e *replication.BinlogEvent) error {
	c.err = c.reader.read(e.RawData)
	c.source.note(e.Header.Timestamp, &c.reader.place)
	return c.err
}

// sockets owns the connections that the library makes, so that they can be
// closed under it: nothing else ends its waiting at once.
type sockets struct {
	source *Source

	mu   sync.Mutex
	open []net.Conn
	done bool
}

var errShut = errors.New("the stream is being closed")

func (s *sockets) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done {
		return nil, errShut
	}
	conn, err := s.source.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn = &socket{conn, s.source}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		conn.Close()
		return nil, errShut
	}
	s.open = append(s.open, conn)
	return conn, nil
}

func (s *sockets) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	for _, conn := range s.open {
		conn.Close()
	}
	s.open = nil
}

// socket is a connection on which no read or write waits for longer than the
// source bears silence. It is set here and not by the library, which would do
// so, and ask the time, several times for each event.
type socket struct {
	net.Conn
	source *Source
}

func (s *socket) Read(b []byte) (int, error) {
	if err := s.Conn.SetReadDeadline(time.Now().Add(s.source.silence)); err != nil {
		return 0, err
	}
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.source.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	if err := s.Conn.SetWriteDeadline(time.Now().Add(s.source.silence)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

// quiet is a logger for the library: its lines are debugging at best, and their
// attributes hold its configuration.
func quiet(log *zap.Logger) *slog.Logger { return slog.New(quietHandler{log}) }

type quietHandler struct{ log *zap.Logger }

func (h quietHandler) Enabled(context.Context, slog.Level) bool {
	return h.log.Core().Enabled(zap.DebugLevel)
}
func (h quietHandler) Handle(_ context.Context, r slog.Record) error {
	h.log.Debug("replication library", zap.String("says", r.Message))
	return nil
}
func (h quietHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h quietHandler) WithGroup(string) slog.Handler      { return h }
