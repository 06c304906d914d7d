package oauthclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// A public name may have a private address: the connection is not opened.
func TestConnectionToAPrivateAddressIsNotOpened(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	address := s.Listener.Addr().String()
	server, err := url.Parse("https://mcp.example/mcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, allowed := range []bool{false, true} {
		g := newGuard(server, allowed, nil)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://as.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		transport, err := g.transport(req)
		if err != nil {
			t.Fatal(err)
		}
		// as if as.example had this address
		conn, err := transport.(*http.Transport).DialContext(t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
		}
		if isRefused := errors.Is(err, errNotPublic); isRefused == allowed {
			t.Errorf("allow_private %v: %v", allowed, err)
		}
	}
}

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
