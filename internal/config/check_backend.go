package config

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/lazy"
)

var (
	backendName = lazy.Regexp(`^[a-z0-9][a-z0-9_-]*$`)
	headerName  = lazy.Regexp("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	scopeToken  = lazy.Regexp(`^[!#-\[\]-~]+$`) // RFC 6749 §3.3
)

// backend checks the i-th backend. If the backend is disabled, only its name is checked, because
// its variables need not be set.
func (c *checker) backend(b *Backend, i int, named map[string]int) {
	at := fmt.Sprintf("backends[%d]", i)
	c.checkName(b.Name, at, named)
	if !b.Enabled {
		return
	}
	c.target(b, at)
	if b.URL != "" {
		c.url(b.URL, at+".url")
		oneOf(c, at+".transport", b.Transport, TransportAuto, TransportHTTP, TransportSSE)
		c.clientTLS(b, at+".tls")
		c.oauth(b, at+".oauth")
	}
	oneOf(c, at+".sharing", b.Sharing, SharingAuto, SharingShared, SharingSession)
	oneOf(c, at+".era", b.Generation, GenerationAuto, GenerationLegacy, GenerationModern)
	if b.Generation == GenerationModern && b.Transport == TransportSSE {
		c.fail(at+".era", "modern cannot be combined with transport: sse, which is legacy", "")
	}
	if path := c.keyPath(at, "max_in_flight"); b.MaxInFlight < 1 && !c.reported[path] {
		c.reported[path] = true
		c.fail(path, "must be at least 1"+c.not(path), "")
	}
	c.rate(b.Rate, at+".rate")
	c.environment(b, at)
	c.headers(b.Headers, at+".headers.")
	c.filter(b.Tools.Filter(), at+".tools")
	c.globs(b.Tools.Confirm, at+".tools.confirm")
	oneOf(c, at+".tools.pin", b.Tools.Pin, PinOff, PinWarn, PinBlock)
	c.filter(b.Prompts, at+".prompts")
	c.filter(b.Resources, at+".resources")
}

// keyPath returns the path of a backend's value for key, which is in the backend's entry or in
// defaults.
func (c *checker) keyPath(at, key string) string {
	if path := at + "." + key; c.isGiven(path) {
		return path
	}
	return "defaults." + key
}

func (c *checker) checkName(name, at string, named map[string]int) {
	first, taken := named[name]
	switch {
	case name == "" && c.reported[at]:
	case name == "":
		c.fail(at, "has no name", "")
	case !backendName().MatchString(name):
		c.fail(at+".name", "must be lowercase letters, digits, _ and -, a letter or digit first"+
			c.not(at+".name"), "write it like my-server")
	case taken:
		c.fail(at+".name", fmt.Sprintf("%q is taken by the backend on line %d",
			c.locations[at+".name"].text, first), "")
	default:
		named[name] = c.locations[at+".name"].line
	}
}

// target checks that b has exactly one target and that the target is valid.
func (c *checker) target(b *Backend, at string) {
	var targets []string
	for _, t := range []struct{ key, value string }{
		{"command", b.Command}, {"url", b.URL}, {"embedded", b.Embedded},
	} {
		if t.value != "" {
			targets = append(targets, t.key)
		}
	}
	switch {
	case len(targets) == 0 && !c.reported[at] && len(c.misconfigured[at].problems) == 0:
		c.fail(at, "needs one of command, url and embedded", "")
	case len(targets) > 1:
		c.fail(at, "has "+strings.Join(targets, " and ")+", and may have only one of them", "")
	}
	if len(targets) == 1 {
		c.misplacedKeys(b, at, targets[0])
	}
	if b.Embedded != "" && b.Embedded != "demo" {
		c.fail(at+".embedded", "must be demo"+c.not(at+".embedded"), "")
	}
}

// misplacedKeys reports keys that have no effect with the target of b. They are errors, not
// warnings, because an ignored key may be a secret or a restriction that the user relies on.
func (c *checker) misplacedKeys(b *Backend, at, target string) {
	for _, k := range []struct {
		key   string
		given bool
		of    string
	}{
		{"args", len(b.Args) > 0, "command"},
		{"env", len(b.Env) > 0, "command"},
		{"inherit_env", len(b.InheritEnv) > 0, "command"},
		{"cwd", b.Cwd != "", "command"},
		{"headers", len(b.Headers) > 0, "url"},
		{"tls", b.TLS != ClientTLS{}, "url"},
		{"oauth", !b.OAuth.IsZero(), "url"},
		{"transport", b.Transport != TransportAuto, "url"},
		{"idle_stop", c.isGiven(at + ".idle_stop"), "command"},
	} {
		if k.given && k.of != target {
			c.fail(at+"."+k.key, "belongs to a backend with "+k.of+", and this one has "+target, "")
		}
	}
}

// url checks a URL. Its errors do not contain the URL, which may contain a secret.
func (c *checker) url(raw, at string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		c.fail(at, "is not a valid URL", "")
	case u.Scheme != "http" && u.Scheme != "https":
		c.fail(at, "must begin with http:// or https://", "write it like http://127.0.0.1:8080/mcp")
	case u.Hostname() == "":
		c.fail(at, "has no host", "")
	}
}

func (c *checker) environment(b *Backend, at string) {
	for _, name := range slices.Sorted(maps.Keys(b.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			c.fail(at+".env."+name, "is not a valid variable name", "")
		}
	}
	for i, name := range b.InheritEnv {
		here := fmt.Sprintf("%s.inherit_env[%d]", at, i)
		if !c.reported[here] && (name == "" || strings.ContainsAny(name, "=\x00")) {
			c.fail(here, "is not a valid variable name", "write names here, and values under env")
		}
	}
}

func (c *checker) headers(headers map[string]string, at string) {
	written := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lower := strings.ToLower(name)
		first, twice := written[lower]
		written[lower] = name
		switch {
		case !headerName().MatchString(name):
			c.fail(at+name, "is not a valid header name", "")
		case IsReservedHeader(name):
			c.fail(at+name, reservedHeader, "leave it out")
		case twice:
			c.fail(at+name, "is the same header as "+first, "keep one of them")
		case lower == "host" && !isHostHeader(headers[name]):
			c.fail(at+name, "must be a host, or host:port", "")
		case strings.ContainsAny(headers[name], "\r\n"):
			c.fail(at+name, "must be one line", "")
		}
	}
}

func (c *checker) filter(f Filter, at string) {
	c.globs(f.Allow, at+".allow")
	c.globs(f.Deny, at+".deny")
}

func (c *checker) globs(globs []string, at string) {
	for i, glob := range globs {
		here := fmt.Sprintf("%s[%d]", at, i)
		if _, err := path.Match(escapeSlashes(glob), ""); !c.reported[here] &&
			(err != nil || glob == "") {
			c.fail(here, "is not a valid glob",
				`* stands for any text, ? for any character, [a-z] for a character of the range; \ makes the next character literal`)
		}
	}
}

// reservedHeader is the problem in the error about a header that cannot be configured.
const reservedHeader = "belongs to the protocol or to HTTP itself: the gateway sets it for each request"

// reserved are the HTTP headers that only the gateway may set in requests to backends. All headers
// that begin with Mcp- are also reserved.
var reserved = []string{
	"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type",
	"expect",
	"keep-alive", "last-event-id", "proxy-connection", "te", "trailer", "transfer-encoding",
	"upgrade", "via",
}

// IsReservedHeader reports whether only the gateway may set a header.
func IsReservedHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "mcp-") || slices.Contains(reserved, name)
}

// isHostHeader reports whether value is valid in the Host header.
func isHostHeader(value string) bool {
	u, err := url.Parse("http://" + value)
	return err == nil && u.Hostname() != "" && u.Host == value
}

// dropReserved returns a mapping of headers without the reserved headers, and the keys of the
// reserved headers in the form headers.NAME. Files of other clients may contain reserved headers,
// which have no effect there.
func dropReserved(headers *yaml.Node) (kept *yaml.Node, dropped []string) {
	if headers.Kind != yaml.MappingNode {
		return headers, nil
	}
	copied := *headers
	copied.Content = nil
	for i := 0; i+1 < len(headers.Content); i += 2 {
		if name := headers.Content[i].Value; IsReservedHeader(name) {
			dropped = append(dropped, "headers."+node.ShowKey(name))
		} else {
			copied.Content = append(copied.Content, headers.Content[i], headers.Content[i+1])
		}
	}
	return &copied, dropped
}

// clientTLS checks the TLS settings of a backend. It does not open the files.
func (c *checker) clientTLS(b *Backend, at string) {
	const hint = "name both files, or none"
	switch t := b.TLS; {
	case t == ClientTLS{}:
	case strings.HasPrefix(strings.ToLower(b.URL), "http://"):
		c.fail(at, "requires a url with https", "")
	case t.Cert != "" && t.Key == "":
		c.fail(at+".cert", "requires key", hint)
	case t.Key != "" && t.Cert == "":
		c.fail(at+".key", "requires cert", hint)
	}
}

// oauth checks the OAuth settings of a backend.
func (c *checker) oauth(b *Backend, at string) {
	o := &b.OAuth
	if o.IsZero() {
		return
	}
	for name := range b.Headers {
		if strings.EqualFold(name, "Authorization") {
			c.fail(at, "cannot be combined with the header "+name, "keep one of them")
		}
	}
	if u, err := url.Parse(b.URL); err == nil && u.User != nil {
		c.fail(at, "cannot be combined with a user in url", "keep one of them")
	}
	if o.Grant != "" {
		oneOf(c, at+".grant", o.Grant, GrantAuthorizationCode, GrantClientCredentials)
	}
	if o.Per != "" {
		oneOf(c, at+".per", o.Per, PerGateway, PerPrincipal)
	}
	if o.Per == PerPrincipal && o.Grant == GrantClientCredentials {
		c.fail(at+".per", "principal cannot be combined with grant: client_credentials",
			"with this grant nobody logs in; remove one of them")
	}
	switch {
	case c.reported[at+".client_id"] || c.reported[at+".client_secret"]:
	case o.Grant == GrantClientCredentials && (o.ClientID == "" || o.ClientSecret == ""):
		c.fail(at+".grant", "client_credentials requires client_id and client_secret", "")
	case o.ClientSecret != "" && o.ClientID == "":
		c.fail(at+".client_secret", "requires client_id", "")
	case o.ClientMetadataURL != "" && o.ClientID != "":
		c.fail(at+".client_metadata_url", "cannot be combined with client_id", "keep one of them")
	}
	if u, err := url.Parse(o.ClientMetadataURL); o.ClientMetadataURL != "" &&
		(err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "" ||
			u.User != nil || u.Fragment != "") {
		c.fail(at+".client_metadata_url", "must be an https URL with a path", "")
	}
	if o.RedirectPort < 0 || o.RedirectPort > 65535 {
		c.fail(at+".redirect_port", "must be a port, 0 to 65535"+c.not(at+".redirect_port"), "")
	}
	for i, scope := range o.Scopes {
		c.scope(scope, fmt.Sprintf("%s.scopes[%d]", at, i))
	}
}

// profiles checks the profiles.
func (c *checker) profiles(cfg *Config) {
	var names []string
	for _, b := range cfg.Backends {
		names = append(names, b.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		at := "profiles." + name
		p := cfg.Profiles[name]
		if !backendName().MatchString(name) {
			c.fail(at, "must be lowercase letters, digits, _ and -, a letter or digit first",
				"write it like read-only")
			continue
		}
		if c.isGiven(at+".backends") && len(p.Backends) == 0 && !c.reported[at+".backends"] {
			c.fail(at+".backends", "is empty", "leave the key out to permit all backends")
		}
		for i, b := range p.Backends {
			if here := fmt.Sprintf("%s.backends[%d]", at, i); !slices.Contains(names, b) &&
				!c.reported[here] {
				hint := "the names are " + strings.Join(names, ", ")
				if near, ok := Nearest(b, names); ok {
					hint = "did you mean " + near + "?"
				}
				c.fail(here, fmt.Sprintf("there is no backend %q", b), hint)
			}
		}
		c.rate(p.Rate, at+".rate")
		c.filter(p.Tools.Filter(), at+".tools")
		c.filter(p.Prompts, at+".prompts")
		c.filter(p.Resources, at+".resources")
	}
}

// profile checks the name of a profile that a token selects.
func (c *checker) profile(cfg *Config, name, at string) {
	names := slices.Sorted(maps.Keys(cfg.Profiles))
	_, known := cfg.Profiles[name]
	switch {
	case c.reported[at] || known:
	case name == "":
		c.fail(at, "is empty", "leave the key out")
	default:
		hint := "define it in profiles, or leave the key out"
		if near, ok := Nearest(name, names); ok {
			hint = "did you mean " + near + "?"
		}
		c.fail(at, fmt.Sprintf("there is no profile %q", name), hint)
	}
}
