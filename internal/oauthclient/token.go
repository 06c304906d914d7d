package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"mcpgateway/internal/text"
)

// refresh obtains a token in place of the access token old. Of all Authorizations with this grant,
// also in other processes, one at a time refreshes; the others then find the new token in the
// Store. It is called by one attempt at a time.
func (a *Authorization) refresh(ctx context.Context, old string) error {
	unlock, err := a.Store.lock(ctx, a.key)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := a.current(true)
	switch {
	case err != nil:
		return err
	case g == nil:
		return a.loginError("the login was deleted")
	case g.Secrets.Access != old && !g.expired(time.Now()):
		return nil // another Authorization has refreshed it
	case !a.canRefresh(g):
		return a.loginError("the login has expired")
	}
	next, err := a.requestAnother(ctx, g)
	switch code := errorCode(err); code {
	case "invalid_client":
		if a.ClientID != "" {
			return errClientRefused
		}
		return a.forgetTokens(g, code)
	case "invalid_grant", "unauthorized_client":
		if a.ClientCredentials { // nobody can log in
			break
		}
		return a.forgetTokens(g, code)
	}
	if err != nil {
		return fmt.Errorf("refresh the access token: %w", err)
	}
	if err := a.save(next); err != nil {
		a.Log.Error("refreshed login not stored; it ends with this process", "err", err)
	}
	a.Log.Debug("access token refreshed")
	return nil
}

// errClientRefused is the error of a refresh if the configuration of the client is wrong. The login
// is kept, because it is valid again with the right configuration.
var errClientRefused = errors.New("refresh the access token: the authorization server refuses " +
	"client_id or client_secret of the backend (invalid_client)")

// requestAnother returns the grant with another access token for the granted scopes.
func (a *Authorization) requestAnother(ctx context.Context, g *Grant) (*Grant, error) {
	if a.ClientCredentials {
		return a.request(ctx, g, nil, g.Scopes)
	}
	next, err := a.request(ctx, g, url.Values{"grant_type": {"refresh_token"},
		"refresh_token": {g.Secrets.Refresh}}, nil)
	if err == nil && next.Scopes == nil {
		next.Scopes = g.Scopes
	}
	return next, err
}

// forgetTokens removes the tokens of a grant that the authorization server no longer accepts, and
// with the code invalid_client also the client. It returns a *LoginError.
func (a *Authorization) forgetTokens(g *Grant, code string) error {
	next := *g
	next.Secrets.Access, next.Secrets.Refresh = "", ""
	if code == "invalid_client" {
		next.Client, next.Secrets.ClientSecret = Registration{}, ""
	}
	if err := a.save(&next); err != nil {
		a.Log.Warn("end of the login not stored", "err", err)
	}
	return a.loginError("the authorization server has ended the login: " + code)
}

// clientCredentials obtains a token for the client itself, with the grant client_credentials. It is
// called by one attempt at a time.
func (a *Authorization) clientCredentials(
	ctx context.Context, m *metadata, scopes []string,
) error {
	g := &Grant{Issuer: m.server.Issuer, Resource: m.resource, Client: a.preregistered(&m.server),
		TokenEndpoint: m.server.TokenEndpoint}
	next, err := a.request(ctx, g, nil, scopes)
	if err != nil {
		return fmt.Errorf("the authorization server %s gives the client no token: %w",
			shown(g.Issuer), err)
	}
	return a.save(next)
}

// request sends a token request for the resource of g, and returns the grant with the token of the
// response. Without a grant_type in params, the grant is client_credentials.
func (a *Authorization) request(ctx context.Context, g *Grant, params url.Values, scopes []string) (
	*Grant, error,
) {
	config := clientcredentials.Config{
		ClientID: g.Client.ID, ClientSecret: a.clientSecret(g),
		TokenURL: g.TokenEndpoint, AuthStyle: g.Client.AuthStyle.library(),
		Scopes:         scopes,
		EndpointParams: url.Values{"resource": {g.Resource}},
	}
	maps.Copy(config.EndpointParams, params)
	t, err := config.Token(a.withClient(ctx))
	if err != nil {
		return nil, tokenError(err, config.ClientSecret, g.Secrets.Refresh, g.Secrets.Access)
	}
	return a.checkToken(g, t, scopes)
}

// clientSecret returns the secret of the client of a grant: "" = it has none.
func (a *Authorization) clientSecret(g *Grant) string {
	if a.ClientID != "" {
		return a.ClientSecret
	}
	return g.Secrets.ClientSecret
}

// withClient returns a context with which package oauth2 sends its requests by the Authorization's
// guard.
func (a *Authorization) withClient(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, a.http)
}

// maxToken bounds an access token and a refresh token, in bytes. Few servers accept a header of
// that length.
const maxToken = 32 << 10

// checkToken returns the grant with a token, if the token can be used.
func (a *Authorization) checkToken(g *Grant, t *oauth2.Token, scopes []string) (*Grant, error) {
	a.mask(t.AccessToken, t.RefreshToken)
	if t.TokenType != "" && !strings.EqualFold(t.TokenType, "Bearer") {
		return nil, fmt.Errorf("the token has the type %s; only Bearer is supported",
			shown(t.TokenType))
	}
	if strings.ContainsFunc(t.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token has characters that a header must not have")
	}
	if len(t.AccessToken) > maxToken || len(t.RefreshToken) > maxToken {
		return nil, fmt.Errorf("the token is longer than %d KiB", maxToken>>10)
	}
	return g.withToken(t, scopes, time.Now()), nil
}

// tokenError returns the error of a token request without the response, except its error code and
// description, in which the secrets of the request are replaced.
func tokenError(err error, secrets ...string) error {
	failed, is := errors.AsType[*oauth2.RetrieveError](err)
	if !is {
		return withoutURL(err)
	}
	status := 0
	if failed.Response != nil {
		status = failed.Response.StatusCode
	}
	return &responseError{status: status, code: hide(failed.ErrorCode, secrets),
		description: hide(failed.ErrorDescription, secrets)}
}

// hide replaces secrets, which an authorization server may repeat, before the text is cut.
func hide(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
			text = strings.ReplaceAll(text, url.QueryEscape(secret), "***")
		}
	}
	return text
}

// A responseError is an error response of an authorization server (RFC 6749 §5.2, §4.1.2.1).
type responseError struct {
	status            int // HTTP status; 0 = in a redirect
	code, description string
}

func (e *responseError) Error() string {
	code := text.Truncate(e.code, maxShown)
	switch {
	case code == "":
		return fmt.Sprintf("HTTP %d %s", e.status, http.StatusText(e.status))
	case e.description == "":
		return fmt.Sprintf("%q", code)
	}
	return fmt.Sprintf("%q, %q", code, text.Truncate(e.description, maxShown))
}

// errorCode returns the code of the response in err; "" = err contains no response with a code.
func errorCode(err error) string {
	if failed, is := errors.AsType[*responseError](err); is {
		return failed.code
	}
	return ""
}
