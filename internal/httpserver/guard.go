package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/weburl"
)

// admit checks Host, Origin and further headers of a request before the body is read, and sets the
// CORS headers of the response. Preflight requests contain no token.
func (a *accessControl) admit(h http.Header, r *http.Request) *httpError {
	if herr := a.admitHost(r); herr != nil {
		return herr
	}
	if herr := checkSingleValues(r.Header); herr != nil {
		return herr
	}
	if herr := a.admitOrigin(h, r); herr != nil {
		return herr
	}
	if a.via != "" && r.Method != http.MethodOptions &&
		strings.Contains(strings.Join(r.Header["Via"], ","), a.via) {
		return newHTTPError(http.StatusLoopDetected,
			"Loop detected: this backend is the gateway itself; remove it from the configuration")
	}
	return nil
}

// admitHost checks the header Host: after DNS rebinding, a page of another site could send requests
// to a gateway that listens on a loopback address.
func (a *accessControl) admitHost(r *http.Request) *httpError {
	if a.loopback && !a.isGatewayHost(r.Host) {
		return newHTTPError(http.StatusForbidden,
			"Forbidden: the Host header names another host; if a proxy in front of the gateway "+
				"has that name, add it to hosts in the gateway's configuration")
	}
	return nil
}

// singleValueHeaders must not have several different values (RFC 9110 §5.3), because a proxy in
// front of the gateway might have checked a different value than the gateway uses.
var singleValueHeaders = []string{
	"Authorization", "Content-Type", protocol.HeaderLastEventID, protocol.HeaderSessionID,
}

// checkSingleValues returns an error if one of singleValueHeaders has different values.
func checkSingleValues(header http.Header) *httpError {
	for _, name := range singleValueHeaders {
		values := header[name]
		if len(values) > 1 && len(slices.Compact(slices.Clone(values))) > 1 {
			return newHTTPError(http.StatusBadRequest,
				"Bad request: the header %s has different values; send it once", name)
		}
	}
	return nil
}

// logThrottle is the minimum time between two log records about the same kind of overload.
const logThrottle = 10 * time.Second

// admitOrigin rejects requests of browser pages of other sites, and sets the CORS headers h for
// allowed pages. Clients that are not browsers send no Origin.
func (a *accessControl) admitOrigin(h http.Header, r *http.Request) *httpError {
	if r.Method == http.MethodOptions {
		h.Set("Allow", "GET, POST, DELETE, OPTIONS")
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		if isCrossOrigin(r) {
			return newHTTPError(http.StatusForbidden,
				"Forbidden: a page of another site sends this request")
		}
		return nil
	}
	h.Add("Vary", "Origin")
	if len(origins) > 1 || !a.acceptsOrigin(origins[0], r.Host) {
		return newHTTPError(http.StatusForbidden,
			"Forbidden: pages of this Origin must not use the gateway, unless origins contains it")
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Retry-After, WWW-Authenticate")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers",
			"Accept, Authorization, Content-Type, Last-Event-ID, "+
				"Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id"+paramHeaders(r))
		h.Set("Access-Control-Max-Age", "7200")
	}
	return nil
}

// isCrossOrigin reports whether a browser sends the request for a page of another origin. If the
// request has no Origin, for example because it loads an image, Sec-Fetch-Site is the only sign.
// Pages of other ports of the same host are same-site, and are not trusted either.
func isCrossOrigin(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Sec-Fetch-Site"], func(site string) bool {
		return site != "same-origin" && site != "none"
	})
}

// maxParamHeaders is the maximum number of Mcp-Param-* headers allowed by one preflight response.
const maxParamHeaders = 64

// paramHeaders returns the Mcp-Param-* headers that a preflight requests, each preceded by a comma.
// The names of these headers depend on the tools and cannot be listed in advance, and "*" allows
// all headers only for requests without credentials.
func paramHeaders(r *http.Request) string {
	var list strings.Builder
	n := 0
	for _, line := range r.Header["Access-Control-Request-Headers"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if strings.HasPrefix(name, protocol.HeaderParamPrefix) && n < maxParamHeaders {
				list.WriteString(", " + name)
				n++
			}
		}
	}
	return list.String()
}

// acceptsOrigin reports whether a page of origin may send requests to the gateway. host is the Host
// header of the request. Configured origins are accepted, and loopback origins if the gateway has
// tokens and listens on loopback. Otherwise origin and host must be equal, and host must be an IP
// address or a name of the gateway: after DNS rebinding, origin and host are also equal for any
// other name.
func (a *accessControl) acceptsOrigin(origin, host string) bool {
	if slices.ContainsFunc(a.policy.Load().origins, func(o string) bool {
		return strings.EqualFold(strings.TrimSuffix(o, "/"), origin)
	}) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
		u.Scheme+"://"+u.Host != strings.ToLower(origin) && u.Scheme+"://"+u.Host != origin {
		return false
	}
	if a.loopback && !a.policy.Load().isOpen() && weburl.IsLoopback(hostname(u.Host)) {
		return true // the page needs a token as well
	}
	return strings.EqualFold(u.Host, host) &&
		(a.isGatewayHost(host) || isIPAddress(hostname(host)))
}

// isGatewayHost reports whether a Host header certainly contains a name of the gateway.
func (a *accessControl) isGatewayHost(host string) bool {
	name := hostname(host)
	isOurs := func(ours string) bool {
		return strings.EqualFold(ours, host) || strings.EqualFold(ours, name)
	}
	return weburl.IsLoopback(name) || slices.ContainsFunc(a.policy.Load().hosts, isOurs)
}

// hostname returns host without port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func isIPAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}
