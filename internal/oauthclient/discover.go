package oauthclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/text"
	"mcpgateway/internal/weburl"
)

// A challenge is the part of a response with status 401 or 403 that says how to get access.
type challenge struct {
	isBearer    bool   // there is a challenge with the scheme Bearer
	code        string // error of the challenge, such as insufficient_scope; "" = none
	metadataURL string // resource_metadata; "" = none
	scopes      []string
}

// readChallenge reads the WWW-Authenticate headers of a response.
func readChallenge(resp *http.Response) (c challenge) {
	for _, header := range resp.Header.Values("WWW-Authenticate") {
		all, err := oauthex.ParseWWWAuthenticate([]string{header})
		if err != nil {
			all = looseChallenges(header)
		}
		for _, one := range all {
			if one.Scheme != "bearer" || c.isBearer {
				continue
			}
			c = challenge{isBearer: true, code: one.Params["error"],
				metadataURL: one.Params["resource_metadata"],
				scopes:      splitScopes(one.Params["scope"])}
		}
	}
	return c
}

// bearerScheme and bearerParam find the parts of a challenge Bearer in a header that is malformed,
// or has another challenge in a form that the library does not know.
var (
	bearerScheme = lazy.Regexp(`(?i)(^|[\s,])bearer(\s|,|$)`)
	bearerParam  = lazy.Regexp(`(?i)\b(error|resource_metadata|scope)\s*=\s*"([^"]*)"`)
)

// looseChallenges returns the challenge Bearer of a header that the library rejects.
func looseChallenges(header string) []oauthex.Challenge {
	if !bearerScheme().MatchString(header) {
		return nil
	}
	c := oauthex.Challenge{Scheme: "bearer", Params: make(map[string]string)}
	for _, param := range bearerParam().FindAllStringSubmatch(header, maxScopes) {
		c.Params[strings.ToLower(param[1])] = param[2]
	}
	return []oauthex.Challenge{c}
}

// maxScopes bounds the scopes of one challenge, one token or one document of metadata, and
// maxScopesLength their length in bytes.
const (
	maxScopes       = 256
	maxScopesLength = 8 << 10
)

// splitScopes returns the scopes in a text, of which only the beginning is read if it is too long.
func splitScopes(text string) []string { return boundScopes(strings.Fields(text)) }

// boundScopes returns the first scopes of a list, as many as the bounds permit.
func boundScopes(all []string) []string {
	length := 0
	for i, scope := range all {
		if length += len(scope) + 1; i == maxScopes || length > maxScopesLength {
			return all[:i]
		}
	}
	return all
}

// metadata describes how to get access to a server.
type metadata struct {
	resource string   // the server's name for itself, for the parameter resource (RFC 8707)
	scopes   []string // scopes_supported of the resource
	server   oauthex.AuthServerMeta
	// assumed is true if nothing was found: server has the endpoints that MCP 2025-03-26 assumes
	// ("Fallbacks for Servers without Metadata Discovery").
	assumed bool
}

// A discoverer finds the authorization server of an MCP server.
type discoverer struct {
	server *url.URL
	guard  *guard
	http   *http.Client // sends through guard
}

// discover finds the authorization server: by the metadata of the resource
// at the URL of the challenge, at the path, or at the root (RFC 9728, MCP "Protected Resource
// Metadata Discovery"), or, without such metadata, at the root of the server (MCP 2025-03-26). If
// there are several authorization servers, the one with the issuer preferred is used, or else the
// first.
func (d *discoverer) discover(
	ctx context.Context, ch challenge, preferred string,
) (*metadata, error) {
	resource, err := d.resourceMetadata(ctx, ch)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		base := &url.URL{Scheme: d.server.Scheme, Host: d.server.Host}
		m := &metadata{resource: d.resourceURL()}
		found, err := d.serverMetadata(ctx, base.String(), &m.server)
		if err == nil && !found {
			m.assumed = true
			m.server = oauthex.AuthServerMeta{Issuer: base.String(),
				AuthorizationEndpoint: base.JoinPath("authorize").String(),
				TokenEndpoint:         base.JoinPath("token").String(),
				RegistrationEndpoint:  base.JoinPath("register").String()}
		}
		return m, err
	}
	issuer := resource.AuthorizationServers[0]
	if slices.Contains(resource.AuthorizationServers, preferred) {
		issuer = preferred
	}
	m := &metadata{resource: resource.Resource, scopes: boundScopes(resource.ScopesSupported)}
	found, err := d.serverMetadata(ctx, issuer, &m.server)
	if err == nil && !found {
		err = fmt.Errorf("the authorization server %s has no metadata (RFC 8414)", shown(issuer))
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// resourceURL returns the URL of the server as its identifier (RFC 8707 §2): without query and
// fragment.
func (d *discoverer) resourceURL() string {
	u := url.URL{Scheme: d.server.Scheme, Host: strings.ToLower(d.server.Host),
		Path: d.server.Path, RawPath: d.server.RawPath}
	return u.String()
}

// resourceMetadata returns the metadata of the resource, nil if there is none.
func (d *discoverer) resourceMetadata(ctx context.Context, ch challenge) (
	*oauthex.ProtectedResourceMetadata, error,
) {
	const wellKnown = "/.well-known/oauth-protected-resource"
	at := func(path string) string {
		return (&url.URL{Scheme: d.server.Scheme, Host: d.server.Host, Path: path}).String()
	}
	urls := []string{at(wellKnown + "/" + strings.TrimLeft(d.server.Path, "/")), at(wellKnown)}
	if strings.Trim(d.server.Path, "/") == "" {
		urls = urls[1:]
	}
	if ch.metadataURL != "" {
		urls = slices.Insert(urls, 0, ch.metadataURL)
	}
	for _, address := range slices.Compact(urls) {
		resource := new(oauthex.ProtectedResourceMetadata)
		found, err := d.getJSON(ctx, address, resource)
		_, unreached := errors.AsType[*connectError](err)
		switch {
		case unreached && address != ch.metadataURL:
			return nil, fmt.Errorf("%w; check the url of the backend, and that the server runs", err)
		case err != nil:
			return nil, fmt.Errorf("the metadata of the server at %s: %w", shown(address), err)
		case !found:
			continue
		case !d.isNamedBy(resource.Resource):
			return nil, fmt.Errorf("the metadata of the server at %s is that of another resource, %s",
				shown(address), shown(resource.Resource))
		case len(resource.AuthorizationServers) == 0:
			return nil, fmt.Errorf("the metadata of the server at %s names no authorization server",
				shown(address))
		}
		return resource, nil
	}
	return nil, nil
}

// isNamedBy reports whether resource identifies the server: it is the URL of the server, or a URL
// of the same origin whose path is a parent of the server's path. (RFC 9728 §3.3 requires equality,
// but many servers give their root.)
func (d *discoverer) isNamedBy(resource string) bool {
	u, err := url.Parse(resource)
	if err != nil || u.RawQuery != "" || u.Fragment != "" ||
		weburl.Origin(u) != weburl.Origin(d.server) {
		return false
	}
	dir := strings.TrimSuffix(u.EscapedPath(), "/") + "/"
	return strings.HasPrefix(strings.TrimSuffix(d.server.EscapedPath(), "/")+"/", dir)
}

// serverMetadata fetches the metadata of an authorization server into m, from the first of the
// URLs at which it exists (MCP "Authorization Server Metadata Discovery"). It reports false if
// there is none.
func (d *discoverer) serverMetadata(
	ctx context.Context, issuer string, m *oauthex.AuthServerMeta,
) (found bool, err error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return false, fmt.Errorf("the authorization server %s is not a URL", shown(issuer))
	}
	for _, address := range serverMetadataURLs(u) {
		*m = oauthex.AuthServerMeta{}
		found, err := d.getJSON(ctx, address, m)
		if err == nil && found {
			err = checkServerMetadata(m, issuer)
		}
		if err != nil {
			return false, fmt.Errorf("the metadata of the authorization server at %s: %w",
				shown(address), err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

func serverMetadataURLs(issuer *url.URL) (urls []string) {
	const oauth, openID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	path := strings.Trim(issuer.Path, "/")
	paths := []string{oauth, openID}
	if path != "" {
		paths = []string{oauth + "/" + path, openID + "/" + path, "/" + path + openID}
	}
	for _, path := range paths {
		u := url.URL{Scheme: issuer.Scheme, Host: issuer.Host, Path: path}
		urls = append(urls, u.String())
	}
	return urls
}

// checkServerMetadata returns an error if metadata is not that of the issuer (RFC 8414 §3.3,
// compared as strings), if the server does not support PKCE with S256, or if an endpoint is
// missing or not an http or https URL.
func checkServerMetadata(m *oauthex.AuthServerMeta, issuer string) error {
	switch {
	case m.Issuer != issuer:
		return fmt.Errorf("the issuer is %s, not %s", shown(m.Issuer), shown(issuer))
	case m.TokenEndpoint == "":
		return errors.New("there is no token_endpoint")
	case m.AuthorizationEndpoint != "" && !slices.Contains(m.CodeChallengeMethodsSupported, "S256"):
		return errors.New("code_challenge_methods_supported has no S256, " +
			"so the server does not support PKCE as MCP requires")
	}
	for name, address := range map[string]string{
		"authorization_endpoint": m.AuthorizationEndpoint, "token_endpoint": m.TokenEndpoint,
		"registration_endpoint": m.RegistrationEndpoint,
		"revocation_endpoint":   m.RevocationEndpoint,
	} {
		if u, err := url.Parse(address); address != "" &&
			(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("%s is not an http or https URL", name)
		}
	}
	return nil
}

// getJSON fetches a JSON object. It reports false if the server responds with a status from 400 to
// 499, or with something other than JSON, such as the page that some servers send for any path.
func (d *discoverer) getJSON(
	ctx context.Context, address string, into any,
) (found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, errors.New("not a URL")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	resp, err := d.http.Do(req)
	if err != nil {
		return false, withoutURL(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return false, nil
	case resp.StatusCode != http.StatusOK:
		return false, fmt.Errorf("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, withoutURL(err)
	}
	if !json.Valid(body) {
		return false, nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return false, errors.New("a member has the wrong type")
	}
	return true, nil
}

// userAgent identifies the gateway to authorization servers.
const userAgent = "mcp-gateway"

var errNoAnswer = fmt.Errorf("no answer within %v", requestTimeout)

func isTimeout(err error) bool {
	return os.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded)
}

// withoutURL removes the URL that package net/http adds to err, and bounds the text.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if isTimeout(err) {
		return errNoAnswer
	}
	if unreached := connectErrorOf(err); unreached != nil {
		return unreached
	}
	if len(err.Error()) > maxShown {
		return errors.New(text.Truncate(err.Error(), maxShown))
	}
	return err
}

// A connectError is the error of a connection that was not opened, without terms of package net.
type connectError struct{ address, reason string }

func (e *connectError) Error() string {
	return text.Truncate("no connection to "+e.address+": "+e.reason, maxShown)
}

// connectErrorOf returns the connectError for err; nil = err is another error.
func connectErrorOf(err error) *connectError {
	op, is := errors.AsType[*net.OpError](err)
	if !is || op.Op != "dial" {
		return nil
	}
	if dns, is := errors.AsType[*net.DNSError](op.Err); is {
		return &connectError{dns.Name, dns.Err}
	}
	if system, is := errors.AsType[*os.SyscallError](op.Err); is && op.Addr != nil {
		return &connectError{op.Addr.String(), system.Err.Error()}
	}
	return nil
}

// maxShown bounds the text of a server in an error, in bytes.
const maxShown = 300

// shown returns a text of a server for an error: on one line, bounded, and a URL without user and
// query.
func shown(s string) string {
	if u, err := url.Parse(s); err == nil {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		s = u.String()
	}
	return fmt.Sprintf("%q", text.Truncate(s, maxShown))
}
