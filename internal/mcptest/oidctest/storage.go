package oidctest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
)

// A grant is what a user approved for a client, or what a client with its own credentials got.
type grant struct {
	user      string
	clientID  string
	scopes    []string
	audience  []string
	resources []string // that were requested; empty = any
	time      time.Time
}

func (g *grant) GetSubject() string     { return g.user }
func (g *grant) GetAudience() []string  { return g.audience }
func (g *grant) GetScopes() []string    { return g.scopes }
func (g *grant) GetClientID() string    { return g.clientID }
func (g *grant) GetAuthTime() time.Time { return g.time }
func (g *grant) GetAMR() []string       { return []string{"pwd"} }
func (g *grant) base() *grant           { return g }

// An authRequest is an authorization request that was approved: an op.AuthRequest.
type authRequest struct {
	*grant
	*oidc.AuthRequest
	id string
}

func (a *authRequest) GetID() string    { return a.id }
func (a *authRequest) GetACR() string   { return "" }
func (a *authRequest) GetNonce() string { return a.Nonce }
func (a *authRequest) Done() bool       { return true }

func (a *authRequest) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: a.CodeChallenge, Method: a.CodeChallengeMethod}
}

// A refreshRequest is a token request with a refresh token: an op.RefreshTokenRequest.
type refreshRequest struct {
	*grant
	current []string // scopes
}

func (r *refreshRequest) GetScopes() []string         { return r.current }
func (r *refreshRequest) SetCurrentScopes(s []string) { r.current = s }

// An accessToken is an issued access token.
type accessToken struct {
	*grant
	id      string
	scopes  []string
	issued  time.Time
	expires time.Time
}

// A refreshToken is an issued refresh token. Used ones are kept, to detect their reuse.
type refreshToken struct {
	*grant
	used bool
}

// A storage is the state of a provider: an op.Storage. mu guards what follows it.
type storage struct {
	options      Options
	issuer       string
	keys         *keyring
	record       *recorder
	opaque       *handles
	introspector Client

	mu           sync.Mutex
	clients      map[string]Client
	user         string
	denied       bool
	authRequests map[string]*authRequest
	codes        map[string]string // ids of authRequests
	tokens       map[string]*accessToken
	refreshes    map[string]*refreshToken
	reuses       int
}

func newStorage(o Options, keys *keyring, record *recorder) *storage {
	s := &storage{
		options: o, keys: keys, record: record, opaque: newHandles(), user: DefaultUser,
		clients: make(map[string]Client), authRequests: make(map[string]*authRequest),
		codes: make(map[string]string), tokens: make(map[string]*accessToken),
		refreshes: make(map[string]*refreshToken),
	}
	s.introspector = s.addClient(Client{ID: "resource-server", Grants: []string{"none"}})
	return s
}

func (s *storage) setUser(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user = name
}

func (s *storage) setDenied(denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = denied
}

func (s *storage) reuseCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reuses
}

func (s *storage) expireAccessTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

func (s *storage) revokeGrants() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
	clear(s.refreshes)
}

func (s *storage) expireAccessTokensOf(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tokens, func(_ string, t *accessToken) bool { return t.user == user })
}

func (s *storage) revokeGrantsOf(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tokens, func(_ string, t *accessToken) bool { return t.user == user })
	maps.DeleteFunc(s.refreshes, func(_ string, t *refreshToken) bool { return t.user == user })
}

// audience returns the "aud" of tokens for the requested resources; nil = the client.
func (s *storage) audience(resources []string) []string {
	if len(s.options.Audience) > 0 {
		return s.options.Audience
	}
	return resources
}

// addTokenLocked records a new access token.
func (s *storage) addTokenLocked(g *grant, scopes []string, lifetime time.Duration) *accessToken {
	now := time.Now()
	t := &accessToken{
		grant: g, id: randomText(), scopes: scopes, issued: now, expires: now.Add(lifetime),
	}
	s.tokens[t.id] = t
	return t
}

// activeToken returns the access token with this id, unless it has ended.
func (s *storage) activeToken(id string) (*accessToken, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[id]
	return t, ok && time.Now().Before(t.expires)
}

// addRefreshTokenLocked returns a new refresh token.
func (s *storage) addRefreshTokenLocked(g *grant) string {
	token := "refresh-" + randomText()
	s.refreshes[token] = &refreshToken{grant: g}
	return token
}

// useRefreshTokenLocked marks a refresh token as used. If it was used before, it or a token after
// it may be stolen, and all tokens of its grant end.
func (s *storage) useRefreshTokenLocked(token string) (*refreshToken, bool) {
	t, ok := s.refreshes[token]
	if !ok || s.options.KeepRefreshToken {
		return t, ok
	}
	if t.used {
		s.reuses++
		s.revokeLocked(t.grant)
		return nil, false
	}
	t.used = true
	return t, true
}

// revokeLocked ends all tokens of a grant.
func (s *storage) revokeLocked(g *grant) {
	for id, t := range s.tokens {
		if t.grant == g {
			delete(s.tokens, id)
		}
	}
	for token, t := range s.refreshes {
		if t.grant == g && !t.used {
			delete(s.refreshes, token)
		}
	}
}

// checkResources refuses a token request whose resources were not authorized (RFC 8707 §2.2).
func (s *storage) checkResources(g *grant, requested []string) error {
	if len(requested) == 0 && s.options.RequireResource {
		return invalidTarget("resource missing")
	}
	for _, r := range requested {
		if len(g.resources) > 0 && !slices.Contains(g.resources, r) {
			return invalidTarget("resource not authorized")
		}
	}
	return nil
}

func invalidTarget(description string) error {
	return &oidc.Error{ErrorType: "invalid_target", Description: description}
}

// A requestInfo has what the library does not read from a request.
type requestInfo struct {
	user      string
	resources []string
}

type requestInfoKey struct{}

func withRequestInfo(ctx context.Context, i requestInfo) context.Context {
	return context.WithValue(ctx, requestInfoKey{}, i)
}

func requestInfoOf(ctx context.Context) requestInfo {
	i, _ := ctx.Value(requestInfoKey{}).(requestInfo)
	return i
}

// A handles replaces values by random texts: codes and opaque tokens. It is an op.Crypto.
type handles struct {
	mu     sync.Mutex
	values map[string]string
}

func newHandles() *handles { return &handles{values: make(map[string]string)} }

// Encrypt returns a new text for the value.
func (h *handles) Encrypt(value string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := randomText()
	h.values[text] = value
	return text, nil
}

// Decrypt returns the value of a text.
func (h *handles) Decrypt(text string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if value, ok := h.values[text]; ok {
		return value, nil
	}
	return "", errUnknownHandle
}
