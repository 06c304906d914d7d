package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"mcpgateway/internal/lazy"
)

// http checks the address of the HTTP server and the access rules.
func (c *checker) http(cfg *Config) {
	c.listen(cfg)
	c.tokens(cfg)
	c.authorizationServer(cfg)
	c.tls(cfg.TLS)
	c.publicURL(cfg)
	for i, origin := range cfg.Origins {
		c.origin(origin, fmt.Sprintf("origins[%d]", i))
	}
	for i, host := range cfg.Hosts {
		c.host(host, fmt.Sprintf("hosts[%d]", i))
	}
}

// publicURL checks the URL for browsers.
func (c *checker) publicURL(cfg *Config) {
	u, err := url.Parse(cfg.Auth.PublicURL)
	switch {
	case cfg.Auth.PublicURL == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "":
		c.fail("auth.public_url", "must be an http or https URL, without user, query and fragment",
			"write it like https://gateway.example")
	case cfg.Listen == "":
		c.fail("auth.public_url", "requires listen", "")
	}
}

// listen checks the address of the HTTP server. It rejects names of ports, because these differ
// between machines. It also rejects an address that other machines can reach if clients need no
// token.
func (c *checker) listen(cfg *Config) {
	if cfg.Listen == "" {
		return
	}
	switch {
	case !c.address("listen", cfg.Listen, "127.0.0.1:7420"):
	case !cfg.Loopback() && !cfg.Auth.RequiresToken() && !c.reported["auth"] &&
		!c.reported["auth.tokens"] && !c.reported["auth.oauth"]:
		c.fail("listen", "other machines can reach this address, and there are no auth.tokens "+
			"and no auth.oauth", "set auth.tokens in the file, or listen on 127.0.0.1")
	}
}

// address checks the form of an address, and reports whether it is valid.
func (c *checker) address(key, address, example string) bool {
	host, port, err := net.SplitHostPort(address)
	_, noAddress := netip.ParseAddr(host)
	hint := "write " + example + ", or another port"
	switch {
	case err != nil, host != "" && noAddress != nil &&
		!hostName().MatchString(strings.ToLower(host)):
		c.fail(key, "must be host:port"+c.not(key), hint)
	case !isPort(port):
		c.fail(key, "must end in a port from 0 to 65535"+c.not(key), hint)
	default:
		return true
	}
	return false
}

// admin checks the address of the admin API.
func (c *checker) admin(cfg *Config) {
	const key = "admin.listen"
	switch {
	case cfg.Admin.Listen == "" || !c.address(key, cfg.Admin.Listen, "127.0.0.1:7421"):
	case cfg.Admin.Listen == cfg.Listen && !strings.HasSuffix(cfg.Listen, ":0"):
		c.fail(key, "is the same address as listen", "choose another port, such as 7421")
	}
}

func (c *checker) tls(t TLS) {
	const hint = "name both files, or none"
	switch {
	case t.Cert != "" && t.Key == "" && !c.reported["tls.key"]:
		c.fail("tls.cert", "requires tls.key", hint)
	case t.Key != "" && t.Cert == "" && !c.reported["tls.cert"]:
		c.fail("tls.key", "requires tls.cert", hint)
	}
}

var originParts = lazy.Regexp(
	`^([a-z][a-z0-9+.-]*)://(\[[0-9a-f.]*:[0-9a-f:.]*\]|[^:/?#@\[\]]+)(?::([0-9]+))?$`)

// origin accepts only text in the exact form that browsers send, because any other text would never
// match.
func (c *checker) origin(origin, at string) {
	m := originParts().FindStringSubmatch(origin)
	switch {
	case c.reported[at]:
	case strings.Contains(origin, "*"):
		c.fail(at, "must not contain *: any web page could send requests as the user of the browser",
			"name each origin")
	case m == nil, !isHost(strings.Trim(m[2], "[]")), m[3] != "" && !isPort(m[3]):
		c.fail(at, "must be scheme://host or scheme://host:port, as browsers send it",
			"write it like https://inspector.example, in lowercase and without a path")
	case m[1] == "http" && m[3] == "80", m[1] == "https" && m[3] == "443":
		c.fail(at, "must omit port "+m[3]+", because browsers omit the default port", "")
	}
}

func (c *checker) host(host, at string) {
	switch {
	case c.reported[at]:
	case strings.Contains(host, "*"):
		c.fail(at,
			"must not contain *: any web page could reach the gateway under the page's host name",
			"name each host")
	case !isHost(host):
		c.fail(at, "must be the name of a host or its IP address, and nothing else",
			"write it like gateway.example, in lowercase, without scheme, port or path")
	}
}

var hostName = lazy.Regexp(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)

// isHost reports whether host is a name in lowercase or an IP address in canonical form. Hosts
// are compared as text, so other forms would never match.
func isHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.String() == host || hostName().MatchString(host)
}

func isPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// otel checks the settings of traces.
func (c *checker) otel(o OTel) {
	if u, err := url.Parse(o.Endpoint); o.Endpoint != "" && o.Endpoint != PathNone &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.Fragment != "") {
		c.fail("otel.endpoint", "must be an http or https URL, or none",
			"write the address of a receiver of OTLP over HTTP, like http://127.0.0.1:4318")
	}
	if _, ok := SampleRatio(o.Sample); o.Sample != "" && !ok && !c.reported["otel.sample"] {
		c.fail("otel.sample", "must be a number from 0 to 1 or a percentage"+c.not("otel.sample"),
			"write 0.01 or 1% for one trace of a hundred")
	}
	c.headers(o.Headers, "otel.headers.")
	for name := range o.Headers {
		if strings.EqualFold(name, "Host") {
			c.fail("otel.headers."+name, "is set by otel.endpoint", "leave it out")
		}
	}
}
