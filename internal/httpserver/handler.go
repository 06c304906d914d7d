package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// An httpExchange is one HTTP request and its response.
type httpExchange struct {
	srv  *Server
	w    http.ResponseWriter
	r    *http.Request
	from sender // of an authenticated request
}

// ServeHTTP implements http.Handler.
func (srv *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !srv.active.begin() {
		return // the Server has ended, and the connection is closed
	}
	defer srv.active.end()
	// The deadline applies even if the handler does not read the body, because net/http then reads
	// the body before it sends the response. readBody resets the deadline after it has read the
	// whole body.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	x := &httpExchange{srv: srv, w: w, r: r}
	path := "/" + strings.Trim(r.URL.Path, "/") // some clients add a slash at the front or the end
	switch path {
	case "/healthz":
		x.writeHealth(nil)
		return
	case "/readyz":
		x.serveReadiness()
		return
	}
	if srv.opts.LoginPages != nil && strings.HasPrefix(path, "/login/") {
		x.serveLogin()
		return
	}
	if herr := srv.access.admit(w.Header(), r); herr != nil {
		x.reject(herr)
		return
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if herr := checkQuery(r); herr != nil {
		x.reject(herr)
		return
	}
	if isOAuthPath(path) {
		x.serveOAuth(path)
		return
	}
	endpoint, profile, _ := strings.Cut(path[1:], "/")
	if endpoint == "mcp" || endpoint == "sse" {
		path = "/" + endpoint
	} else {
		profile = ""
	}
	resource := "" // only the endpoint /mcp/PROFILE is a resource of its own
	if endpoint == "mcp" {
		resource = profile
	}
	var herr *httpError
	if x.from, herr = srv.access.authenticate(r, resource); herr != nil {
		x.reject(herr)
		return
	}
	if x.from.profile = profile; !srv.access.policy.Load().hasProfile(profile) {
		x.reject(unknownProfile())
		return
	}
	switch path {
	case "/mcp":
		x.serveMCP()
	case "/sse":
		x.serveHTTPSSE()
	case "/message", "/messages":
		x.postHTTPSSE()
	default:
		x.reject(newHTTPError(http.StatusNotFound, "Not found: the MCP endpoint is /mcp"))
	}
}

// serveLogin serves a page of a login. A browser comes here from the page of an authorization
// server, so that requests of other origins are allowed.
func (x *httpExchange) serveLogin() {
	if herr := x.srv.access.admitHost(x.r); herr != nil {
		x.reject(herr)
		return
	}
	x.srv.opts.LoginPages.ServeHTTP(x.w, x.r)
}

func (x *httpExchange) serveMCP() {
	if x.r.Method != http.MethodPost && headersAreModern(x.r, x.findSession() != nil) {
		x.reject(methodNotAllowed(http.MethodPost))
		return
	}
	switch x.r.Method {
	case http.MethodPost:
		x.servePost()
	case http.MethodGet:
		x.serveGet()
	case http.MethodDelete:
		x.serveDelete()
	default:
		x.reject(methodNotAllowed("GET, POST, DELETE, OPTIONS"))
	}
}

// findSession returns the session in the header Mcp-Session-Id; nil = unknown.
func (x *httpExchange) findSession() *httpSession {
	return x.srv.sessions.find(x.r.Header.Get(protocol.HeaderSessionID), x.from, false)
}

// reject logs herr and writes it as the response.
func (x *httpExchange) reject(herr *httpError) {
	x.srv.rejections.note(x.r, x.from.Principal, herr)
	herr.write(x.w)
}

// rejectPosted reports and rejects a request whose message was read. logID is the log id of the
// session; "" = no session.
func (x *httpExchange) rejectPosted(p *postedMessage, logID string, herr *httpError) {
	x.srv.rejections.report(p.m, SessionInfo{ID: logID, Principal: x.from.Principal}, herr.err)
	x.reject(herr.forRequest(p))
}

// serveOAuth serves a request of a client that looks for OAuth. The request needs no token. It gets
// the metadata of the gateway, if there is an authorization server and the path is one of the
// metadata. Otherwise it gets an error that describes how to connect, in the format of OAuth (RFC
// 6749 §5.2), because clients show the description.
func (x *httpExchange) serveOAuth(path string) {
	policy := x.srv.access.policy.Load()
	x.w.Header().Set("Cache-Control", "no-store")
	text, profile, isMetadata := noOAuthNoToken, "", false
	if policy.oauth != nil {
		profile, isMetadata = policy.oauth.ProfileOfMetadata(path)
	}
	switch {
	case isMetadata:
		if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
			x.reject(methodNotAllowed("GET, HEAD"))
			return
		}
		writeJSON(x.w, http.StatusOK, wire.Text{policy.oauth.Metadata(profile)})
		return
	case policy.oauth != nil:
		text = elsewhereMetadata
	case !policy.isOpen():
		text = noOAuthUseToken
	}
	x.srv.rejections.note(x.r, nil, newHTTPError(http.StatusNotFound, "%s", text))
	writeJSON(x.w, http.StatusNotFound, wire.Text{wire.Encode(struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{"invalid_request", text})})
}

// ServerHeader is the value of the header Server in responses of /healthz and /readyz. It shows a
// gateway that the server is another gateway.
const ServerHeader = "mcp-gateway"

// serveReadiness responds to /readyz, with status 200 if the gateway can serve a new client. The
// names of pending backends are reported only to authenticated clients.
func (x *httpExchange) serveReadiness() {
	withNames := x.r.URL.Query().Has("backends")
	var who sender
	if withNames {
		if x.srv.access.policy.Load().isOpen() {
			x.reject(newHTTPError(http.StatusForbidden,
				"Forbidden: the names of backends require a token: set auth.tokens or auth.oauth"))
			return
		}
		var herr *httpError
		if who, herr = x.srv.access.authenticate(x.r, ""); herr != nil {
			x.reject(herr)
			return
		}
	}
	var waiting []string
	if x.srv.opts.PendingBackends != nil {
		waiting = x.srv.opts.PendingBackends(who.Principal)
	}
	switch {
	case x.srv.sessions.isClosing():
		x.writeHealth(errors.New("the gateway is ending"))
	case len(waiting) == 0:
		x.writeHealth(nil)
	case withNames:
		x.writeHealth(fmt.Errorf("waiting for %s", strings.Join(waiting, ", ")))
	case len(waiting) == 1:
		x.writeHealth(errors.New("waiting for 1 backend"))
	default:
		x.writeHealth(fmt.Errorf("waiting for %d backends", len(waiting)))
	}
}

// writeHealth responds to a probe. Probes need no token, so the response reveals little.
func (x *httpExchange) writeHealth(missing error) {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		x.reject(methodNotAllowed("GET, HEAD"))
		return
	}
	x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.w.Header().Set("Cache-Control", "no-store")
	x.w.Header().Set("Server", ServerHeader)
	text := "ok\n"
	if missing != nil {
		x.w.WriteHeader(http.StatusServiceUnavailable)
		text = "not ready: " + missing.Error() + "\n"
	}
	_, _ = x.w.Write([]byte(text))
}

// activeRequests counts the HTTP requests being served; with HTTP/2 a request can outlive its
// connection.
type activeRequests struct {
	mu      sync.Mutex
	count   int
	ended   bool      // no further request is served
	changed sync.Cond // on mu: count is 0
}

// begin counts a request. It returns false after close.
func (a *activeRequests) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.count++
	}
	return !a.ended
}

func (a *activeRequests) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count--; a.count == 0 {
		a.changed.Broadcast()
	}
}

// close waits until no request is being served, and makes begin return false.
func (a *activeRequests) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.count > 0 {
		a.changed.Wait()
	}
	a.ended = true
}
