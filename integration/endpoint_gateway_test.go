//go:build unix

package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// HTTP+SSE clients find the endpoint for their messages behind a proxy that serves the gateway
// under a path prefix.
func TestHTTPSSE_BehindPathPrefix_F_DOOR_8(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	url := s.serveURL()
	awaitReady(t, url)
	target, err := neturl.Parse(strings.TrimSuffix(url, "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/tools/gw",
		httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	for _, path := range []string{"/tools/gw/sse", "/tools/gw/sse/"} {
		for name, dial := range map[string]sessionDialer{"gosdk": goSDKDialer(true),
			"mcpgo": mcpGoDialer(true)} {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			c, err := dial(ctx, proxy.URL+path, "", newSessionEvents())
			if err != nil {
				t.Errorf("%s at %s: %v", name, path, err)
				cancel()
				continue
			}
			if names, err := c.list(ctx); err != nil || len(names) == 0 {
				t.Errorf("%s at %s: %v, %v", name, path, names, err)
			}
			if err := c.close(); err != nil {
				t.Errorf("%s at %s: %v", name, path, err)
			}
			cancel()
		}
		if out := endpointClient(t, s, "sse", proxy.URL+path); out != "3" {
			t.Errorf("npm at %s: %s", path, out)
		}
	}
}

// A client that would sign in with OAuth shows its user that the gateway needs a token, and how
// to set it.
func TestAuth_OAuthClientShowsTokenHint_F_DOOR_5(t *testing.T) {
	t.Parallel()
	s := newSetup(t,
		map[string]any{"auth": map[string]any{"tokens": []string{secret(t, "token")}}},
		backend{Name: "demo", Embedded: "demo"})
	out := endpointClient(t, s, "oauth", s.serveURL())
	if !strings.Contains(out, "It needs a bearer token") ||
		!strings.Contains(out, "Authorization: Bearer TOKEN") {
		t.Errorf("the user sees: %s", out)
	}
}

func endpointClient(t *testing.T, s *setup, args ...string) string {
	t.Helper()
	module(t, "@modelcontextprotocol", "sdk", "package.json")
	cmd := exec.CommandContext(t.Context(), node(t),
		append([]string{"testdata/endpoint-client.mjs"}, args...)...)
	cmd.Env = s.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The token generated for auto is accepted, also after a restart; health needs no token.
func TestAutoToken_F_SEC_6_Health_F_CFG_3(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"auth": map[string]any{"tokens": []string{"auto"}}},
		backend{Name: "demo", Embedded: "demo"})
	for range 2 {
		url := s.serveURL()
		text, err := os.ReadFile(filepath.Join(s.dir, "state", "token"))
		if err != nil {
			t.Fatal(err)
		}
		token := strings.TrimSpace(string(text))
		for with, want := range map[string]int{token: 200, "auto": 401,
			secret(t, "wrong token"): 401} {
			client := &http.Client{Transport: bearer{http.DefaultTransport, with}}
			res, err := client.Get(strings.TrimSuffix(url, "/mcp") + "/readyz?backends=1")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want && (want == 401 || res.StatusCode != 503) {
				t.Errorf("%s", res.Status)
			}
		}
		cmd := exec.CommandContext(t.Context(), gateway(t), "health", url)
		cmd.Env = s.env()
		if out, err := combinedOutput(t, cmd); err != nil {
			t.Errorf("health: %v: %s", err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), gateway(t), "health", "http://127.0.0.1:"+freePort(t))
	cmd.Env = s.env()
	if out, err := combinedOutput(t, cmd); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("health of none: %v: %s", err, out)
	}
}
