// Package page serves the web page of the admin API: static files, which contain no data of the
// gateway, and logins. A login is a random id in a cookie; the page sends requests to the admin API
// with it.
//
// The page is plain JavaScript without a build step. Text from backends gets into the document as
// text only.
package page

import (
	"embed"
	"net/http"
	"path"
	"strconv"
)

//go:embed assets
var assets embed.FS

// policy is the Content-Security-Policy of all files: a text that becomes markup by mistake loads
// and runs nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// types are the media types by file name extension; those of the operating system may be wrong.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

// SetHeaders sets the headers that protect the page.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// assetOf returns the file that a request asks for: "/" is index.html.
func assetOf(r *http.Request) (name string, text []byte, ok bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "", nil, false
	}
	name = r.URL.Path
	if name == "/" {
		name = "/index.html"
	}
	text, err := assets.ReadFile("assets" + name)
	return name, text, err == nil
}

// HasAsset reports whether a request asks for a file of the page.
func HasAsset(r *http.Request) bool {
	_, _, ok := assetOf(r)
	return ok
}

// ServeAsset serves the file that a request asks for.
func ServeAsset(w http.ResponseWriter, r *http.Request) {
	SetHeaders(w.Header())
	name, text, ok := assetOf(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // fails if the client has disconnected
}
