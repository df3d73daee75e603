package rabbit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 15 * time.Second // RabbitMQ holds a refused login back for about 3 s
	rpcTimeout       = 15 * time.Second
	closeTimeout     = time.Second
	frameMax         = 131072 // what every RabbitMQ offers
	controlBytes     = 64 << 10
)

// Broker says where the nodes of a broker are and how to log in there.
type Broker struct {
	// URLs are the nodes of one cluster, tried in turn in random order. Their own
	// credentials win over Credentials. Only scheme, credentials, host, port and
	// vhost of an url count.
	URLs []string
	// Credentials is asked at each connect, so that a changed file is seen.
	Credentials func() (user, password string, err error)
	// TLS is asked at each connect to an amqps url. A configuration with a client
	// certificate logs in by EXTERNAL where the broker offers it. Nil: the
	// system's roots, no certificate.
	TLS func() (*tls.Config, error)
	// Name is the connection name that the broker's tools show.
	Name string
	// Heartbeat, whole seconds: a silent broker is given up after 1.5 of it.
	Heartbeat time.Duration
}

// Peer is what a connected broker says of itself.
type Peer struct {
	Address string // host:port
	Vhost   string
	Cluster string
	Version string
}

// connection is one open AMQP connection over a wire.
type connection struct {
	*amqp.Connection
	wire *wire
	peer Peer
}

// connect opens a connection to the first node that takes it. Everything that
// was wrong with the others is in the error, without a secret.
func (b Broker) connect(ctx context.Context, buffer int, drained func()) (*connection, error) {
	if len(b.URLs) == 0 {
		return nil, errors.New("connect to the broker: no url is configured")
	}
	errs := make([]error, len(b.URLs)) // in the order of the urls: the same failures read the same
	for _, i := range rand.Perm(len(b.URLs)) {
		c, err := b.dial(ctx, b.URLs[i], buffer, drained)
		if err == nil {
			return c, nil
		}
		errs[i] = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (b Broker) dial(ctx context.Context, text string, buffer int, drained func()) (*connection, error) {
	// The parser's own errors quote the url, password and all.
	uri, err := amqp.ParseURI(text)
	if err != nil {
		return nil, errors.New("parse a broker url: it must be amqp://user:password@host:port/vhost, reserved characters percent-encoded")
	}
	address := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	fail := func(err error) (*connection, error) {
		return nil, fmt.Errorf("connect to the broker at %s: %w", address, err)
	}
	user, password, err := b.login(text, uri)
	if err != nil {
		return fail(err)
	}

	dialer := net.Dialer{Timeout: dialTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fail(err)
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	_ = raw.SetDeadline(time.Now().Add(handshakeTimeout))

	conn, external, err := b.secure(ctx, raw, uri)
	if err != nil {
		raw.Close()
		return fail(err)
	}
	var sasl []amqp.Authentication
	if external {
		sasl = append(sasl, &amqp.ExternalAuth{})
	}
	if user != "" {
		sasl = append(sasl, &amqp.PlainAuth{Username: user, Password: password})
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(b.Name)

	// The library writes into its Config: each connect needs a fresh one. Its
	// recovery must stay off: it credits confirms to the wrong message.
	w := newWire(conn, raw, buffer, drained)
	c, err := amqp.Open(w, amqp.Config{
		SASL:       sasl,
		Vhost:      uri.Vhost,
		FrameSize:  frameMax,
		Heartbeat:  max(b.Heartbeat, time.Second),
		Locale:     "en_US",
		Properties: properties,
	})
	if err != nil {
		w.abort() // the library leaves socket and reader behind
		return fail(explain(err, user, uri.Vhost))
	}
	cluster, _ := c.Properties["cluster_name"].(string)
	version, _ := c.Properties["version"].(string)
	return &connection{c, w, Peer{Address: address, Vhost: uri.Vhost, Cluster: cluster, Version: version}}, nil
}

// login returns the url's own credentials, or the configured ones.
func (b Broker) login(text string, uri amqp.URI) (user, password string, err error) {
	if u, err := url.Parse(text); err == nil && u.User != nil || b.Credentials == nil {
		return uri.Username, uri.Password, nil
	}
	if user, password, err = b.Credentials(); err != nil {
		return "", "", fmt.Errorf("read the credentials: %w", err)
	}
	return user, password, nil
}

// secure shakes hands for an amqps url, and says whether a client certificate
// was at hand.
func (b Broker) secure(ctx context.Context, raw net.Conn, uri amqp.URI) (_ net.Conn, external bool, err error) {
	if uri.Scheme != "amqps" {
		return raw, false, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if b.TLS != nil {
		given, err := b.TLS()
		if err != nil {
			return nil, false, fmt.Errorf("prepare TLS: %w", err)
		}
		if given != nil {
			config = given.Clone()
		}
	}
	if config.ServerName == "" {
		config.ServerName = uri.Host
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, false, fmt.Errorf("shake hands over TLS: %w", err)
	}
	return conn, len(config.Certificates) > 0 || config.GetClientCertificate != nil, nil
}

// explain turns the library's words for a refused login into ones that help.
func explain(err error, user, vhost string) error {
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		return fmt.Errorf("login as %q was refused, or the broker went away meanwhile: check user and password", user)
	case errors.Is(err, amqp.ErrVhost):
		return fmt.Errorf("vhost %q was refused: check that it exists and that %q may use it", vhost, user)
	case errors.Is(err, amqp.ErrSASL):
		return errors.New("the broker offers no way to log in that is configured here: EXTERNAL needs a client certificate, PLAIN a user")
	}
	return plainly(err)
}

// guard runs one request of the library, none of which has a time limit of its
// own, and breaks the connection when it takes too long.
func (c *connection) guard(request func() error) error {
	late := time.AfterFunc(rpcTimeout, c.wire.abort)
	defer late.Stop()
	return request()
}

// closeGently tells the broker good-bye, briefly. The library's own deadline
// does not do: its heartbeats move it.
func (c *connection) closeGently() {
	late := time.AfterFunc(closeTimeout, c.wire.abort)
	defer late.Stop()
	_ = c.Close()
	c.wire.abort()
}

// backoff returns the pause before attempt n (from 0): exponential to a
// ceiling, jittered, so that many clients do not come back as one.
func backoff(n int, ceiling time.Duration) time.Duration {
	d := min(100*time.Millisecond<<min(n, 10), ceiling)
	return d/2 + rand.N(d/2)
}

// pause sleeps, or returns early with ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
