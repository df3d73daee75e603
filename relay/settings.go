package relay

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"

	"go.uber.org/zap"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay/rabbit"
)

// What the parts of the relay are told of the configuration.

// Endpoint is how the source is reached by SQL.
func Endpoint(c *configs.Config) checkpoint.Endpoint {
	s := c.Source
	return checkpoint.Endpoint{
		Address: s.Address, Socket: s.Socket, User: s.User, Password: s.Password.Read,
		TLS: checkpoint.TLS{Mode: string(s.TLS.Mode), CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key, ServerName: s.TLS.ServerName},
	}
}

func sourceOptions(c *configs.Config, ts *tables, log *zap.Logger) canal.Options {
	e := Endpoint(c)
	o := canal.Options{
		Address: e.Address, User: e.User, Password: e.Password,
		TLSMode: canal.TLSMode(e.TLS.Mode), TLS: func() (*tls.Config, error) { return e.TLS.Config(e.Address) },
		ServerID: c.Source.ServerID, Tables: ts.interest,
		TransactionBytes: c.Source.TransactionBytes, SpoolDir: c.Source.SpoolDir, Logger: log,
	}
	if e.Socket != "" {
		o.Address, o.TLSMode = e.Socket, canal.TLSDisabled
	}
	return o
}

// Broker is how the broker is reached, under a connection name.
func Broker(c *configs.Config, name string) rabbit.Broker {
	b := rabbit.Broker{
		Name: name, Heartbeat: c.Broker.Heartbeat,
		Credentials: func() (string, string, error) {
			password, err := c.Broker.Password.Read()
			return c.Broker.User, password, err
		},
		TLS: func() (*tls.Config, error) { return brokerTLS(c.Broker.TLS) },
	}
	for _, u := range c.Broker.URLs {
		b.URLs = append(b.URLs, brokerURL(u))
	}
	return b
}

// brokerURL writes the URL out, login included: it must reach no log.
func brokerURL(u configs.BrokerURL) string {
	full := url.URL{Scheme: "amqp", Host: u.Address, Path: "/" + u.Vhost, RawPath: "/" + url.PathEscape(u.Vhost)}
	if u.TLS {
		full.Scheme = "amqps"
	}
	if u.User != "" {
		password, _ := u.Password.Read() // a value of the URL itself: no file is read
		full.User = url.UserPassword(u.User, password)
	}
	return full.String()
}

func brokerTLS(t configs.BrokerTLS) (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read broker.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read broker.tls.ca: no certificate in %s", t.CA)
		}
	}
	if t.External() {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read broker.tls.cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// fenceName is the exclusive queue of one lane: of this stream, of these state
// tables, of this server, and of nobody else.
func fenceName(server, schema, stream string, lane int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", server, schema, stream))
	return fmt.Sprintf("towpath.%s.lane.%d", hex.EncodeToString(sum[:8]), lane)
}
