package reload

import (
	"bytes"
	"crypto/tls"
	"slices"
	"strings"
	"sync/atomic"

	"mcpgateway/internal/config"
)

type certificate = tls.Certificate

// Certificates contains the certificate in force, nil if there is none.
type Certificates struct{ atomic.Pointer[certificate] }

// isCurrent reports whether a certificate, or nil, equals the certificate in force.
func (c *Certificates) isCurrent(other *certificate) bool {
	current := c.Load()
	if current == nil || other == nil {
		return current == other
	}
	return slices.EqualFunc(current.Certificate, other.Certificate, bytes.Equal)
}

// TLSConfig returns a configuration that uses, for each handshake, the certificate then in force;
// nil if there is no certificate.
func (c *Certificates) TLSConfig() *tls.Config {
	if c.Load() == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.Load(), nil
		},
		MinVersion: tls.VersionTLS12,
	}
}

// LoadCertificate reads the certificate; nil if no certificate is configured. An error is a
// [config.Error].
func LoadCertificate(l *config.Loaded, c config.TLS) (*certificate, error) {
	if c.Cert == "" {
		return nil, nil
	}
	const hint = "tls.cert and tls.key name PEM files: a certificate, " +
		"and the key that belongs to it"
	cert, err := config.ReadNamed(c.Cert)
	if err != nil {
		return nil, l.PathError("tls.cert", c.Cert, err, hint)
	}
	key, err := config.ReadNamed(c.Key)
	if err != nil {
		return nil, l.PathError("tls.key", c.Key, err, hint)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		e := l.ErrorAt("tls")
		e.Problem, e.Hint = strings.TrimPrefix(err.Error(), "tls: "), hint
		return nil, e
	}
	return &pair, nil
}
