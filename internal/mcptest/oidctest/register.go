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
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

// clientMetadata has the members of RFC 7591 §2 that the provider reads, in a registration and in
// a client ID metadata document.
type clientMetadata struct {
	ClientID        string   `json:"client_id"`
	RedirectURIs    []string `json:"redirect_uris"`
	Auth            string   `json:"token_endpoint_auth_method"`
	Grants          []string `json:"grant_types"`
	ApplicationType string   `json:"application_type"`
}

// check returns an error that says why the provider refuses the metadata.
func (m clientMetadata) check() error {
	if len(m.RedirectURIs) == 0 && !slices.Equal(m.Grants, []string{"client_credentials"}) {
		return errors.New("redirect_uris missing")
	}
	for _, uri := range m.RedirectURIs {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme == "" || u.Fragment != "" {
			return fmt.Errorf("redirect URI %q is not an absolute URI without fragment", uri)
		}
		if _, loopback := op.HTTPLoopbackOrLocalhost(uri); u.Scheme == "http" && !loopback {
			return fmt.Errorf("redirect URI %q must use https", uri)
		} else if m.ApplicationType == "web" && u.Scheme == "http" {
			return fmt.Errorf("redirect URI %q needs the application type native", uri)
		}
	}
	return nil
}

// client returns c with the redirect URIs and grants of the metadata.
func (m clientMetadata) client(c Client) Client {
	c.RedirectURIs, c.Grants = m.RedirectURIs, m.Grants
	if len(c.Grants) == 0 {
		c.Grants = []string{"authorization_code"} // RFC 7591 §2
	}
	return c
}

// serveRegistration handles a dynamic registration (RFC 7591 §3).
func (p *Provider) serveRegistration(w http.ResponseWriter, body []byte) {
	var m clientMetadata
	var document map[string]any
	if json.Unmarshal(body, &m) != nil || json.Unmarshal(body, &document) != nil {
		writeError(w, http.StatusBadRequest, "invalid_client_metadata", "not a JSON object")
		return
	}
	if err := m.check(); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_redirect_uri", err.Error())
		return
	}
	if !slices.Contains([]string{"", AuthBasic, AuthPost, AuthNone}, m.Auth) {
		writeError(w, http.StatusBadRequest, "invalid_client_metadata",
			"token_endpoint_auth_method not supported")
		return
	}
	c := p.AddClient(m.client(Client{Auth: m.Auth}))
	document["client_id"], document["client_id_issued_at"] = c.ID, time.Now().Unix()
	document["token_endpoint_auth_method"], document["grant_types"] = c.Auth, c.Grants
	if c.Secret != "" {
		document["client_secret"], document["client_secret_expires_at"] = c.Secret, 0
	}
	writeJSON(w, http.StatusCreated, document)
}

// loadDocument registers the client whose id is the URL of its metadata document, if that is
// supported. It does nothing for other ids.
func (p *Provider) loadDocument(ctx context.Context, id string) error {
	if p.options.DocumentClient == nil || !strings.HasPrefix(id, "https://") {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return fmt.Errorf("client metadata document: %w", err)
	}
	res, err := p.options.DocumentClient.Do(req)
	if err != nil {
		return fmt.Errorf("client metadata document: %w", err)
	}
	defer res.Body.Close()
	var m clientMetadata
	err = json.NewDecoder(io.LimitReader(res.Body, maxRequestBytes)).Decode(&m)
	switch {
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("client metadata document: %s", res.Status)
	case err != nil:
		return fmt.Errorf("client metadata document: %w", err)
	case m.ClientID != id:
		return fmt.Errorf("client metadata document: client_id is %q and not %q", m.ClientID, id)
	}
	if err := m.check(); err != nil {
		return fmt.Errorf("client metadata document: %w", err)
	}
	p.AddClient(m.client(Client{ID: id, Auth: AuthNone}))
	return nil
}
