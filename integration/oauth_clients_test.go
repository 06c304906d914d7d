//go:build unix

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"mcpgateway/internal/mcptest/oidctest"
)

const loginRedirect = "http://127.0.0.1:1/callback"

// An oauthGateway is a gateway with an authorization server, and with backends of each transport
// whose requests are recorded.
type oauthGateway struct {
	*setup
	process  *rawClient
	url      string
	provider *oidctest.Provider
	stdin    string // file with the environment and the input of the stdio backend

	mu       sync.Mutex
	received bytes.Buffer // requests to the HTTP backends; guarded by mu
}

// newOAuthGateway starts a gateway for the access tokens of a provider. more contains further keys
// of auth.oauth; all of them may depend on the provider.
func newOAuthGateway(t *testing.T, o oidctest.Options,
	more func(*oidctest.Provider) map[string]any) *oauthGateway {
	g := &oauthGateway{provider: newProvider(t, o)}
	server := gosdk.NewServer(&gosdk.Implementation{Name: "web", Version: "1"}, nil)
	gosdk.AddTool(server, &gosdk.Tool{Name: "who"}, func(context.Context, *gosdk.CallToolRequest,
		struct{}) (*gosdk.CallToolResult, any, error) {
		return &gosdk.CallToolResult{}, nil, nil
	})
	of := func(*http.Request) *gosdk.Server { return server }
	mux := http.NewServeMux()
	mux.Handle("/sse", gosdk.NewSSEHandler(of, nil))
	mux.Handle("/", gosdk.NewStreamableHTTPHandler(of, nil))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := httputil.DumpRequest(r, true)
		g.mu.Lock()
		g.received.Write(text)
		g.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	mirror := helperBackend("mirror", "mirror", notesFile(t))
	g.stdin = filepath.Join(t.TempDir(), "stdin")
	mirror.Args = []string{"-c", "env >'" + g.stdin + "'; tee -a '" + g.stdin + "' | '" +
		mirror.Command + "'"}
	mirror.Command = "sh"

	addr := "127.0.0.1:" + freePort(t)
	g.url = "http://" + addr + "/mcp"
	oauth := map[string]any{"issuer": g.provider.Issuer(), "audience": g.url}
	if more != nil {
		for key, value := range more(g.provider) {
			oauth[key] = value
		}
	}
	g.setup = newSetup(t, map[string]any{
		"auth":    map[string]any{"oauth": oauth},
		"catalog": map[string]any{"wait": "30s", "prefix": "always"},
	}, backend{Name: "modern", URL: web.URL + "/mcp"},
		backend{Name: "legacy", URL: web.URL + "/mcp", Generation: "legacy"},
		backend{Name: "sse", URL: web.URL + "/sse", Transport: "sse"}, mirror)
	g.process = g.start("serve", "--listen", addr)
	awaitListener(t, addr, g.process.exited)
	t.Cleanup(func() {
		g.process.cmd.Process.Signal(syscall.SIGTERM)
		if code := g.process.exitCode(20 * time.Second); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	})
	return g
}

// oauthTools are tools of each backend.
var oauthTools = []string{"modern__who", "legacy__who", "sse__who", "mirror__request"}

// checkSecrets searches everything that the gateway has written and sent for the secrets of the
// provider, and checks that each audit record has the principal.
func (g *oauthGateway) checkSecrets(t *testing.T, principal string, calls int) {
	t.Helper()
	poll(waitTimeout, func() bool { // records are written in the background
		text, _ := os.ReadFile(g.audit)
		return bytes.Count(text, []byte(`"msg":"call"`)) >= calls
	})
	written := map[string][]byte{}
	read := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		written[path] = text
	}
	g.mu.Lock()
	written["requests to backends"] = bytes.Clone(g.received.Bytes())
	g.mu.Unlock()
	read(g.stdin)
	read(g.process.stderr)
	read(g.audit)
	read(fmt.Sprintf("/proc/%d/cmdline", g.process.cmd.Process.Pid))
	err := filepath.WalkDir(filepath.Join(g.dir, "state"),
		func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && filepath.Ext(path) != ".lock" { // see filelock
				read(path)
			}
			return err
		})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for place, text := range written {
		if len(text) == 0 {
			t.Errorf("%s is empty", place)
		}
		for _, secret := range g.provider.Secrets() {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s contains a secret of the login", place)
			}
		}
	}
	for _, tool := range []string{"tools/call", `"method":"tools/list"`} {
		if !bytes.Contains(written["requests to backends"], []byte(tool)) ||
			!bytes.Contains(written[g.stdin], []byte("tools/")) {
			t.Errorf("%s is not recorded", tool)
		}
	}
	records := g.records()
	for _, r := range records {
		if !strings.Contains(r.line, `"principal":"`+principal+`"`) || r.Outcome != "ok" {
			t.Errorf("the audit record is %s", r.line)
		}
	}
	if len(records) != calls {
		t.Errorf("%d audit records", len(records))
	}
}

// query returns the parameters of a redirect to a client.
func query(redirect string) (url.Values, error) {
	u, err := url.Parse(redirect)
	if err != nil {
		return nil, err
	}
	return u.Query(), nil
}

// The OAuth client of go-sdk finds the authorization server by the challenge and the metadata of
// the gateway, registers, logs in, and calls tools of each transport. Its token reaches no backend,
// log, audit record or file.
func TestOAuthClients_GoSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	for _, alg := range []string{oidctest.RS256, oidctest.ES256} {
		t.Run(alg, func(t *testing.T) {
			t.Parallel()
			g := newOAuthGateway(t, oidctest.Options{Alg: alg, Path: "/tenant"},
				func(*oidctest.Provider) map[string]any {
					return map[string]any{"scopes": []string{"mcp:tools"}}
				})
			handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
				RedirectURL: loginRedirect,
				DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{
					Metadata: &oauthex.ClientRegistrationMetadata{
						RedirectURIs: []string{loginRedirect}},
				},
				AuthorizationCodeFetcher: func(_ context.Context, a *auth.AuthorizationArgs) (
					*auth.AuthorizationResult, error) {
					redirect, err := g.provider.Approve(a.URL, "ann")
					if err != nil {
						return nil, err
					}
					q, err := query(redirect)
					return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"),
						Iss: q.Get("iss")}, err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			client := gosdk.NewClient(&gosdk.Implementation{Name: "c", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &gosdk.StreamableClientTransport{
				Endpoint: g.url, OAuthHandler: handler}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			call := func(tool string) {
				t.Helper()
				if _, err := session.CallTool(t.Context(), &gosdk.CallToolParams{Name: tool,
					Arguments: map[string]any{}}); err != nil {
					t.Errorf("%s: %v", tool, err)
				}
			}
			for _, tool := range oauthTools {
				call(tool)
			}
			// The provider signs with a new key from now on. The client keeps its token.
			if err := g.provider.RotateKeys(oidctest.EdDSA); err != nil {
				t.Fatal(err)
			}
			call(oauthTools[0])
			g.checkSecrets(t, "oauth:ann", len(oauthTools)+1)
		})
	}
}

// The OAuth client of mcp-go logs in to a gateway that introspects opaque tokens.
func TestOAuthClients_MCPGo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	g := newOAuthGateway(t, oidctest.Options{Opaque: true, AlwaysRefresh: true},
		func(p *oidctest.Provider) map[string]any {
			id, secret := p.IntrospectionClient()
			return map[string]any{"introspection": map[string]any{"client_id": id,
				"client_secret": secret}}
		})
	client, err := mcpgoclient.NewOAuthStreamableHttpClient(g.url, mcpgotransport.OAuthConfig{
		RedirectURI: loginRedirect, PKCEEnabled: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	initialize := mcpgo.InitializeRequest{}
	initialize.Params.ProtocolVersion = mcpgo.LATEST_PROTOCOL_VERSION
	initialize.Params.ClientInfo = mcpgo.Implementation{Name: "c", Version: "1"}
	_, err = client.Initialize(t.Context(), initialize)
	if !mcpgoclient.IsOAuthAuthorizationRequiredError(err) {
		t.Fatalf("without a login: %v", err)
	}
	login := mcpgoclient.GetOAuthHandler(err)
	if err := login.RegisterClient(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	verifier, _ := mcpgoclient.GenerateCodeVerifier()
	state, _ := mcpgoclient.GenerateState()
	authorize, err := login.GetAuthorizationURL(t.Context(), state,
		mcpgoclient.GenerateCodeChallenge(verifier))
	if err != nil {
		t.Fatal(err)
	}
	redirect, err := g.provider.Approve(authorize, "ann")
	if err != nil {
		t.Fatal(err)
	}
	q, err := query(redirect)
	if err == nil {
		err = login.ProcessAuthorizationResponse(t.Context(), q.Get("code"), q.Get("state"),
			verifier)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Initialize(t.Context(), initialize); err != nil {
		t.Fatal(err)
	}
	for _, tool := range oauthTools {
		request := mcpgo.CallToolRequest{}
		request.Params.Name, request.Params.Arguments = tool, map[string]any{}
		if _, err := client.CallTool(t.Context(), request); err != nil {
			t.Errorf("%s: %v", tool, err)
		}
	}
	g.checkSecrets(t, "oauth:ann", len(oauthTools))
	if n := g.provider.Counts()[oidctest.IntrospectionEndpoint]; n != 1 {
		t.Errorf("%d introspection requests", n)
	}
}

// A gateway starts while its authorization server is not available. Clients with access tokens get
// 503 meanwhile, and are served as soon as it is available. A reload applies other scopes in place.
func TestOAuthClients_StartAndReload(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	g := newOAuthGateway(t, oidctest.Options{}, func(p *oidctest.Provider) map[string]any {
		for _, e := range []oidctest.Endpoint{oidctest.OAuthMetadata, oidctest.OpenIDMetadata} {
			p.SetFault(e, oidctest.Fault{Status: 503})
		}
		return nil
	})
	log := g.process.logReader()
	log.await("level=WARN", "authorization server not available", "status 503")
	token := g.provider.IssueToken(oidctest.TokenSpec{User: "ann", Audience: []string{g.url}})
	connect := func() (*streamClient, error) {
		return dialStreams(t.Context(), &http.Client{Transport: bearer{http.DefaultTransport,
			token}}, g.url, `{}`, func(string, message) {})
	}
	if _, err := connect(); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without the authorization server: %v", err)
	}
	g.provider.ClearFaults()
	log.await("level=INFO", "authorization server available")
	session, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	log.await("client connected", "principal=oauth:ann")
	g.editConfig(func(doc map[string]any) {
		doc["auth"].(map[string]any)["oauth"].(map[string]any)["scopes"] = []string{"more"}
	})
	log.await(logReloaded, "changed=auth.oauth.scopes")
	if err := session.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err == nil ||
		!strings.Contains(err.Error(), "403") {
		t.Errorf("without the new scope: %v", err)
	}
	token = g.provider.IssueToken(oidctest.TokenSpec{User: "ann", Audience: []string{g.url},
		Scopes: []string{"more"}})
	if _, err := connect(); err != nil {
		t.Errorf("with the new scope: %v", err)
	}
	g.editConfig(func(doc map[string]any) { delete(doc, "auth") })
	log.await("level=WARN", "changes not applied until a restart",
		"auth.oauth.audience, auth.oauth.issuer, auth.oauth.scopes")
	if res, err := http.Get(g.url); err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v %v", res, err)
	}
}
