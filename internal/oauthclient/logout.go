package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// ErrNoLogin is the error of Logout if there is nothing to delete.
var ErrNoLogin = errors.New("nobody is logged in")

// Logout revokes the tokens at the authorization server, if it has a revocation endpoint (RFC
// 7009), and deletes the stored login, also if the revocation fails. revokeErr is the failure of
// the revocation; nil = revoked, or no endpoint, which revoked tells apart.
func (a *Authorization) Logout(ctx context.Context) (revoked bool, revokeErr, err error) {
	unlock, err := a.Store.lock(ctx, a.key)
	if err != nil {
		return false, nil, err
	}
	defer unlock()
	exists := a.Store.version(a.key) != version{}
	g, err := a.Store.load(a.key)
	switch {
	case !exists:
		return false, nil, ErrNoLogin
	case err != nil:
		revokeErr = err
	case g.RevocationEndpoint != "":
		revoked, revokeErr = a.revoke(ctx, g)
	}
	err = a.Store.remove(a.key)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setLocked(nil, version{})
	return revoked, revokeErr, err
}

// revoke revokes the refresh token, and then the access token.
func (a *Authorization) revoke(ctx context.Context, g *Grant) (revoked bool, err error) {
	for _, token := range []struct{ kind, text string }{
		{"refresh_token", g.Secrets.Refresh}, {"access_token", g.Secrets.Access},
	} {
		if token.text == "" {
			continue
		}
		if err := a.revokeToken(ctx, g, token.kind, token.text); err != nil {
			return false, fmt.Errorf("revoke the login at %s: %w", shown(g.Issuer), err)
		}
		revoked = true
	}
	return revoked, nil
}

func (a *Authorization) revokeToken(ctx context.Context, g *Grant, kind, token string) error {
	params := url.Values{"token": {token}, "token_type_hint": {kind}}
	secret := a.clientSecret(g)
	if g.Client.AuthStyle != AuthBasic {
		params.Set("client_id", g.Client.ID)
		if secret != "" {
			params.Set("client_secret", secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.RevocationEndpoint,
		strings.NewReader(params.Encode()))
	if err != nil {
		return errors.New("the revocation endpoint is not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", userAgent)
	if g.Client.AuthStyle == AuthBasic {
		req.SetBasicAuth(url.QueryEscape(g.Client.ID), url.QueryEscape(secret))
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
