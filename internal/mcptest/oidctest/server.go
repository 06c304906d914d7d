package oidctest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServerOptions configure a ProtectedServer. The zero value is a server with the tools read and
// write, for clients of both protocol generations, that validates tokens by introspection.
type ServerOptions struct {
	// Tools are the names of its tools; nil = read and write.
	Tools []string
	// UserTools are the tools of some users, by user; all others have Tools.
	UserTools map[string][]string
	// Scopes that each request needs. The challenges name them.
	Scopes []string
	// ToolScopes are further scopes that calls of a tool need, by its name. A call without them is
	// refused with 403 and insufficient_scope.
	ToolScopes map[string][]string
	// ScopesSupported is in the metadata of the resource; nil = absent.
	ScopesSupported []string
	// KeySet makes the server verify JWTs with the keys of the provider, instead of introspection.
	KeySet bool
	// Sessions makes it a server of the legacy generation only, with sessions.
	Sessions bool
	// HTTPSSE makes it a server of the transport HTTP+SSE.
	HTTPSSE bool
	// Resumable makes the streams of a server with Sessions resumable: their events have ids.
	Resumable bool
	// Delay is the duration of each execution of a tool.
	Delay time.Duration
	// EchoToken adds the access token of a call to its result.
	EchoToken bool
	// Wrap replaces the handler of the MCP endpoint, which checks the token, by another one that
	// may call it; nil = no change.
	Wrap func(http.Handler) http.Handler
	// RootMetadata serves the metadata at the root, for the origin as the resource, and not at the
	// path of the MCP endpoint.
	RootMetadata bool
	// BareChallenge leaves resource_metadata out of the challenges.
	BareChallenge bool
	// EditMetadata changes the metadata of the resource before it is sent; nil = no change. It must
	// be safe for concurrent use.
	EditMetadata func(document map[string]any)
}

// A Call is an execution of a tool of a ProtectedServer.
type Call struct {
	Tool  string
	ID    string // the argument "id" of the call
	Token string
	User  string
}

// A ProtectedServer is an MCP server that only serves requests with a valid access token of its
// Provider: a resource server (RFC 9728) at a loopback address. Each of its tools has the optional
// arguments {"id": string, "text": string} and returns the JSON object {"tool", "id", "text",
// "user"} as text. Its methods may be called concurrently.
type ProtectedServer struct {
	options  ServerOptions
	server   *httptest.Server
	endpoint http.Handler // of the MCP endpoint
	mcp      http.Handler // of requests with a valid token

	mu       sync.Mutex
	validate *validator // of the current provider
	calls    []Call
	tokens   []string // that requests had, each once, in the order of their arrival
	users    map[string]string
	refused  map[int]int
}

// mcpPath is the path of the MCP endpoint.
const mcpPath = "/mcp"

// NewServer starts a ProtectedServer, which serves until the test ends.
func NewServer(t testing.TB, p *Provider, o ServerOptions) *ProtectedServer {
	t.Helper()
	if o.Tools == nil {
		o.Tools = []string{"read", "write"}
	}
	s := &ProtectedServer{
		options: o, users: make(map[string]string), refused: make(map[int]int),
	}
	tools := s.newMCPServer(o.Tools)
	byUser := make(map[string]*mcp.Server)
	for user, names := range o.UserTools {
		byUser[user] = s.newMCPServer(names)
	}
	get := func(r *http.Request) *mcp.Server { return cmp.Or(byUser[s.userOf(r)], tools) }
	streamable := &mcp.StreamableHTTPOptions{Stateless: !o.Sessions}
	if o.Resumable {
		streamable.EventStore = mcp.NewMemoryEventStore(nil)
	}
	s.mcp = mcp.NewStreamableHTTPHandler(get, streamable)
	if o.HTTPSSE {
		s.mcp = mcp.NewSSEHandler(get, nil)
	}
	s.endpoint = http.HandlerFunc(s.serveMCP)
	if o.Wrap != nil {
		s.endpoint = o.Wrap(s.endpoint)
	}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.server.Close)
	t.Cleanup(s.server.CloseClientConnections) // first, so that streams end
	s.SetProvider(p)
	return s
}

// URL returns the URL of the MCP endpoint.
func (s *ProtectedServer) URL() string { return s.server.URL + mcpPath }

// Resource returns the identifier of the resource, which the "aud" of tokens must contain.
func (s *ProtectedServer) Resource() string {
	if s.options.RootMetadata {
		return s.server.URL
	}
	return s.URL()
}

// SetProvider changes the authorization server: from now on the metadata names p, and only tokens
// of p are valid.
func (s *ProtectedServer) SetProvider(p *Provider) {
	v := &validator{provider: p, keySet: s.options.KeySet, resource: s.Resource()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.validate = v
}

// Calls returns the executions of tools in their order.
func (s *ProtectedServer) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Executions returns how often calls with this id were executed.
func (s *ProtectedServer) Executions(id string) int {
	n := 0
	for _, c := range s.Calls() {
		if c.ID == id {
			n++
		}
	}
	return n
}

// userOf returns the user of a request with a valid token.
func (s *ProtectedServer) userOf(r *http.Request) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[bearer(r.Header)]
}

// Tokens returns the bearer tokens of all requests, valid or not, each once.
func (s *ProtectedServer) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

// Refused returns the number of requests that were refused with a status: 401 or 403.
func (s *ProtectedServer) Refused(status int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[status]
}

// serve handles a request.
func (s *ProtectedServer) serve(w http.ResponseWriter, r *http.Request) {
	switch metadata := s.metadataPath(); r.URL.Path {
	case metadata:
		s.serveMetadata(w)
	case mcpPath:
		s.endpoint.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *ProtectedServer) metadataPath() string {
	const wellKnown = "/.well-known/oauth-protected-resource"
	if s.options.RootMetadata {
		return wellKnown
	}
	return wellKnown + mcpPath
}

func (s *ProtectedServer) currentValidator() *validator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.validate
}

func (s *ProtectedServer) serveMetadata(w http.ResponseWriter) {
	document := map[string]any{
		"resource":                 s.Resource(),
		"authorization_servers":    []string{s.currentValidator().provider.Issuer()},
		"bearer_methods_supported": []string{"header"},
	}
	if s.options.ScopesSupported != nil {
		document["scopes_supported"] = s.options.ScopesSupported
	}
	if s.options.EditMetadata != nil {
		s.options.EditMetadata(document)
	}
	writeJSON(w, http.StatusOK, document)
}

// serveMCP passes a request with a valid token to the MCP server.
func (s *ProtectedServer) serveMCP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		return // the client has disconnected, or the body is too long
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	token := bearer(r.Header)
	if token == "" {
		s.refuse(w, http.StatusUnauthorized, "", s.options.Scopes)
		return
	}
	// A request that ends meanwhile must not look like one with an invalid token.
	info, err := s.currentValidator().check(context.WithoutCancel(r.Context()), token)
	s.note(token, info.user)
	if err != nil {
		s.refuse(w, http.StatusUnauthorized, "invalid_token", s.options.Scopes)
		return
	}
	var m struct {
		Method string
		Params struct{ Name string }
	}
	_ = json.Unmarshal(body, &m) // an invalid message needs no further scope
	need := s.options.Scopes
	if m.Method == "tools/call" {
		need = slices.Concat(need, s.options.ToolScopes[m.Params.Name])
	}
	for _, scope := range need {
		if !slices.Contains(info.scopes, scope) {
			s.refuse(w, http.StatusForbidden, "insufficient_scope", need)
			return
		}
	}
	s.mcp.ServeHTTP(w, r)
}

// note records the token of a request, and its user if the token is valid.
func (s *ProtectedServer) note(token, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.tokens, token) {
		s.tokens = append(s.tokens, token)
	}
	s.users[token] = cmp.Or(user, s.users[token])
}

// refuse sends a challenge (RFC 6750 §3, RFC 9728 §5.1).
func (s *ProtectedServer) refuse(w http.ResponseWriter, status int, code string, scopes []string) {
	s.mu.Lock()
	s.refused[status]++
	s.mu.Unlock()
	var params []string
	add := func(name, value string) {
		if value != "" {
			params = append(params, fmt.Sprintf("%s=%q", name, value))
		}
	}
	add("error", code)
	add("scope", strings.Join(scopes, " "))
	if !s.options.BareChallenge {
		add("resource_metadata", s.server.URL+s.metadataPath())
	}
	w.Header().Set("WWW-Authenticate", strings.TrimSpace("Bearer "+strings.Join(params, ", ")))
	writeError(w, status, cmp.Or(code, "invalid_request"), "access token needed")
}

// bearer returns the bearer token of a request, or "".
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
