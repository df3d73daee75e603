package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are a certificate authority, made at run time, and what it
// issued, as PEM files in one folder.
type Certificates struct {
	CA         string  // path of the authority's certificate
	Server     KeyPair // for localhost and 127.0.0.1
	dir        string
	issuer     *x509.Certificate
	issuerKey  *ecdsa.PrivateKey
	lastSerial int64
}

// KeyPair is a certificate and its private key, as paths.
type KeyPair struct{ Cert, Key string }

// NewCertificates makes an authority and a server's certificate in dir.
func NewCertificates(dir string) (*Certificates, error) {
	c := &Certificates{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pair, err := c.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	if err != nil {
		return nil, err
	}
	c.CA = pair.Cert
	c.Server, err = c.issue("server", &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	return c, err
}

// Client issues a client's certificate, whose common name is name.
func (c *Certificates) Client(name string) (KeyPair, error) {
	return c.issue(name, &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Ended issues a certificate, for a client and for the server's names, that
// ended so long ago.
func (c *Certificates) Ended(name string, ago time.Duration) (KeyPair, error) {
	return c.issue(name, &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(-ago),
	})
}

// ClientConfig trusts the authority and shows the given certificates.
func (c *Certificates) ClientConfig(own ...KeyPair) (*tls.Config, error) {
	roots := x509.NewCertPool()
	roots.AddCert(c.issuer)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	for _, pair := range own {
		cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = append(config.Certificates, cert)
	}
	return config, nil
}

// issue completes a template and signs it; the first one signs itself.
func (c *Certificates) issue(name string, template *x509.Certificate) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	c.lastSerial++
	template.SerialNumber = big.NewInt(c.lastSerial)
	template.Subject = pkix.Name{CommonName: name}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	template.NotBefore = template.NotAfter.Add(-25 * time.Hour)
	if c.issuer == nil {
		c.issuer, c.issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.issuer, &key.PublicKey, c.issuerKey)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	if c.issuer == template {
		if c.issuer, err = x509.ParseCertificate(der); err != nil {
			return KeyPair{}, err
		}
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return KeyPair{}, err
	}
	pair := KeyPair{filepath.Join(c.dir, name+".pem"), filepath.Join(c.dir, name+"-key.pem")}
	if err := os.WriteFile(pair.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return KeyPair{}, err
	}
	return pair, os.WriteFile(pair.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)
}
