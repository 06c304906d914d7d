package door

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
)

// A principal is whoever has one of the tokens; everyone is the same one, 0, where
// there is none, or was one alone from the start. Sessions are bound to theirs.
type principal int

// String returns its number, "" where all are one.
func (p principal) String() string {
	if p == 0 {
		return ""
	}
	return strconv.Itoa(int(p))
}

// admit looks at who comes and from where, before anything is read. If it
// answers false the request is answered.
func (d *Door) admit(w http.ResponseWriter, r *http.Request) (who principal, ok bool) {
	if d.o.Loopback && !d.isOurName(r.Host) {
		const text = "Forbidden: the Host header names another machine; what a proxy calls us stands in hosts"
		d.refused(r, text)
		refuse(http.StatusForbidden, text).send(w)
		return 0, false
	}
	if !d.admitOrigin(w, r) {
		return 0, false
	}
	if r.Method == http.MethodOptions { // a preflight carries no token
		w.WriteHeader(http.StatusNoContent)
		return 0, false
	}
	if d.o.Via != "" && strings.Contains(strings.Join(r.Header["Via"], ","), d.o.Via) {
		refuse(http.StatusLoopDetected, "Loop detected: this backend is the gateway itself; take it out of the configuration").send(w)
		return 0, false
	}
	who, ok = d.authenticate(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		text := "Unauthorized: send the header Authorization: Bearer TOKEN"
		if r.Header.Get("Authorization") != "" {
			text = wrongToken
		}
		d.refused(r, text)
		refuse(http.StatusUnauthorized, "%s", text).send(w)
	}
	return who, ok
}

const wrongToken = "Unauthorized: what stands in the header Authorization is none of the tokens in auth.tokens, as Bearer TOKEN"

// refuseToken refuses somebody whose token was taken back after it was looked at.
func refuseToken() *refusal { return refuse(http.StatusUnauthorized, "%s", wrongToken) }

// quiet is how long after one refusal of a client others are not logged at Warn.
const quiet = 10 * time.Second

// refused logs that a client was refused, so that an operator sees a token that is
// wrong, or somebody who guesses.
func (d *Door) refused(r *http.Request, why string) {
	now := time.Now()
	d.mu.Lock()
	say := d.log.Debug
	if now.Sub(d.warned) > quiet {
		d.warned, say = now, d.log.Warn
	}
	d.mu.Unlock()
	say("refused a client", "client", r.RemoteAddr, "err", why)
}

// authenticate compares with every token, so that the time tells nothing.
func (d *Door) authenticate(r *http.Request) (principal, bool) {
	tokens := d.rules.Load().tokens
	if len(tokens) == 0 {
		return 0, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	sum := sha256.Sum256([]byte(token))
	who, ok := 0, 0
	for i := range tokens {
		same := subtle.ConstantTimeCompare(sum[:], tokens[i].sum[:])
		who = subtle.ConstantTimeSelect(same, int(tokens[i].who), who)
		ok |= same
	}
	return principal(who), ok == 1 && token != "" && strings.EqualFold(scheme, "Bearer")
}

// admitOrigin refuses pages of other sites, and tells a browser what those that
// are accepted may do. What is no browser sends no Origin.
func (d *Door) admitOrigin(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	if r.Method == http.MethodOptions {
		h.Set("Allow", "GET, POST, DELETE, OPTIONS")
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return true
	}
	h.Add("Vary", "Origin")
	if len(origins) > 1 || !d.accepts(origins[0], r.Host) {
		const text = "Forbidden: pages of this Origin may not come, unless it stands in origins"
		d.refused(r, text)
		refuse(http.StatusForbidden, text).send(w)
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

// maxParams bounds the headers Mcp-Param-* that a page may ask for.
const maxParams = 64

// paramHeaders returns those of the headers which a preflight asks for that repeat a
// tool's argument, for a list: their names are the tools', so that they cannot be listed
// in advance, and "*" stands for all of them only in requests without credentials.
func paramHeaders(r *http.Request) string {
	var list strings.Builder
	n := 0
	for _, line := range r.Header["Access-Control-Request-Headers"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if strings.HasPrefix(name, "Mcp-Param-") && n < maxParams {
				list.WriteString(", " + name)
				n++
			}
		}
	}
	return list.String()
}

// accepts reports whether a page of that origin may come to us, whom it calls
// host. That the origin is our own proves something only if the name is known to
// be ours: of a name that was rebound to our address both are equal, too.
func (d *Door) accepts(origin, host string) bool {
	if slices.ContainsFunc(d.rules.Load().origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != strings.ToLower(origin) && u.Scheme+"://"+u.Host != origin {
		return false
	}
	if d.o.Loopback && isLoopback(hostname(u.Host)) {
		return true
	}
	return strings.EqualFold(u.Host, host) && (d.isOurName(host) || isAddress(hostname(host)))
}

// isOurName reports whether a Host header names us for sure.
func (d *Door) isOurName(host string) bool {
	name := hostname(host)
	return isLoopback(name) || slices.ContainsFunc(d.rules.Load().hosts, func(ours string) bool {
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

func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}
