package configs

import "time"

// Config is one stream: a source server, a broker cluster, and the outbox
// tables between them. Sizes are bytes.
type Config struct {
	Name         string // the stream, in the lease, the checkpoint and metrics
	Source       Source
	State        State
	Broker       Broker
	Checkpoint   Checkpoint
	Lease        Lease
	DrainTimeout time.Duration // how long a stop waits for the window to settle
	HTTP         HTTP
	Log          Log
	Tables       []Table // at least one; no two entries match one table
}

// Source is the primary server that holds the tables and the state.
type Source struct {
	Address          string // host:port; empty when Socket is set
	Socket           string // path of a unix socket; empty when Address is set
	User             string
	Password         Secret
	ServerID         uint32 // 0: the relay chooses one
	TLS              SourceTLS
	TransactionBytes int64  // a larger transaction is spooled
	SpoolDir         string // empty: the system's temporary folder
}

// SourceTLS says how the connections to the source are protected. Files are
// read again at each connect.
type SourceTLS struct {
	Mode       TLSMode
	CA         string // PEM file; only with TLSVerify, empty: the system's
	Cert, Key  string // PEM files; both or neither
	ServerName string // only with TLSVerify; empty: the host of the address
}

// TLSMode is the use of TLS towards the source.
type TLSMode string

const (
	TLSDisabled  TLSMode = "disabled"
	TLSPreferred TLSMode = "preferred" // if the server offers it
	TLSRequired  TLSMode = "required"  // encrypted, the certificate unchecked
	TLSVerify    TLSMode = "verify"    // encrypted, certificate and name checked
)

// State is where the relay keeps its own tables, on the source server.
type State struct {
	Schema string
}

// Broker is one RabbitMQ cluster.
type Broker struct {
	URLs           []BrokerURL // at least one, all of one vhost; tried in turn
	User           string      // for the URLs that carry no user
	Password       Secret
	TLS            BrokerTLS
	Connections    int           // lanes
	InFlight       int           // messages unconfirmed per lane
	InFlightBytes  int64         // body bytes unconfirmed per lane; a larger body goes alone
	MaxMessageSize int64         // a larger body is refused as poison
	Heartbeat      time.Duration // whole seconds
	ConfirmTimeout time.Duration // not counted while the broker blocks
}

// BrokerTLS applies to amqps URLs; with Cert and Key the relay authenticates
// by EXTERNAL. Files are read again at each connect.
type BrokerTLS struct {
	CA         string // PEM file; empty: the system's
	Cert, Key  string // PEM files; both or neither
	ServerName string // empty: the host of the URL
}

// External tells that the client certificate is the login.
func (t BrokerTLS) External() bool { return t.Cert != "" && t.Key != "" }

// Checkpoint says how often the position is saved.
type Checkpoint struct {
	Every time.Duration // while messages are confirmed
	Idle  time.Duration // while only foreign transactions pass
}

// Lease says how leadership is kept and given up.
type Lease struct {
	TTL          time.Duration // whole seconds
	FastTakeover bool          // also hold a named lock that a dead session frees
	YieldAfter   time.Duration // resign after so long without any broker; at least TTL
}

// HTTP is the side for metrics and health.
type HTTP struct {
	Listen string // host:port
	Token  Secret // set whenever Listen is not on loopback
}

// Log is the shape of the program's log.
type Log struct {
	Level  LogLevel
	Format LogFormat
}

// LogLevel is the least level that is written.
type LogLevel string

const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// LogFormat is the encoding of a log line.
type LogFormat string

const (
	LogJSON    LogFormat = "json"
	LogConsole LogFormat = "console"
)
