package resourceserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/mcptest/oidctest"
)

// Metadata that lead to a private, local or link-local address outside of the origin of the issuer
// are refused: the log says why, and no request is sent. auth.oauth.allow_private permits them.
func TestMetadataAtPrivateAddresses(t *testing.T) {
	var requests atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/", http.StatusFound)
	}))
	defer other.Close()
	for _, member := range []string{"jwks_uri", "introspection_endpoint"} {
		for _, endpoint := range []string{
			other.URL + "/x", "http://169.254.169.254/latest/meta-data", "http://[fe80::1]/keys",
			"http://10.0.0.1/keys", "https://192.168.0.1/", "https://[fd00::1]/",
			"http://localhost:1/keys", "http://[::ffff:127.0.0.1]/",
		} {
			log, logger := mcptest.NewLog()
			options := oidctest.Options{Audience: []string{gatewayURL},
				Opaque:       member == "introspection_endpoint",
				EditMetadata: func(m map[string]any) { m[member] = endpoint }}
			p := oidctest.New(t, options)
			o := Options{Issuer: p.Issuer(), Audience: gatewayURL, Log: logger}
			if options.Opaque {
				o.ClientID, o.ClientSecret = p.IntrospectionClient()
			}
			v := newVerifier(t, o)
			wantUnavailable(t, v, p.IssueToken(oidctest.TokenSpec{}))
			if len(log.Lines("private, local or reserved address", "auth.oauth.allow_private")) != 1 {
				t.Errorf("%s: %s is not refused", member, endpoint)
			}
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// The endpoints of an issuer may be at another private address if the user permits it.
func TestAllowPrivate(t *testing.T) {
	var p *oidctest.Provider
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := http.Get(p.URL(oidctest.KeysEndpoint))
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		_, _ = io.Copy(w, response.Body)
	}))
	defer keys.Close()
	var v *Verifier
	p, v = newPair(t, oidctest.Options{
		EditMetadata: func(m map[string]any) { m["jwks_uri"] = keys.URL }},
		func(o *Options) { o.AllowPrivate = true })
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
}

// The address is checked when the connection is opened: a public name may have a private address.
func TestDialIsCheckedAfterTheNameIsResolved(t *testing.T) {
	for address, ok := range map[string]bool{
		"93.184.216.34:443": true, "127.0.0.1:443": false, "169.254.169.254:80": false,
	} {
		if err := checkDial("tcp", address, nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	c := newClient("https://issuer.example", false).Transport.(*issuerTransport)
	if _, err := c.public.DialContext(t.Context(), "tcp", "127.0.0.1:1"); err == nil ||
		err.Error() != "dial tcp 127.0.0.1:1: "+errNotPublic.Error() {
		t.Errorf("the transport opens connections to private addresses: %v", err)
	}
}
