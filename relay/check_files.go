package relay

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"github.com/towpath/towpath/configs"
)

// checkFiles reads every file that the configuration names, as this user.
func checkFiles(fs *findings, c *configs.Config) {
	before := len(*fs)
	read := func(key string, err error) {
		if err != nil {
			fs.fail(key, "correct the path, or let this user read the file", "%v", err)
		}
	}
	secret := func(key string, s configs.Secret) {
		_, err := s.Read()
		read(key, err)
	}
	secret("source.password", c.Source.Password)
	secret("broker.password", c.Broker.Password)
	secret("http.token", c.HTTP.Token)
	if c.Source.Socket == "" {
		_, err := Endpoint(c).TLS.Config(c.Source.Address)
		read("source.tls", err)
	}
	_, err := brokerTLS(c.Broker.TLS)
	read("broker.tls", err)
	for _, f := range []struct{ key, path string }{
		{"source.tls.ca", c.Source.TLS.CA}, {"source.tls.cert", c.Source.TLS.Cert},
		{"broker.tls.ca", c.Broker.TLS.CA}, {"broker.tls.cert", c.Broker.TLS.Cert},
	} {
		if f.path != "" {
			checkExpiry(fs, f.key, f.path)
		}
	}
	dir := c.Source.SpoolDir
	if dir == "" {
		dir = os.TempDir()
	}
	if f, err := os.CreateTemp(dir, "towpath-check-"); err != nil {
		fs.fail("source.spool_dir", "name a folder that this user may write to", "a large transaction could not be spooled: %v", err)
	} else {
		f.Close()
		read("source.spool_dir", os.Remove(f.Name()))
	}
	if len(*fs) == before {
		fs.ok("files", "all that the configuration names can be read")
	}
}

// expiresSoon is how long before its end a certificate is warned of.
const expiresSoon = 14 * 24 * time.Hour

func checkExpiry(fs *findings, key, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return // said already
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // a key in the same file
		}
		what := fmt.Sprintf("the certificate of %s in %s ends at %s", cert.Subject, path, cert.NotAfter.UTC().Format(time.RFC3339))
		switch left := time.Until(cert.NotAfter); {
		case left <= 0:
			fs.fail(key, "put a new certificate there; it is read at the next connect", "%s: connections are refused", what)
		case left < expiresSoon:
			fs.warn(key, "put a new certificate there; it is read at the next connect", "%s", what)
		}
	}
}
