package oidctest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"
)

// A validator checks the tokens of one provider for a ProtectedServer.
type validator struct {
	provider *Provider
	keySet   bool // verify JWTs; otherwise introspection
	resource string

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // made at the first use
}

// A tokenInfo is what a valid token permits.
type tokenInfo struct {
	user   string
	scopes []string
}

var errNotActive = errors.New("token is not active")

// check returns an error if the token is not valid for the resource.
func (v *validator) check(ctx context.Context, token string) (tokenInfo, error) {
	if v.keySet {
		return v.verify(ctx, token)
	}
	return v.introspect(ctx, token)
}

// introspect requests the introspection endpoint of the provider (RFC 7662).
func (v *validator) introspect(ctx context.Context, token string) (tokenInfo, error) {
	form := url.Values{"token": {token}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		v.provider.URL(IntrospectionEndpoint), strings.NewReader(form))
	if err != nil {
		return tokenInfo{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(v.provider.IntrospectionClient())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return tokenInfo{}, err
	}
	defer res.Body.Close()
	var r struct {
		Active     bool
		Sub, Scope string
		Aud        audience
	}
	err = json.NewDecoder(io.LimitReader(res.Body, maxRequestBytes)).Decode(&r)
	switch {
	case err != nil || res.StatusCode != http.StatusOK:
		return tokenInfo{}, fmt.Errorf("introspection: %s: %w", res.Status, err)
	case !r.Active:
		return tokenInfo{}, errNotActive
	case !slices.Contains(r.Aud, v.resource):
		return tokenInfo{}, fmt.Errorf("token is for %q", r.Aud)
	}
	return tokenInfo{r.Sub, strings.Fields(r.Scope)}, nil
}

// verify verifies a JWT with the keys of the provider. It asks the provider in the process if the
// token has been ended.
func (v *validator) verify(ctx context.Context, token string) (tokenInfo, error) {
	verifier, err := v.loadVerifier(ctx)
	if err != nil {
		return tokenInfo{}, err
	}
	t, err := verifier.Verify(ctx, token)
	if err != nil {
		return tokenInfo{}, err
	}
	var claims struct{ JTI, Scope string }
	if err := t.Claims(&claims); err != nil {
		return tokenInfo{}, err
	}
	if _, active := v.provider.store.activeToken(claims.JTI); !active {
		return tokenInfo{}, errNotActive
	}
	return tokenInfo{t.Subject, strings.Fields(claims.Scope)}, nil
}

// loadVerifier reads the metadata of the provider, once.
func (v *validator) loadVerifier(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verifier == nil {
		// The key set is read later, also after this request.
		p, err := oidc.NewProvider(context.WithoutCancel(ctx), v.provider.Issuer())
		if err != nil {
			return nil, err
		}
		v.verifier = p.Verifier(&oidc.Config{ClientID: v.resource,
			SupportedSigningAlgs: []string{RS256, ES256, EdDSA}})
	}
	return v.verifier, nil
}

// An audience is the "aud" of a token: one string or several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}
