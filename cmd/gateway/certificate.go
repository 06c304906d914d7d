package main

import (
	"bytes"
	"crypto/tls"
	"slices"
	"strings"
	"sync/atomic"

	"mcpgateway/internal/config"
)

// A certificate is what TLS is spoken with.
type certificate = tls.Certificate

// certificates is the one that is in force, nil if there is none.
type certificates struct{ atomic.Pointer[certificate] }

// same reports whether a certificate is the one in force.
func (c *certificates) same(other *certificate) bool {
	now := c.Load()
	if now == nil || other == nil {
		return now == other
	}
	return slices.EqualFunc(now.Certificate, other.Certificate, bytes.Equal)
}

// config returns how TLS is spoken, with the certificate that is in force at the time; nil
// if there is none.
func (c *certificates) config() *tls.Config {
	if c.Load() == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Load(), nil },
		MinVersion:     tls.VersionTLS12,
	}
}

// loadCertificate reads the certificate, nil if there is to be none. What is wrong with it is wrong
// with the configuration.
func loadCertificate(l *config.Loaded, c config.TLS) (*certificate, error) {
	if c.Cert == "" {
		return nil, nil
	}
	const hint = "tls.cert and tls.key name PEM files: a certificate, and the key that belongs to it"
	cert, err := config.ReadNamed(c.Cert)
	if err != nil {
		return nil, badPath(l, "tls.cert", c.Cert, err, hint)
	}
	key, err := config.ReadNamed(c.Key)
	if err != nil {
		return nil, badPath(l, "tls.key", c.Key, err, hint)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		e := l.ErrorAt("tls")
		e.Problem, e.Hint = strings.TrimPrefix(err.Error(), "tls: "), hint
		return nil, e
	}
	return &pair, nil
}
