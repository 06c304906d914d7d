// Package loginpage writes the HTML pages that a person sees in the browser during a login.
package loginpage

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// Write writes a page with a title and paragraphs of plain text, which may be untrusted. The page
// loads nothing, runs no script, cannot be framed, and is not stored.
func Write(w http.ResponseWriter, status int, title string, paragraphs ...string) {
	var body strings.Builder
	for _, p := range paragraphs {
		fmt.Fprintf(&body, "<p>%s</p>\n", html.EscapeString(p))
	}
	write(w, status, title, body.String())
}

const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem;` +
	`color:#1a1a1a;background:#fff}h1{font-size:1.4rem}` +
	`@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}}`

// write writes a page; body is HTML.
func write(w http.ResponseWriter, status int, title, body string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; "+
			"base-uri 'none'")
	h.Set("Cache-Control", "no-store")
	// with no-referrer, browsers send a form with Origin: null
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	title = html.EscapeString(title)
	_, _ = fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"+
		"<meta name=\"viewport\" content=\"width=device-width\"><title>%s</title>"+
		"<style>%s</style></head><body>\n<h1>%s</h1>\n%s</body></html>\n", title, style, title, body)
}
