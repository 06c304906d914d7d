package weburl

import (
	"net/netip"
	"strings"
)

// notPublic are the reserved ranges of addresses for which package netip has no method.
var notPublic = parsePrefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32",
	"2002::/16", "3fff::/20", "5f00::/16", "fec0::/10")

func parsePrefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// IsPublic reports whether an address belongs to a host on the public internet.
func IsPublic(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, prefix := range notPublic {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}

// IsPublicAddrPort reports whether address, an IP address with a port as the function Control of a
// [net.Dialer] gets it, is public.
func IsPublicAddrPort(address string) bool {
	addr, err := netip.ParseAddrPort(address)
	return err == nil && IsPublic(addr.Addr())
}

// IsPrivateHost reports whether the host of a URL, without its port, certainly is not public. Any
// other host name may still have a private address: see IsPublicAddrPort.
func IsPrivateHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && !IsPublic(addr) || IsLocalName(host)
}

// IsLocalName reports whether a host name always means this machine (RFC 6761 §6.3).
func IsLocalName(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
