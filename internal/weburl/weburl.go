// Package weburl compares the parts of http and https URLs, and tells public hosts from others.
package weburl

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// Origin returns the scheme, host and port of an http or https URL in a normal form: the host in
// lower case, and always with a port.
func Origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Scheme + "://" + strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}

// IsLoopback reports whether only this machine can be reached at a host, which has no port and no
// brackets: localhost, 127.0.0.0/8 or ::1. It does not resolve names.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}
