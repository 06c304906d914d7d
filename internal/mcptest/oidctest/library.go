package oidctest

import (
	"context"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The methods of storage in this file are those that the library calls.

var (
	errUnknownClient  = errors.New("unknown client or wrong secret")
	errUnknownRequest = errors.New("unknown authorization request")
	errUnknownHandle  = errors.New("unknown code or token")
	errNotSupported   = errors.New("not supported")
)

// CreateAuthRequest implements op.Storage. The user has approved the request, or denied it.
func (s *storage) CreateAuthRequest(ctx context.Context, r *oidc.AuthRequest, _ string) (
	op.AuthRequest, error) {
	info := requestInfoOf(ctx)
	switch {
	case r.CodeChallenge == "" || r.CodeChallengeMethod != oidc.CodeChallengeMethodS256:
		return nil, oidc.ErrInvalidRequest().WithDescription("PKCE with S256 is required")
	case len(info.resources) == 0 && s.options.RequireResource:
		return nil, invalidTarget("resource missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.denied {
		return nil, oidc.ErrAccessDenied()
	}
	g := &grant{
		user: info.user, clientID: r.ClientID, scopes: r.Scopes, resources: info.resources,
		audience: s.audience(info.resources), time: time.Now(),
	}
	if g.user == "" {
		g.user = s.user
	}
	if s.options.AlwaysRefresh && !slices.Contains(g.scopes, scopeOffline) {
		g.scopes = append(slices.Clone(g.scopes), scopeOffline)
	}
	a := &authRequest{grant: g, AuthRequest: r, id: randomText()}
	s.authRequests[a.id] = a
	return a, nil
}

// AuthRequestByID implements op.Storage.
func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.authRequests[id]; ok {
		return a, nil
	}
	return nil, errUnknownRequest
}

// SaveAuthCode implements op.Storage.
func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.record.addSecret(code)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = id
	return nil
}

// AuthRequestByCode implements op.Storage. A code works once, also if the token request fails.
func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id := s.codes[code]
	delete(s.codes, code)
	s.mu.Unlock()
	return s.AuthRequestByID(ctx, id)
}

// DeleteAuthRequest implements op.Storage.
func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.authRequests, id)
	return nil
}

// A granted is a token request of a grant.
type granted interface {
	op.TokenRequest
	base() *grant
}

// CreateAccessToken implements op.Storage.
func (s *storage) CreateAccessToken(ctx context.Context, r op.TokenRequest) (
	id string, expires time.Time, err error) {
	g := r.(granted).base()
	if err := s.checkResources(g, requestInfoOf(ctx).resources); err != nil {
		return "", time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.addTokenLocked(g, r.GetScopes(), s.options.AccessTokenLifetime)
	return t.id, t.expires, nil
}

// CreateAccessAndRefreshTokens implements op.Storage. current is the refresh token of the request,
// or empty for a login.
func (s *storage) CreateAccessAndRefreshTokens(ctx context.Context, r op.TokenRequest,
	current string) (id, refresh string, expires time.Time, err error) {
	g := r.(granted).base()
	if err := s.checkResources(g, requestInfoOf(ctx).resources); err != nil {
		return "", "", time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if current != "" {
		if _, ok := s.useRefreshTokenLocked(current); !ok {
			return "", "", time.Time{}, oidc.ErrInvalidGrant().
				WithDescription("refresh token is used or unknown")
		}
	}
	if refresh = current; refresh == "" || !s.options.KeepRefreshToken {
		refresh = s.addRefreshTokenLocked(g)
	}
	t := s.addTokenLocked(g, r.GetScopes(), s.options.AccessTokenLifetime)
	return t.id, refresh, t.expires, nil
}

// TokenRequestByRefreshToken implements op.Storage. It does not decide if the token was used,
// because the check and the use must be one step.
func (s *storage) TokenRequestByRefreshToken(_ context.Context, token string) (
	op.RefreshTokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.refreshes[token]
	if !ok {
		return nil, op.ErrInvalidRefreshToken
	}
	return &refreshRequest{grant: t.grant, current: t.scopes}, nil
}

// TerminateSession implements op.Storage.
func (s *storage) TerminateSession(context.Context, string, string) error { return errNotSupported }

// GetRefreshTokenInfo implements op.Storage.
func (s *storage) GetRefreshTokenInfo(_ context.Context, _, token string) (
	user, id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.refreshes[token]; ok {
		return t.user, token, nil
	}
	return "", "", op.ErrInvalidRefreshToken
}

// RevokeToken implements op.Storage. A refresh token takes the other tokens of its grant with it
// (RFC 7009 §2.1). An unknown token is not an error.
func (s *storage) RevokeToken(_ context.Context, token, _, clientID string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.refreshes[token]; ok && t.clientID == clientID {
		s.revokeLocked(t.grant)
	}
	if t, ok := s.tokens[token]; ok && t.clientID == clientID {
		delete(s.tokens, token)
	}
	return nil
}

// SigningKey implements op.Storage.
func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	return s.keys.current(), nil
}

// SignatureAlgorithms implements op.Storage.
func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}, nil
}

// KeySet implements op.Storage.
func (s *storage) KeySet(context.Context) ([]op.Key, error) { return s.keys.public(), nil }

// GetClientByClientID implements op.Storage.
func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if c, ok := s.client(id); ok {
		return libraryClient{c, s}, nil
	}
	return nil, errUnknownClient
}

// AuthorizeClientIDSecret implements op.Storage.
func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	c, ok := s.client(id)
	if !ok || subtle.ConstantTimeCompare([]byte(c.Secret), []byte(secret)) != 1 {
		return errUnknownClient
	}
	return nil
}

// ClientCredentials implements op.ClientCredentialsStorage.
func (s *storage) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	if err := s.AuthorizeClientIDSecret(ctx, id, secret); err != nil {
		return nil, err
	}
	return s.GetClientByClientID(ctx, id)
}

// ClientCredentialsTokenRequest implements op.ClientCredentialsStorage. The subject of the token is
// the client.
func (s *storage) ClientCredentialsTokenRequest(ctx context.Context, id string,
	scopes []string) (op.TokenRequest, error) {
	c, _ := s.client(id)
	scopes = slices.DeleteFunc(scopes, func(scope string) bool {
		return !libraryClient{c, s}.IsScopeAllowed(scope)
	})
	resources := requestInfoOf(ctx).resources
	return &grant{
		user: id, clientID: id, scopes: scopes, resources: resources,
		audience: s.audience(resources), time: time.Now(),
	}, nil
}

// SetUserinfoFromScopes implements op.Storage. It sets the claims of ID tokens.
func (s *storage) SetUserinfoFromScopes(_ context.Context, info *oidc.UserInfo, user, _ string,
	_ []string) error {
	info.Subject, info.PreferredUsername = user, user
	info.Claims = s.userClaims(user)
	return nil
}

// SetUserinfoFromToken implements op.Storage.
func (s *storage) SetUserinfoFromToken(context.Context, *oidc.UserInfo, string, string,
	string) error {
	return errNotSupported
}

// SetIntrospectionFromToken implements op.Storage. A token that has ended is an error, which the
// library answers with "active": false.
func (s *storage) SetIntrospectionFromToken(_ context.Context, r *oidc.IntrospectionResponse,
	id, _, _ string) error {
	t, ok := s.activeToken(id)
	if !ok {
		return errUnknownHandle
	}
	r.Scope, r.ClientID, r.TokenType = t.scopes, t.clientID, oidc.BearerToken
	r.Subject, r.Username, r.Audience = t.user, t.user, t.audience
	r.Issuer, r.JWTID = s.issuer, t.id
	r.IssuedAt, r.Expiration = oidc.FromTime(t.issued), oidc.FromTime(t.expires)
	r.Claims = s.userClaims(t.user)
	return nil
}

// GetPrivateClaimsFromRequest implements op.CanGetPrivateClaimsFromRequest.
func (s *storage) GetPrivateClaimsFromRequest(_ context.Context, r op.TokenRequest, _ []string) (
	map[string]any, error) {
	claims := s.userClaims(r.GetSubject())
	claims["scope"] = strings.Join(r.GetScopes(), " ")
	return claims, nil
}

// GetPrivateClaimsFromScopes implements op.Storage.
func (s *storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (
	map[string]any, error) {
	return nil, errNotSupported // the library prefers GetPrivateClaimsFromRequest
}

// GetKeyByIDAndClientID implements op.Storage.
func (s *storage) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errNotSupported
}

// ValidateJWTProfileScopes implements op.Storage.
func (s *storage) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errNotSupported
}

// Health implements op.Storage.
func (s *storage) Health(context.Context) error { return nil }
