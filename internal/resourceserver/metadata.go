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

// Metadata returns the metadata of the gateway at the path of a profile as a JSON object (RFC 9728
// §2); "" = without a profile.
func (v *Verifier) Metadata(profile string) []byte {
	scopes := slices.Concat(v.opts.Scopes, v.opts.profileScopes())
	return wire.Encode(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
	}{v.opts.resource(profile), []string{v.opts.Issuer}, scopes, []string{"header"}})
}

// ProfileOfMetadata returns the profile whose metadata are at path; ok is false if path is not a
// path of metadata. These are MetadataPath, without or with the path of the gateway (/mcp, or that
// of Options.Audience), without or with the name of a profile, which need not exist. path has no
// trailing slash.
func (v *Verifier) ProfileOfMetadata(path string) (profile string, ok bool) {
	rest, ok := strings.CutPrefix(path, MetadataPath)
	if !ok {
		return "", false
	}
	if rest == "" {
		return "", true
	}
	for _, base := range []string{"/mcp", v.audiencePath()} {
		if rest == base {
			return "", true
		}
		if name, ok := strings.CutPrefix(rest, base+"/"); ok && isProfileName(name) {
			return name, true
		}
	}
	return "", false
}

// isProfileName reports whether text has the form of the name of a profile.
func isProfileName(text string) bool {
	return text != "" && len(text) <= 128 && strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) < 0
}

func (v *Verifier) audiencePath() string {
	u, err := url.Parse(v.opts.Audience)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// metadataURL returns the URL of the metadata for clients outside of a proxy.
func (v *Verifier) metadataURL(profile string) string {
	u, err := url.Parse(v.opts.resource(profile))
	if err != nil {
		return ""
	}
	u.Path = MetadataPath + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// Challenge returns the value of the header WWW-Authenticate for a rejected request. err is nil if
// the request has no token. profile is the name in the path of the request, which need not exist;
// "" = there is none.
func (v *Verifier) Challenge(err error, profile string) string {
	if !isProfileName(profile) {
		profile = ""
	}
	var b strings.Builder
	b.WriteString("Bearer ")
	add := func(name, value string) {
		if value != "" {
			b.WriteString(name + `="` + quotable(value) + `", `)
		}
	}
	scopes := v.opts.Scopes
	switch err := err.(type) {
	case *InvalidTokenError:
		add("error", "invalid_token")
		add("error_description", err.Reason)
	case *ScopeError:
		add("error", "insufficient_scope")
		add("error_description", err.Error())
	case *NoProfileError:
		if len(err.Scopes) > 0 {
			add("error", "insufficient_scope")
			scopes = append(slices.Clone(scopes), err.Scopes[0])
		}
		add("error_description", err.Error())
	}
	add("scope", strings.Join(scopes, " "))
	add("resource_metadata", v.metadataURL(profile))
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
