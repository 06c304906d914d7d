package resourceserver

import (
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// MetadataPath is the path at which clients look for the metadata of the gateway (RFC 9728 §3),
// followed by the path of the gateway or by nothing.
const MetadataPath = "/.well-known/oauth-protected-resource"

// Metadata returns the metadata of the gateway as a JSON object (RFC 9728 §2).
func (v *Verifier) Metadata() []byte {
	return wire.Encode(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
	}{v.opts.Audience, []string{v.opts.Issuer}, v.opts.Scopes, []string{"header"}})
}

// HasMetadataAt reports whether path is a path of the metadata: without the path of the gateway,
// with the path /mcp, or with the path of Options.Audience. path has no trailing slash.
func (v *Verifier) HasMetadataAt(path string) bool {
	rest, ok := strings.CutPrefix(path, MetadataPath)
	return ok && slices.Contains([]string{"", "/mcp", v.audiencePath()}, rest)
}

func (v *Verifier) audiencePath() string {
	u, err := url.Parse(v.opts.Audience)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// metadataURL returns the URL of the metadata for clients outside of a proxy.
func (v *Verifier) metadataURL() string {
	u, err := url.Parse(v.opts.Audience)
	if err != nil {
		return ""
	}
	u.Path = MetadataPath + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// Challenge returns the value of the header WWW-Authenticate for a rejected request. err is nil if
// the request has no token.
func (v *Verifier) Challenge(err error) string {
	var b strings.Builder
	b.WriteString("Bearer ")
	add := func(name, value string) {
		if value != "" {
			b.WriteString(name + `="` + quotable(value) + `", `)
		}
	}
	switch err := err.(type) {
	case *InvalidTokenError:
		add("error", "invalid_token")
		add("error_description", err.Reason)
	case *ScopeError:
		add("error", "insufficient_scope")
		add("error_description", err.Error())
	}
	add("scope", strings.Join(v.opts.Scopes, " "))
	add("resource_metadata", v.metadataURL())
	return strings.TrimSuffix(b.String(), ", ")
}

// quotable removes the characters that must not occur in a quoted value (RFC 6750 §3).
func quotable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s)
}
