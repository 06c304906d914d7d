package oidctest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

const (
	maxRequestBytes = 1 << 20
	// callbackPath is where the library continues an authorization request after the login.
	callbackPath = "/authorize/callback"
	// userHeader names the user in a request of Approve.
	userHeader = "Oidctest-User"
)

// endpointOf returns the endpoint at a path.
func (p *Provider) endpointOf(path string) (Endpoint, bool) {
	issuerPath := p.options.Path
	switch path {
	case wellKnownOAuth + issuerPath:
		return OAuthMetadata, true
	case wellKnownOpenID + issuerPath, issuerPath + wellKnownOpenID:
		return OpenIDMetadata, true
	}
	if path, ok := strings.CutPrefix(path, issuerPath); ok {
		for e, at := range endpointPaths {
			if path == at {
				return e, true
			}
		}
	}
	return "", false
}

// serve handles a request: it records it, applies a fault, and passes it to the library, which
// serves the endpoints below the issuer as if the issuer had no path.
func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	e, ok := p.endpointOf(r.URL.Path)
	if !ok || e == RegistrationEndpoint && p.options.NoRegistration {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		return // the client has disconnected, or the body is too long
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	req := Request{Method: r.Method}
	if e == RegistrationEndpoint {
		req.Body = body
	} else if r.ParseForm() == nil {
		req.Form = url.Values{}
		maps.Copy(req.Form, r.Form)
		req.ClientID, req.Auth = clientOf(r)
	}
	p.record.addSecret(req.Form["code_verifier"]...)
	fault, cleared := p.record.add(e, req)
	if fault.apply(w, r, cleared) {
		return
	}
	switch e {
	case OAuthMetadata, OpenIDMetadata:
		p.serveMetadata(w, r)
	case AuthorizationEndpoint:
		p.serveAuthorization(w, r)
	case TokenEndpoint:
		p.serveToken(w, r)
	case RevocationEndpoint:
		if p.checkClient(w, r) {
			p.callLibrary(w, r, endpointPaths[e])
		}
	case RegistrationEndpoint:
		p.serveRegistration(w, body)
	default:
		p.callLibrary(w, r, endpointPaths[e])
	}
}

// callLibrary passes a request to the library, at another path.
func (p *Provider) callLibrary(w http.ResponseWriter, r *http.Request, path string) {
	inner := r.Clone(withRequestInfo(r.Context(), requestInfo{
		user: r.Header.Get(userHeader), resources: r.Form["resource"],
	}))
	inner.URL.Path, inner.URL.RawPath = path, ""
	p.library.ServeHTTP(w, inner)
}

// serveMetadata sends the metadata of the library, with what the other handlers add.
func (p *Provider) serveMetadata(w http.ResponseWriter, r *http.Request) {
	var document map[string]any
	if !p.libraryJSON(w, r, wellKnownOpenID, &document) {
		return
	}
	document["authorization_response_iss_parameter_supported"] = true
	document["client_id_metadata_document_supported"] = p.options.DocumentClient != nil
	if !p.options.NoRegistration {
		document["registration_endpoint"] = p.URL(RegistrationEndpoint)
	}
	if p.options.EditMetadata != nil {
		p.options.EditMetadata(document)
	}
	writeJSON(w, http.StatusOK, document)
}

// libraryJSON decodes the response of the library to a request. If it is an error, it sends it to w
// and returns false.
func (p *Provider) libraryJSON(w http.ResponseWriter, r *http.Request, path string,
	document *map[string]any) bool {
	res := httptest.NewRecorder()
	p.callLibrary(res, r, path)
	if res.Code == http.StatusOK && json.Unmarshal(res.Body.Bytes(), document) == nil {
		return true
	}
	copyResponse(w, res)
	return false
}

// serveAuthorization approves an authorization request at once: it lets the library process the
// request, and then the request that follows a login.
func (p *Provider) serveAuthorization(w http.ResponseWriter, r *http.Request) {
	if err := p.loadDocument(r.Context(), r.Form.Get("client_id")); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Form.Get("scope") == "" {
		r.Form.Set("scope", strings.Join(append([]string{scopeOpenID}, p.options.Scopes...), " "))
	}
	res := httptest.NewRecorder()
	p.callLibrary(res, r, endpointPaths[AuthorizationEndpoint])
	if next, ok := strings.CutPrefix(res.Header().Get("Location"), callbackPath+"?"); ok {
		r = r.Clone(r.Context())
		r.Method, r.URL.RawQuery, r.Form, r.PostForm = http.MethodGet, next, nil, nil
		res = httptest.NewRecorder()
		p.callLibrary(res, r, callbackPath)
	}
	if to, err := url.Parse(res.Header().Get("Location")); err == nil && to.Host != "" {
		params := to.Query()
		params.Set("iss", p.issuer)
		if p.options.EditRedirect != nil {
			p.options.EditRedirect(params)
		}
		to.RawQuery = params.Encode()
		res.Header().Set("Location", to.String())
	}
	copyResponse(w, res)
}

// serveToken handles a token request, and records the tokens.
func (p *Provider) serveToken(w http.ResponseWriter, r *http.Request) {
	var tokens map[string]any
	if !p.checkClient(w, r) || !p.libraryJSON(w, r, endpointPaths[TokenEndpoint], &tokens) {
		return
	}
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		token, _ := tokens[name].(string)
		p.record.addSecret(token)
	}
	if p.options.EditTokens != nil {
		p.options.EditTokens(tokens)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, tokens)
}

// clientOf returns the client of a request and its way of authentication.
func clientOf(r *http.Request) (id, auth string) {
	if user, _, ok := r.BasicAuth(); ok {
		id, err := url.QueryUnescape(user)
		if err != nil {
			id = user
		}
		return id, AuthBasic
	}
	if r.PostForm.Get("client_secret") != "" {
		return r.PostForm.Get("client_id"), AuthPost
	}
	return r.Form.Get("client_id"), AuthNone
}

// checkClient refuses a request of an unknown client, or of one that does not authenticate in its
// registered way. The library checks the secret, but accepts it in each way.
func (p *Provider) checkClient(w http.ResponseWriter, r *http.Request) bool {
	id, auth := clientOf(r)
	c, ok := p.store.client(id)
	if ok && c.Auth == auth {
		return true
	}
	description := "unknown client"
	if ok {
		description = "the client must use " + c.Auth
	}
	if auth == AuthBasic {
		w.Header().Set("WWW-Authenticate", `Basic realm="token"`)
	}
	writeError(w, http.StatusUnauthorized, "invalid_client", description)
	return false
}

func writeError(w http.ResponseWriter, status int, code, description string) {
	writeJSON(w, status, map[string]any{"error": code, "error_description": description})
}

func writeJSON(w http.ResponseWriter, status int, document map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // a disconnected client is not an error
}

func copyResponse(w http.ResponseWriter, res *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), res.Header())
	w.WriteHeader(res.Code)
	_, _ = w.Write(res.Body.Bytes())
}
