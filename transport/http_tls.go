package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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

// tlsHint returns what to do about an error of TLS, "" if that is not known.
func tlsHint(err error) string {
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "set tls.ca of the backend, or SSL_CERT_FILE of the gateway, to a file with the certificate of that authority"
	}
	if _, is := errors.AsType[x509.HostnameError](err); is {
		return "set tls.server_name of the backend to the name in the certificate if that is the right server"
	}
	if op, is := errors.AsType[*net.OpError](err); is && op.Op == "remote error" && containsAny(op.Err.Error(), "certificate", "handshake failure") {
		return "set tls.cert and tls.key of the backend if the server asks for a certificate"
	}
	return ""
}
