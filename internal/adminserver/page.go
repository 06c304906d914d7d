package adminserver

import (
	"context"
	"net/http"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver/page"
)

// A PageSource knows how browsers reach the page.
type PageSource interface {
	// PageCode returns the address of the page, and a code with which a browser can log in once.
	// It returns an *adminapi.APIError if there is no page.
	PageCode() (adminapi.PageCode, error)
}

// servePage serves the page, logins and logouts. It returns false if the request is for the API.
// The files of the page contain no data and need no login. Other sites may link to the page; the
// header Host is checked as for the API.
func (a *API) servePage(w http.ResponseWriter, r *http.Request, access AccessRule) bool {
	var serve http.HandlerFunc
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/login":
		serve = access.Logins.ServeLogin
	case r.Method == http.MethodGet && r.URL.Path == "/login":
		serve = access.Logins.ServeState
	case r.Method == http.MethodPost && r.URL.Path == "/logout":
		serve = access.Logins.ServeLogout
	case page.HasAsset(r):
		serve = page.ServeAsset
	default:
		return false
	}
	if refused := access.checkHost(r); access.CheckBrowser && refused != nil {
		writeError(w, http.StatusForbidden, refused)
		return true
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	serve(w, r)
	return true
}

// withLogin reports whether a request has the cookie of a login. The requests that read something
// then end with the login. end must be called after the request.
func (a AccessRule) withLogin(r *http.Request) (_ *http.Request, end func(), ok bool) {
	if a.Logins == nil || r.Header.Get("Authorization") != "" {
		return r, func() {}, false
	}
	login, ok := a.Logins.Check(r)
	if !ok || r.Method != http.MethodGet {
		return r, func() {}, ok
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(login, cancel)
	return r.WithContext(ctx), func() { stop(); cancel() }, true
}

// servePageCode returns the handler of POST /api/v1/page/code.
func servePageCode(source PageSource) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		result, err := source.PageCode()
		writeResult(w, result, err)
	}
}
