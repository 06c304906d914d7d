package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ClientTLS says how a server is reached over TLS. The zero value trusts the authorities of the
// system and shows no certificate.
type ClientTLS struct {
	CA         string // file with the authorities to trust, instead of the system's; PEM
	Cert, Key  string // files with the certificate to show and its key; PEM, both or none
	ServerName string // name that the server's certificate must have; "" = the host of the URL
}

// load reads the files. It returns nil for the zero value.
func (t ClientTLS) load() (*tls.Config, error) {
	if t == (ClientTLS{}) {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := read("tls.ca", t.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s has no certificate in PEM", absolute(t.CA))
		}
	}
	if t.Cert != "" {
		cert, err := read("tls.cert", t.Cert)
		if err != nil {
			return nil, err
		}
		key, err := read("tls.key", t.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// read reads the file that a key of the configuration names.
func read(key, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if at, is := errors.AsType[*fs.PathError](err); is {
		err = at.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", key, absolute(path), err)
	}
	return text, nil
}

// absolute returns path from the root, for an error.
func absolute(path string) string {
	if all, err := filepath.Abs(path); err == nil {
		return all
	}
	return path
}
