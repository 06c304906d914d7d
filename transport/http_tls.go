package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
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
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s has no certificate in PEM", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
