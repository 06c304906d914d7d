package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/protocol"
)

// A principalID is whoever has one of the tokens; everyone is the same one, 0, where
// there is none, or was one alone from the start. Sessions are bound to theirs.
type principalID int

// String returns its number, "" where all are one.
func (p principalID) String() string {
	if p == 0 {
		return ""
	}
	return strconv.Itoa(int(p))
}

// admit checks where a request comes from, before anything of it is read. If it returns false the
// request is answered.
func (srv *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if srv.opts.Loopback && !srv.isGatewayHost(r.Host) {
		srv.reject(w, r, newHTTPError(http.StatusForbidden,
			"Forbidden: the Host header names another host; if a proxy in front of the gateway has that name, add it to hosts in the gateway's configuration"))
		return false
	}
	if herr := checkSingleValues(r.Header); herr != nil {
		srv.reject(w, r, herr)
		return false
	}
	if !srv.admitOrigin(w, r) {
		return false
	}
	if r.Method == http.MethodOptions { // a preflight carries no token
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	if srv.opts.Via != "" && strings.Contains(strings.Join(r.Header["Via"], ","), srv.opts.Via) {
		srv.reject(w, r, newHTTPError(http.StatusLoopDetected,
			"Loop detected: this backend is the gateway itself; take it out of the configuration"))
		return false
	}
	return true
}

// singleValueHeaders are the headers that may have one value only (RFC 9110 §5.3). A proxy in front of the
// gateway may have looked at another one than the gateway would.
var singleValueHeaders = []string{"Authorization", "Content-Type", protocol.HeaderLastEventID, protocol.HeaderSessionID}

// checkSingleValues refuses a request that has one of singleValueHeaders with two values.
func checkSingleValues(header http.Header) *httpError {
	for _, name := range singleValueHeaders {
		if values := header[name]; len(values) > 1 && len(slices.Compact(slices.Clone(values))) > 1 {
			return newHTTPError(http.StatusBadRequest, "Bad request: the header %s stands there with different values; send it once", name)
		}
	}
	return nil
}

// authenticate returns who sends a request. If it returns false the request is answered.
func (srv *Server) authenticate(w http.ResponseWriter, r *http.Request) (principal principalID, ok bool) {
	principal, ok = srv.principalOf(r)
	switch {
	case ok:
		markAdmitted(r)
	case r.Header.Get("Authorization") == "":
		srv.reject(w, r, newHTTPError(http.StatusUnauthorized, "Unauthorized: send the header Authorization: Bearer TOKEN").
			withHeader("WWW-Authenticate", "Bearer"))
	default:
		srv.reject(w, r, invalidToken().withHeader("WWW-Authenticate", "Bearer"))
	}
	return principal, ok
}

// invalidToken refuses somebody who has no valid token, or whose token was taken back after it was
// looked at.
func invalidToken() *httpError {
	return newHTTPError(http.StatusUnauthorized,
		"Unauthorized: what stands in the header Authorization is none of the tokens in auth.tokens, as Bearer TOKEN")
}

// logThrottle is how long after one message that there is no room others are not logged.
const logThrottle = 10 * time.Second

// principalOf compares with every token, so that the time tells nothing.
func (srv *Server) principalOf(r *http.Request) (principalID, bool) {
	tokens := srv.access.Load().tokens
	if len(tokens) == 0 {
		return 0, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	sum := sha256.Sum256([]byte(token))
	who, ok := 0, 0
	for i := range tokens {
		same := subtle.ConstantTimeCompare(sum[:], tokens[i].sum[:])
		who = subtle.ConstantTimeSelect(same, int(tokens[i].principal), who)
		ok |= same
	}
	return principalID(who), ok == 1 && token != "" && strings.EqualFold(scheme, "Bearer")
}

// admitOrigin refuses pages of other sites, and tells a browser what those that
// are accepted may do. What is no browser sends no Origin.
func (srv *Server) admitOrigin(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	if r.Method == http.MethodOptions {
		h.Set("Allow", "GET, POST, DELETE, OPTIONS")
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		if isCrossOrigin(r) {
			srv.reject(w, r, newHTTPError(http.StatusForbidden, "Forbidden: a page of another site sends this request"))
			return false
		}
		return true
	}
	h.Add("Vary", "Origin")
	if len(origins) > 1 || !srv.acceptsOrigin(origins[0], r.Host) {
		srv.reject(w, r, newHTTPError(http.StatusForbidden,
			"Forbidden: pages of this Origin may not use the gateway, unless it stands in origins"))
		return false
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Retry-After, WWW-Authenticate")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id"+paramHeaders(r))
		h.Set("Access-Control-Max-Age", "7200")
	}
	return true
}

// isCrossOrigin reports whether a browser says that a page of another origin has it send a
// request. Of a request without an Origin, such as an image's, this is the only sign. Pages of other
// ports of the same host are of the same site, and no less strangers.
func isCrossOrigin(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Sec-Fetch-Site"], func(site string) bool {
		return site != "same-origin" && site != "none"
	})
}

// maxParamHeaders bounds the headers Mcp-Param-* that a page may ask for.
const maxParamHeaders = 64

// paramHeaders returns those of the headers which a preflight asks for that repeat a
// tool's argument, for a list: their names are the tools', so that they cannot be listed
// in advance, and "*" stands for all of them only in requests without credentials.
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

// acceptsOrigin reports whether a page of that origin may come to us, whom it calls
// host. That the origin is our own proves something only if the name is known to
// be ours: of a name that was rebound to our address both are equal, too.
func (srv *Server) acceptsOrigin(origin, host string) bool {
	if slices.ContainsFunc(srv.access.Load().origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != strings.ToLower(origin) && u.Scheme+"://"+u.Host != origin {
		return false
	}
	if srv.opts.Loopback && len(srv.access.Load().tokens) > 0 && isLoopback(hostname(u.Host)) {
		return true // a page there has to have a token, too
	}
	return strings.EqualFold(u.Host, host) && (srv.isGatewayHost(host) || isIPAddress(hostname(host)))
}

// isGatewayHost reports whether a Host header names us for sure.
func (srv *Server) isGatewayHost(host string) bool {
	name := hostname(host)
	return isLoopback(name) || slices.ContainsFunc(srv.access.Load().hosts, func(ours string) bool {
		return strings.EqualFold(ours, host) || strings.EqualFold(ours, name)
	})
}

// hostname returns the host without its port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func isLoopback(name string) bool {
	a, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && a.Unmap().IsLoopback()
}

func isIPAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}
