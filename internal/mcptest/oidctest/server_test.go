package oidctest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"mcpgateway/internal/mcptest/oidctest"
)

// connect connects the go-sdk's client, which registers and logs in as the server requires.
func connect(t *testing.T, s *oidctest.ProtectedServer, p *oidctest.Provider, user string) (
	*mcp.ClientSession, error) {
	t.Helper()
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{redirectURI}},
		},
		AuthorizationCodeFetcher: func(_ context.Context, a *auth.AuthorizationArgs) (
			*auth.AuthorizationResult, error) {
			redirect, err := p.Approve(a.URL, user)
			if err != nil {
				return nil, err
			}
			u, err := url.Parse(redirect)
			if err != nil {
				return nil, err
			}
			q := u.Query()
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"),
				Iss: q.Get("iss")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.URL(), OAuthHandler: handler,
	}, nil)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// call calls a tool and returns what it returns.
func call(t *testing.T, s *mcp.ClientSession, tool, id string) (result map[string]string) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool,
		Arguments: map[string]any{"id": id, "text": "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Content[0].(*mcp.TextContent).Text), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func TestProtectedServer(t *testing.T) {
	for name, o := range map[string]oidctest.ServerOptions{
		"default": {}, "sessions": {Sessions: true}, "key set": {KeySet: true},
		"root metadata": {RootMetadata: true}, "bare challenge": {BareChallenge: true},
	} {
		for _, opaque := range []bool{false, true} {
			if opaque && o.KeySet {
				continue // has no signature
			}
			t.Run(fmt.Sprintf("%s, opaque=%v", name, opaque), func(t *testing.T) {
				p := oidctest.New(t, oidctest.Options{Opaque: opaque})
				s := oidctest.NewServer(t, p, o)
				ann, err := connect(t, s, p, "ann")
				if err != nil {
					t.Fatal(err)
				}
				bob, err := connect(t, s, p, "bob")
				if err != nil {
					t.Fatal(err)
				}
				for id, session := range map[string]*mcp.ClientSession{"ann": ann, "bob": bob} {
					if got := call(t, session, "read", id); got["user"] != id ||
						got["tool"] != "read" || got["id"] != id || got["text"] != "hello" {
						t.Errorf("%s: %v", id, got)
					}
					if n := s.Executions(id); n != 1 {
						t.Errorf("%s: %d executions", id, n)
					}
				}
				calls, tokens := s.Calls(), s.Tokens()
				if len(calls) != 2 || calls[0].Token == calls[1].Token || len(tokens) != 2 ||
					s.Refused(http.StatusUnauthorized) == 0 {
					t.Errorf("%d calls with %d tokens", len(calls), len(tokens))
				}
				for _, token := range tokens {
					if !slices.Contains(p.Secrets(), token) {
						t.Error("a token is not of the provider")
					}
				}
				wantRevision := "2026-07-28"
				if o.Sessions {
					wantRevision = "2025-11-25"
				}
				if got := ann.InitializeResult().ProtocolVersion; got != wantRevision {
					t.Errorf("revision %s", got)
				}

				// Tokens that have ended are refused, and the client logs in again.
				before := p.Counts()[oidctest.AuthorizationEndpoint]
				p.ExpireAccessTokens()
				call(t, ann, "read", "again")
				if n := p.Counts()[oidctest.AuthorizationEndpoint]; n != before+1 {
					t.Errorf("%d logins, then %d", before, n)
				}
			})
		}
	}
}

func TestProtectedServerScopes(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{})
	s := oidctest.NewServer(t, p, oidctest.ServerOptions{
		Tools: []string{"read", "write"}, Scopes: []string{"basic"},
		ToolScopes: map[string][]string{"write": {"files:write"}},
	})
	session, err := connect(t, s, p, "ann")
	if err != nil {
		t.Fatal(err)
	}
	call(t, session, "read", "1")
	if n := s.Refused(http.StatusForbidden); n != 0 {
		t.Fatalf("%d refused", n)
	}
	call(t, session, "write", "2") // after a step-up
	if n := s.Refused(http.StatusForbidden); n != 1 || s.Executions("2") != 1 {
		t.Errorf("%d refused, %d executions", n, s.Executions("2"))
	}
	requests := p.Requests(oidctest.AuthorizationEndpoint)
	last := strings.Fields(requests[len(requests)-1].Form.Get("scope"))
	if slices.Sort(last); !slices.Equal(last, []string{"basic", "files:write"}) {
		t.Errorf("scopes %q", last)
	}
}

// challenge returns the status and the challenge for a POST with a token.
func challenge(t *testing.T, s *oidctest.ProtectedServer, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.URL(), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode, res.Header.Get("WWW-Authenticate")
}

func TestProtectedServerRefusesBadTokens(t *testing.T) {
	for _, keySet := range []bool{false, true} {
		p := oidctest.New(t, oidctest.Options{})
		s := oidctest.NewServer(t, p, oidctest.ServerOptions{KeySet: keySet,
			Scopes: []string{"basic", "more"}, ScopesSupported: []string{"basic"},
			EditMetadata: func(d map[string]any) { d["extra"] = true }})
		metadata := strings.TrimSuffix(s.URL(), "/mcp") +
			"/.well-known/oauth-protected-resource/mcp"
		ok := oidctest.TokenSpec{Audience: []string{s.Resource()},
			Scopes: []string{"basic", "more"}}
		expired, other, scopes := ok, ok, ok
		expired.Lifetime, other.Audience, scopes.Scopes = -1, []string{"other"}, []string{"basic"}
		const params = `scope="basic more", resource_metadata="`
		for _, want := range []struct {
			token, challenge string
			status           int
		}{
			{"", `Bearer ` + params, 401},
			{"Basic abc", `Bearer ` + params, 401},
			{"Bearer wrong", `Bearer error="invalid_token", ` + params, 401},
			{"Bearer " + p.IssueToken(expired), `Bearer error="invalid_token", ` + params, 401},
			{"Bearer " + p.IssueToken(other), `Bearer error="invalid_token", ` + params, 401},
			{"Bearer " + p.IssueToken(scopes), `Bearer error="insufficient_scope", ` + params, 403},
		} {
			status, got := challenge(t, s, want.token)
			if status != want.status || got != want.challenge+metadata+`"` {
				t.Errorf("%s: %d %s", want.token, status, got)
			}
		}
		if status, got := challenge(t, s, "Bearer "+p.IssueToken(ok)); status == 401 ||
			status == 403 || got != "" {
			t.Errorf("valid token: %d %s", status, got)
		}
		doc := document(t, metadata)
		if doc["resource"] != s.URL() || fmt.Sprint(doc["authorization_servers"]) !=
			"["+p.Issuer()+"]" || fmt.Sprint(doc["scopes_supported"]) != "[basic]" ||
			doc["extra"] != true {
			t.Errorf("metadata %v", doc)
		}
		if status, _ := get(t, strings.TrimSuffix(metadata, "/mcp")); status != 404 {
			t.Errorf("metadata at the root: %d", status)
		}
		if len(s.Calls()) != 0 {
			t.Error("a tool was executed")
		}
	}
}

// An authorization server that cannot be reached makes tokens invalid, not valid.
func TestProtectedServerWithoutProvider(t *testing.T) {
	for _, keySet := range []bool{false, true} {
		p := oidctest.New(t, oidctest.Options{})
		s := oidctest.NewServer(t, p, oidctest.ServerOptions{KeySet: keySet})
		token := "Bearer " + p.IssueToken(oidctest.TokenSpec{Audience: []string{s.Resource()}})
		for _, e := range []oidctest.Endpoint{
			oidctest.OpenIDMetadata, oidctest.IntrospectionEndpoint,
		} {
			p.SetFault(e, oidctest.Fault{Status: 500})
		}
		if status, _ := challenge(t, s, token); status != 401 {
			t.Errorf("while the provider fails: %d", status)
		}
		p.ClearFaults()
		if status, _ := challenge(t, s, token); status == 401 {
			t.Errorf("after that: %d", status)
		}
	}
}

func TestProtectedServerChangesProvider(t *testing.T) {
	first, second := oidctest.New(t, oidctest.Options{}), oidctest.New(t, oidctest.Options{})
	s := oidctest.NewServer(t, first, oidctest.ServerOptions{})
	spec := oidctest.TokenSpec{Audience: []string{s.Resource()}}
	old, next := "Bearer "+first.IssueToken(spec), "Bearer "+second.IssueToken(spec)
	for _, want := range []struct {
		token   string
		refused bool
	}{{old, false}, {next, true}} {
		if status, _ := challenge(t, s, want.token); (status == 401) != want.refused {
			t.Errorf("before the change: %d", status)
		}
	}
	s.SetProvider(second)
	if status, _ := challenge(t, s, old); status != 401 {
		t.Errorf("old token after the change: %d", status)
	}
	session, err := connect(t, s, second, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, session, "read", "1"); got["user"] != "ann" {
		t.Errorf("result %v", got)
	}
	if n := first.Counts()[oidctest.TokenEndpoint]; n != 0 {
		t.Errorf("%d token requests at the old provider", n)
	}
}
