package config

import (
	"net"
	"net/netip"
	"strings"
)

// Auth configures the access over HTTP.
type Auth struct {
	// Tokens are bearer tokens, each of which gives access; none = access without a token. A
	// token has at least 16 characters, all visible ASCII, or is AutoToken.
	Tokens []string `koanf:"tokens"`
	// TokenVariable is the variable whose value is the first token; "" = the token is in the
	// file, or composed of several parts.
	TokenVariable string `koanf:"-"`
}

// AutoToken stands for a token that the gateway generates and keeps in the state directory.
const AutoToken = "auto"

// IsToken reports whether text is a valid token.
func IsToken(text string) bool {
	return len(text) >= minTokenLength && visibleASCII().MatchString(text)
}

// TLS has the certificate and key of the HTTP server, ~ already expanded: both or none. The files
// may not exist.
type TLS struct {
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// ClientTLS has the files for https connections to a backend, ~ already expanded. They may not
// exist.
type ClientTLS struct {
	CA         string `koanf:"ca"`          // trusted authorities, in place of the system's
	Cert       string `koanf:"cert"`        // client certificate
	Key        string `koanf:"key"`         // key of Cert: both or none
	ServerName string `koanf:"server_name"` // name in the certificate; "" = host of the URL
}

// Loopback reports whether Listen is an address that only this machine can reach: localhost,
// 127.0.0.0/8 or ::1. It does not resolve names. A Listen without a host means all addresses,
// which is not loopback; neither is an empty Listen.
func (c *Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}
