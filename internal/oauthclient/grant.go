package oauthclient

import (
	"slices"
	"time"

	"golang.org/x/oauth2"
)

// A Grant is the result of a login: the registration of the gateway at the authorization server,
// and the tokens. A Grant is immutable; it belongs to the issuer and is never used at another one.
type Grant struct {
	Issuer   string       `json:"issuer"`
	Resource string       `json:"resource"` // parameter resource of token requests
	Client   Registration `json:"client"`
	// Endpoints of the issuer; Revocation may be "".
	TokenEndpoint      string `json:"token_endpoint"`
	RevocationEndpoint string `json:"revocation_endpoint,omitempty"`
	// Scopes are the scopes that were granted. Wanted are the scopes that the server has demanded
	// for a request since then, together with Scopes; empty = none.
	Scopes []string `json:"scopes,omitempty"`
	Wanted []string `json:"wanted_scopes,omitempty"`

	Expires time.Time `json:"expires,omitzero"` // end of the access token; zero = not known
	// Early is the time before Expires at which the access token is refreshed.
	Early time.Duration `json:"early,omitempty"`

	Secrets GrantSecrets `json:"-"`
}

// GrantSecrets is the confidential part of a Grant.
type GrantSecrets struct {
	Access       string `json:"access_token,omitempty"`
	Refresh      string `json:"refresh_token,omitempty"`
	ClientSecret string `json:"client_secret,omitempty"`
}

// A Registration is a client at an authorization server, without its secret.
type Registration struct {
	ID string `json:"client_id"`
	// RedirectURI is set if the client was registered dynamically: it is valid only with this
	// redirect URI.
	RedirectURI string `json:"redirect_uri,omitempty"`
	// SecretExpires is the end of the client secret; zero = it does not expire.
	SecretExpires time.Time `json:"secret_expires,omitzero"`
	AuthStyle     AuthStyle `json:"token_endpoint_auth_method"`
}

// An AuthStyle is the way in which the client authenticates at the token endpoint (RFC 7591 §2).
type AuthStyle string

// The ways that are supported.
const (
	AuthNone  AuthStyle = "none"
	AuthBasic AuthStyle = "client_secret_basic"
	AuthPost  AuthStyle = "client_secret_post"
)

// library returns the value of package oauth2. The client_id is a parameter of the request also
// without a secret.
func (s AuthStyle) library() oauth2.AuthStyle {
	if s == AuthBasic {
		return oauth2.AuthStyleInHeader
	}
	return oauth2.AuthStyleInParams
}

// maxEarly is the longest time before the end of an access token at which it is refreshed.
const maxEarly = time.Minute

// withToken returns a copy of g with the tokens of a response. A response without a refresh token
// leaves the old one in force (RFC 6749 §6), and one without a scope grants the requested scopes
// (§5.1).
func (g Grant) withToken(t *oauth2.Token, requested []string, now time.Time) *Grant {
	g.Secrets.Access = t.AccessToken
	if t.RefreshToken != "" {
		g.Secrets.Refresh = t.RefreshToken
	}
	g.Scopes = requested
	if scope, ok := t.Extra("scope").(string); ok {
		g.Scopes = splitScopes(scope)
	}
	if isSubset(g.Wanted, g.Scopes) {
		g.Wanted = nil
	}
	g.Expires, g.Early = t.Expiry, 0
	if !t.Expiry.IsZero() {
		g.Early = min(maxEarly, t.Expiry.Sub(now)/5)
	}
	return &g
}

// access returns the access token; "" = none. g may be nil.
func (g *Grant) access() string {
	if g == nil {
		return ""
	}
	return g.Secrets.Access
}

// fresh reports whether the access token can be used without a refresh.
func (g *Grant) fresh(now time.Time) bool {
	return g.Secrets.Access != "" &&
		(g.Expires.IsZero() || now.Before(g.Expires.Add(-g.Early)))
}

// expired reports whether the access token has certainly expired.
func (g *Grant) expired(now time.Time) bool {
	return g.Secrets.Access == "" || !g.Expires.IsZero() && !now.Before(g.Expires)
}

// isSubset reports whether all has each element of some.
func isSubset(some, all []string) bool {
	for _, s := range some {
		if !slices.Contains(all, s) {
			return false
		}
	}
	return true
}

// union returns the scopes of all lists, each once, in order.
func union(lists ...[]string) (all []string) {
	for _, scope := range slices.Concat(lists...) {
		if !slices.Contains(all, scope) {
			all = append(all, scope)
		}
	}
	return all
}
