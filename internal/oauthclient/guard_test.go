package oauthclient

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// The keys tls.cert and tls.server_name of a backend are not for its authorization server.
func TestCertificateAndServerNameAreOnlyForTheBackend(t *testing.T) {
	serve := func() (*httptest.Server, <-chan *tls.ConnectionState) {
		states := make(chan *tls.ConnectionState, 1)
		s := httptest.NewUnstartedServer(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { states <- r.TLS }))
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, states
	}
	backend, atBackend := serve()
	issuer, atIssuer := serve()
	roots := x509.NewCertPool()
	roots.AddCert(backend.Certificate())
	config := &tls.Config{RootCAs: roots, ServerName: "example.com",
		Certificates: backend.TLS.Certificates}
	u, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := newGuard(u, true, config).client()
	for _, test := range []struct {
		url          string
		states       <-chan *tls.ConnectionState
		serverName   string
		certificates int
	}{{backend.URL, atBackend, "example.com", 1}, {issuer.URL, atIssuer, "", 0}} {
		resp, err := client.Get(test.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		s := <-test.states
		if s.ServerName != test.serverName || len(s.PeerCertificates) != test.certificates {
			t.Errorf("%s: server name %q, %d certificates", test.url, s.ServerName,
				len(s.PeerCertificates))
		}
	}
}
