package httpserver

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
	"mcpgateway/internal/resourceserver"
)

// An authorization server whose metadata or keys cannot be used makes the requests fail that need
// them: with 503, a text that says what to do, and the reason in the log only. Holders of tokens of
// the configuration, and of tokens that were verified before, are not affected meanwhile.
func TestFaultyAuthorizationServerAffectsNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  oidctest.Fault
		keys   string // jwks_uri of the metadata; "" = unchanged
		reason string
	}{
		"redirect": {fault: oidctest.Fault{Status: 302,
			Header: http.Header{"Location": {"http://169.254.169.254/"}}},
			reason: "redirects are not followed"},
		"10 MB": {fault: oidctest.Fault{Status: 200, Body: strings.Repeat(" ", 10<<20)},
			reason: "longer than 1048576 bytes"},
		"endless": {fault: oidctest.Fault{Status: 200, Body: strings.Repeat("[", 1000),
			Endless: true}, reason: "longer than 1048576 bytes"},
		"link-local": {keys: "http://169.254.169.254/latest/meta-data",
			reason: "auth.oauth.allow_private"},
		"private":   {keys: "https://10.0.0.1/keys", reason: "auth.oauth.allow_private"},
		"loopback":  {keys: "http://127.0.0.1:1/keys", reason: "auth.oauth.allow_private"},
		"no answer": {fault: oidctest.Fault{Delay: time.Hour, Status: 504}, reason: "status 504"},
	} {
		t.Run(name, func(t *testing.T) {
			p := oidctest.New(t, oidctest.Options{Audience: []string{audience},
				EditMetadata: func(m map[string]any) {
					if tt.keys != "" {
						m["jwks_uri"] = tt.keys
					}
				}})
			var log logBuffer
			h := newHarness(t, func(o *Options) {
				o.OAuth = resourceserver.New(resourceserver.Options{Issuer: p.Issuer(),
					Audience: audience, Log: slog.New(slog.NewTextHandler(&log, nil))})
				o.Tokens = []StaticToken{{Text: "static", Name: "colleague"}}
			})
			known := ""
			if tt.keys == "" {
				known = p.IssueToken(oidctest.TokenSpec{User: "ann"})
				h.want(statelessRequest("1", "echo", "").by(known), 200, "*")
				if err := p.RotateKeys(oidctest.ES256); err != nil {
					t.Fatal(err)
				}
				p.SetFault(oidctest.KeysEndpoint, tt.fault)
			}
			before := p.Counts()[oidctest.KeysEndpoint]
			type response struct {
				status           int
				body, retryAfter string
			}
			affected := make(chan response, 1)
			token := p.IssueToken(oidctest.TokenSpec{User: "bob"})
			go func() {
				res, body := h.do(statelessRequest("2", "echo", "").by(token))
				affected <- response{res.StatusCode, body, res.Header.Get("Retry-After")}
			}()
			if tt.fault.Delay > 0 {
				for p.Counts()[oidctest.KeysEndpoint] == before {
					runtime.Gosched() // the request is on its way
				}
			}
			h.want(statelessRequest("3", "echo", "").by("static"), 200, "*")
			if known != "" {
				h.want(statelessRequest("4", "echo", "").by(known), 200, "*")
			}
			if tt.fault.Delay > 0 {
				select {
				case got := <-affected:
					t.Errorf("the request did not wait: %+v", got)
				default:
				}
				p.ClearFaults() // ends the wait, which otherwise ends after 10 s
			}
			got := <-affected
			if got.status != 503 || got.retryAfter == "" ||
				!strings.Contains(got.body, "try again later") ||
				strings.Contains(got.body, tt.reason) || strings.Contains(got.body, "169.254") {
				t.Errorf("%+v", got)
			}
			for began := time.Now(); !strings.Contains(log.String(), tt.reason); {
				if time.Since(began) > 20*time.Second { // Run may log after the response
					t.Fatalf("the log has no %q:\n%s", tt.reason, log.String())
				}
				<-time.After(time.Millisecond)
			}
			if strings.Contains(log.String(), token) {
				t.Error("the token is in the log")
			}
			h.want(statelessRequest("5", "echo", "").by("static"), 200, "*")
		})
	}
}
