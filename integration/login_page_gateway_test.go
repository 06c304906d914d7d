//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/mcptest/oidctest"
)

// openStartPage is the user who opens the start page of a login, continues, and logs in. The
// provider asks nothing.
func openStartPage(ctx context.Context, address string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	visit := func(method, address string) (*http.Response, string, error) {
		req, err := http.NewRequestWithContext(ctx, method, address, nil)
		if err != nil {
			return nil, "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s: %s", method, resp.Status, body)
		}
		return resp, string(body), err
	}
	if _, page, err := visit("GET", address); err != nil || !strings.Contains(page, "<form") {
		return fmt.Errorf("the start page: %w: %s", err, page)
	}
	resp, page, err := visit("POST", address)
	if err != nil {
		return err
	}
	_, to, ok := strings.Cut(resp.Header.Get("Refresh"), "url=")
	if !ok {
		return fmt.Errorf("the page leads nowhere: %s", page)
	}
	_, page, err = visit("GET", to)
	if err == nil && !strings.Contains(page, "You are logged in") {
		err = errors.New(page)
	}
	return err
}

// loginSetup is a gateway whose only backend requires a login, which has been made once, so that
// the tools are known.
func loginSetup(t testing.TB, o oidctest.ServerOptions) (
	*oidctest.Provider, *oidctest.ProtectedServer, *setup,
) {
	t.Helper()
	p := newProvider(t, oidctest.Options{})
	server := oidctest.NewServer(t, p, o)
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "20s"}},
		backend{Name: "notes", URL: server.URL(), OAuth: map[string]any{"allow_private": true}})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	login := exec.Command(gateway(t), "-c", s.config, "login", "notes")
	login.Env = s.env("BROWSER="+exe, helperEnv+"=helper-browser")
	if out, err := combinedOutput(t, login); err != nil ||
		!strings.Contains(string(out), "notes offers 2 tools") {
		t.Fatalf("login: %v\n%s", err, out)
	}
	return p, server, s
}

// connectWithUser connects a client whose user opens the pages of URL elicitations; pages counts
// them. Without it, the client has no elicitation.
func connectWithUser(t testing.TB, revision string, transport gosdk.Transport,
	pages *atomic.Int32) *gosdk.ClientSession {
	t.Helper()
	o := &gosdk.ClientOptions{}
	if pages != nil {
		o.Capabilities = &gosdk.ClientCapabilities{Elicitation: &gosdk.ElicitationCapabilities{
			Form: &gosdk.FormElicitationCapabilities{}, URL: &gosdk.URLElicitationCapabilities{}}}
		o.ElicitationHandler = func(ctx context.Context, req *gosdk.ElicitRequest) (
			*gosdk.ElicitResult, error,
		) {
			pages.Add(1)
			if req.Params.Mode != "url" || !strings.Contains(req.Params.Message, "notes") {
				return nil, fmt.Errorf("asked %+v", req.Params)
			}
			if err := openStartPage(ctx, req.Params.URL); err != nil {
				return nil, err
			}
			return &gosdk.ElicitResult{Action: "accept"}, nil
		}
	}
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, o)
	session, err := client.Connect(t.Context(), transport,
		&gosdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// A call to a backend whose login has ended asks the client to open the gateway's start page, and
// continues when the login is done.
func TestCallAsksForTheLoginAndContinues(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		for _, over := range []string{"HTTP", "stdio"} {
			for _, sessions := range []bool{false, true} {
				name := fmt.Sprintf("%s over %s, server with sessions %v", revision, over, sessions)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					p, server, s := loginSetup(t, oidctest.ServerOptions{Sessions: sessions})
					var transport gosdk.Transport
					if over == "HTTP" {
						_, url := s.serveHTTP()
						transport = &gosdk.StreamableClientTransport{Endpoint: url,
							HTTPClient: separateConnections()}
					} else {
						gw := exec.Command(gateway(t), "-c", s.config)
						stderr := stderrFile(t)
						defer stderr.Close()
						gw.Env, gw.Stderr = s.env(), stderr
						transport = &gosdk.CommandTransport{Command: gw,
							TerminateDuration: waitTimeout}
					}
					var pages atomic.Int32
					session := connectWithUser(t, revision, transport, &pages)
					for round := range 3 {
						if round > 0 {
							p.RevokeGrants()
						}
						id := fmt.Sprint("call ", round)
						if err := callSucceeds(t.Context(), session, "read",
							map[string]any{"id": id}); err != nil {
							t.Fatalf("round %d: %v", round, err)
						}
						if n := server.Executions(id); n != 1 || pages.Load() != int32(round) {
							t.Errorf("round %d: ran %d times, asked %d times", round, n, pages.Load())
						}
					}
				})
			}
		}
	}
}

// A call that lacks a scope waits for the login with this scope, although the backend needs no
// login for other calls. It is not sent again before.
func TestCallWithMissingScopeWaitsForTheLogin(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			p, server, s := loginSetup(t, oidctest.ServerOptions{Scopes: []string{"mcp:read"},
				ToolScopes: map[string][]string{"write": {"mcp:write"}}})
			_, url := s.serveHTTP()
			var pages atomic.Int32
			session := connectWithUser(t, revision, &gosdk.StreamableClientTransport{
				Endpoint: url, HTTPClient: separateConnections()}, &pages)
			before := len(p.Requests(oidctest.AuthorizationEndpoint))
			err := callSucceeds(t.Context(), session, "write", map[string]any{"id": "w"})
			logins := len(p.Requests(oidctest.AuthorizationEndpoint)) - before
			n := server.Executions("w")
			if err != nil || n != 1 || pages.Load() != 1 || logins != 1 {
				t.Errorf("%v: ran %d times, asked %d times, %d logins", err, n, pages.Load(),
					logins)
			}
		})
	}
}

// A call that waits for a login also continues when somebody logs in with the command.
func TestCallContinuesAfterGatewayLogin(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			p, server, s := loginSetup(t, oidctest.ServerOptions{})
			_, url := s.serveHTTP()
			pages := &gosdk.ElicitationCapabilities{URL: &gosdk.URLElicitationCapabilities{}}
			o := &gosdk.ClientOptions{
				Capabilities: &gosdk.ClientCapabilities{Elicitation: pages}}
			var logins atomic.Int32
			o.ElicitationHandler = func(context.Context, *gosdk.ElicitRequest) (
				*gosdk.ElicitResult, error) {
				logins.Add(1)
				s.logIn("notes")
				return &gosdk.ElicitResult{Action: "accept"}, nil
			}
			client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, o)
			session, err := client.Connect(t.Context(), &gosdk.StreamableClientTransport{
				Endpoint: url, HTTPClient: separateConnections()},
				&gosdk.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			p.RevokeGrants()
			err = callSucceeds(t.Context(), session, "read", map[string]any{"id": "one"})
			if n := server.Executions("one"); err != nil || n != 1 || logins.Load() != 1 {
				t.Errorf("%v: ran %d times, asked %d times", err, n, logins.Load())
			}
		})
	}
}

// A client that cannot be asked gets an error with the link, and with the command.
func TestClientWithoutElicitationGetsTheLink(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			p, _, s := loginSetup(t, oidctest.ServerOptions{})
			_, url := s.serveHTTP()
			session := connectWithUser(t, revision, &gosdk.StreamableClientTransport{
				Endpoint: url, HTTPClient: separateConnections()}, nil)
			p.RevokeGrants()
			call := func() string {
				result, err := session.CallTool(t.Context(), &gosdk.CallToolParams{Name: "read"})
				if err != nil {
					return err.Error()
				}
				if result.IsError {
					return result.Content[0].(*gosdk.TextContent).Text
				}
				return ""
			}
			text := call()
			_, link, ok := strings.Cut(text, "open ")
			link, _, _ = strings.Cut(link, " ")
			if !ok || !strings.Contains(text, "gateway login notes") ||
				!strings.Contains(text, "did not run") {
				t.Fatalf("%q", text)
			}
			if err := openStartPage(t.Context(), link); err != nil {
				t.Fatal(err)
			}
			if text := call(); text != "" {
				t.Errorf("after the login: %q", text)
			}
		})
	}
}
