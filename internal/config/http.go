package config

import (
	"net"
	"net/netip"
	"strings"
)

// Auth says who is let in over HTTP.
type Auth struct {
	// Tokens are bearer tokens, any of which lets a client in; none = everybody is
	// let in. Each has at least 16 characters, all of them visible ASCII, or is AutoToken.
	Tokens []string `koanf:"tokens"`
	// TokenVariable is the one that the first of them is the value of; "" = it stands in
	// the file, or is made of several.
	TokenVariable string `koanf:"-"`
}

// AutoToken stands for a token that the gateway makes itself and keeps in the state directory.
const AutoToken = "auto"

// IsToken reports whether a text may be a token.
func IsToken(text string) bool {
	return len(text) >= minTokenLength && visibleASCII().MatchString(text)
}

// TLS names the files with which HTTP is served encrypted, ~ already expanded:
// both or none. They may not exist.
type TLS struct {
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// ClientTLS names the files with which a backend is reached over https, ~ already expanded. They
// may not exist.
type ClientTLS struct {
	CA         string `koanf:"ca"`          // authorities to trust, instead of the system's
	Cert       string `koanf:"cert"`        // certificate to show, and
	Key        string `koanf:"key"`         // its key: both or none
	ServerName string `koanf:"server_name"` // name in the server's certificate; "" = the host of the URL
}

// Loopback tells whether Listen is an address that only this machine reaches:
// localhost, 127.0.0.0/8 or ::1. It looks no name up. A Listen without a host
// is every address of the machine, and none at all is no loopback either.
func (c *Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}
