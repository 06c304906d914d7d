package loginpage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
	"mcpgateway/internal/oauthclient"
)

const base = "http://127.0.0.1:7420"

// A browser keeps cookies, and sends requests to StartPages.
type browser struct {
	t       *testing.T
	pages   *StartPages
	cookies []*http.Cookie
}

func (b *browser) send(method, address string, header ...string) *http.Response {
	b.t.Helper()
	r := httptest.NewRequest(method, address, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	b.pages.ServeHTTP(w, r)
	resp := w.Result()
	for _, c := range resp.Cookies() {
		b.cookies = append(slices.DeleteFunc(b.cookies,
			func(old *http.Cookie) bool { return old.Name == c.Name }), c)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store",
		"Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff"} {
		if got := resp.Header.Get(name); got != want {
			b.t.Errorf("%s %s: %s is %q", method, address, name, got)
		}
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") {
		b.t.Errorf("%s %s: CSP %q", method, address, csp)
	}
	return resp
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// want checks the status of a response and a part of the page.
func want(t *testing.T, resp *http.Response, status int, part string) {
	t.Helper()
	if body := text(t, resp); resp.StatusCode != status || !strings.Contains(body, part) {
		t.Errorf("status %d, want %d with %q: %s", resp.StatusCode, status, part, body)
	}
}

// target returns the URL to which a page leads.
func target(t *testing.T, resp *http.Response) string {
	t.Helper()
	_, to, ok := strings.Cut(resp.Header.Get("Refresh"), "url=")
	if !ok {
		t.Fatalf("status %d leads nowhere: %s", resp.StatusCode, text(t, resp))
	}
	return to
}

func newPages() *StartPages {
	return NewStartPages(func(int) (string, error) { return base, nil },
		func(s string) string { return strings.ReplaceAll(s, "secret", "***") })
}

// login returns an Authorization for a server behind a real provider.
func login(t *testing.T) (*oidctest.Provider, *oauthclient.Authorization) {
	t.Helper()
	p := oidctest.New(t, oidctest.Options{})
	server := oidctest.NewServer(t, p, oidctest.ServerOptions{})
	a, err := oauthclient.New(oauthclient.Options{Name: "notes", URL: server.URL(),
		Store: oauthclient.NewStore("", nil), AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	return p, a
}

func open(t *testing.T, p *StartPages, to LoginRequest) (string, <-chan struct{}) {
	t.Helper()
	address, done, err := p.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	return address, done
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestLoginInTheBrowser(t *testing.T) {
	provider, a := login(t)
	p := newPages()
	address, done := open(t, p, LoginRequest{Backend: "no<tes", Client: "c", Login: a, For: "a&nn"})
	b := &browser{t: t, pages: p}
	resp := b.send("GET", address)
	want(t, resp, 200, "no&lt;tes")
	if len(provider.Counts()) != 0 {
		t.Errorf("the start page has sent requests: %v", provider.Counts())
	}
	want(t, b.send("GET", address), 200, "for a&amp;nn only")
	redirect, err := provider.Approve(target(t, b.send("POST", address)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	if isClosed(done) || !strings.HasPrefix(redirect, base+RedirectPath+"?") {
		t.Errorf("redirect to %s", redirect)
	}
	want(t, b.send("GET", redirect, "Sec-Fetch-Site", "cross-site"), 200, "You are logged in")
	if token, err := a.Token(context.Background()); !isClosed(done) || token == "" || err != nil {
		t.Errorf("done %v, token %q, %v", isClosed(done), token, err)
	}
	want(t, b.send("GET", redirect), 410, "no longer valid") // twice
	want(t, b.send("GET", address), 410, "no longer valid")
	want(t, b.send("POST", address), 410, "no longer valid")
}

func TestRedirectMustComeFromTheBrowserThatBeganTheLogin(t *testing.T) {
	provider, a := login(t)
	p := newPages()
	address, done := open(t, p, LoginRequest{Backend: "notes", Client: "c", Login: a})
	b, thief := &browser{t: t, pages: p}, &browser{t: t, pages: p}
	redirect, err := provider.Approve(target(t, b.send("POST", address)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	want(t, thief.send("GET", redirect), 403, "another browser")
	want(t, thief.send("POST", address), 403, "another browser")
	u, _ := url.Parse(redirect)
	q := u.Query()
	q.Set("state", "wrong")
	want(t, b.send("GET", base+RedirectPath+"?"+q.Encode()), 410, "no longer valid")
	want(t, b.send("GET", base+RedirectPath), 410, "no longer valid")
	if isClosed(done) {
		t.Fatal("the login is completed")
	}
	// the same browser may begin again, which makes the first login invalid
	again, err := provider.Approve(target(t, b.send("POST", address)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	want(t, b.send("GET", redirect), 410, "no longer valid")
	want(t, b.send("GET", again), 200, "You are logged in")
	if !isClosed(done) {
		t.Error("the login is not completed")
	}
}

func TestLoginsInOneBrowserDoNotDisturbEachOther(t *testing.T) {
	provider, a := login(t)
	provider2, a2 := login(t)
	p := newPages()
	one, done1 := open(t, p, LoginRequest{Backend: "one", Client: "c", Login: a})
	two, done2 := open(t, p, LoginRequest{Backend: "two", Client: "c", Login: a2})
	b := &browser{t: t, pages: p}
	at1, at2 := target(t, b.send("POST", one)), target(t, b.send("POST", two))
	redirect2, err2 := provider2.Approve(at2, "ann")
	redirect1, err1 := provider.Approve(at1, "ann")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want(t, b.send("GET", redirect1), 200, "use one")
	want(t, b.send("GET", redirect2), 200, "use two")
	if !isClosed(done1) || !isClosed(done2) {
		t.Error("a login is not completed")
	}
}

func TestRefusedLoginCanBeRepeated(t *testing.T) {
	provider, a := login(t)
	provider.SetDenied(true)
	p := newPages()
	address, done := open(t, p, LoginRequest{Backend: "notes", Client: "c", Login: a})
	b := &browser{t: t, pages: p}
	redirect, err := provider.Approve(target(t, b.send("POST", address)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	want(t, b.send("GET", redirect), 400, "access_denied")
	provider.SetDenied(false)
	redirect, err = provider.Approve(target(t, b.send("POST", address)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	if want(t, b.send("GET", redirect), 200, "You are logged in"); !isClosed(done) {
		t.Error("the login is not completed")
	}
}

// An authorization server may repeat a secret in its error.
func TestErrorPageOfALoginHidesSecrets(t *testing.T) {
	provider, a := login(t)
	p := newPages()
	address, _ := open(t, p, LoginRequest{Backend: "notes", Client: "c", Login: a})
	b := &browser{t: t, pages: p}
	redirect, err := provider.Approve(target(t, b.send("POST", address)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	provider.SetFault(oidctest.TokenEndpoint, oidctest.Fault{Status: http.StatusBadRequest,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   `{"error":"invalid_request","error_description":"do not repeat the secret"}`})
	want(t, b.send("GET", redirect), 400, "do not repeat the ***")
}

func TestOneClientGetsOnePage(t *testing.T) {
	a, other := &failing{}, &failing{}
	p := newPages()
	first, _ := open(t, p, LoginRequest{Client: "c", Login: a})
	for what, to := range map[string]LoginRequest{
		"client": {Client: "d", Login: a}, "login": {Client: "c", Login: other},
	} {
		if address, _ := open(t, p, to); address == first {
			t.Errorf("another %s has the same page", what)
		}
	}
	if address, _ := open(t, p, LoginRequest{Client: "c", Login: a}); address != first {
		t.Error("the same client has another page")
	}
}

// A login that was completed elsewhere ends the pages of all clients for it, and no others.
func TestComplete(t *testing.T) {
	a, other := &failing{}, &failing{}
	p := newPages()
	_, first := open(t, p, LoginRequest{Client: "c", Login: a})
	_, second := open(t, p, LoginRequest{Client: "d", Login: a})
	_, third := open(t, p, LoginRequest{Client: "c", Login: other})
	p.Complete(a)
	if !isClosed(first) || !isClosed(second) || isClosed(third) {
		t.Error("not exactly the pages of the login are completed")
	}
	p.Complete(a)
	if _, again := open(t, p, LoginRequest{Client: "c", Login: a}); isClosed(again) {
		t.Error("a new page is completed")
	}
}

// A failing Beginner cannot begin a login.
type failing struct{ text string }

func (f *failing) BeginLogin(context.Context, string) (*oauthclient.Login, error) {
	return nil, errors.New("there is no secret " + f.text)
}

func TestLoginThatCannotBegin(t *testing.T) {
	p := newPages()
	address, _ := open(t, p, LoginRequest{Client: "c", Login: &failing{"<b>"}})
	b := &browser{t: t, pages: p}
	want(t, b.send("POST", address), 502, "there is no *** &lt;b&gt;")
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		want(t, b.send("POST", address, header...), 403, "Another site")
	}
	want(t, b.send("POST", address, "Origin", base, "Sec-Fetch-Site", "same-origin"), 502, "***")
	want(t, b.send("GET", base+StartPath+"unknown"), 410, "no longer valid")
	want(t, b.send("GET", base+StartPath), 404, "only used by a login")
	want(t, b.send("PUT", address), 405, "browser")
	want(t, b.send("POST", base+RedirectPath), 404, "only used by a login")
}

func TestPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		b := &browser{t: t, pages: p}
		var first, last string
		for i := range 2 * maxPages {
			last, _ = open(t, p, LoginRequest{Client: fmt.Sprint(i), Login: &failing{}})
			if i == 0 {
				first = last
			}
		}
		if len(p.open) != maxPages || len(p.byID) != maxPages {
			t.Errorf("%d pages are open", len(p.open))
		}
		want(t, b.send("GET", first), 410, "no longer valid")
		want(t, b.send("GET", last), 200, "Log in")
		time.Sleep(pageTTL + time.Second)
		want(t, b.send("GET", last), 410, "no longer valid")
		if len(p.open)+len(p.byID)+len(p.state) != 0 {
			t.Errorf("%d pages are open", len(p.open))
		}
	})
}

// A call must not wait longer than its user can log in.
func TestPageThatExpiresEndsItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newPages(), &failing{}
		began := time.Now()
		first, done := open(t, p, LoginRequest{Client: "c", Login: a})
		time.Sleep(pageTTL - time.Second)
		if again, _ := open(t, p, LoginRequest{Client: "c", Login: a}); again != first ||
			isClosed(done) {
			t.Error("the page ends too early")
		}
		<-done
		if took := time.Since(began); took != pageTTL {
			t.Errorf("the wait ended after %v", took)
		}
		next, done := open(t, p, LoginRequest{Client: "c", Login: a})
		if next == first {
			t.Error("the page is open again")
		}
		p.Complete(a)
		if !isClosed(done) {
			t.Error("not completed")
		}
		time.Sleep(2 * pageTTL) // the timer of a completed page has no effect
	})
}

// A page that is closed because there are too many is no end of the wait, because somebody may log
// in at another page. Nothing of it is kept, also no timer, however many there are.
func TestPageBeyondTheLimitIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		_, done := open(t, p, LoginRequest{Client: "first", Login: &failing{}})
		first := p.open[0]
		for i := range maxPages {
			open(t, p, LoginRequest{Client: fmt.Sprint(i), Login: &failing{}})
		}
		if first.expiry.Stop() {
			t.Error("the timer of the page was kept")
		}
		time.Sleep(2 * pageTTL)
		if isClosed(done) {
			t.Error("the wait has ended")
		}
	})
}

func TestNoAddressForPages(t *testing.T) {
	errNone := errors.New("no address")
	p := NewStartPages(func(int) (string, error) { return "", errNone }, nil)
	if _, _, err := p.Open(LoginRequest{}); err != errNone {
		t.Error(err)
	}
}

// A proxy may serve the pages under a path that it removes: the cookie has this path, because the
// browser sends it only with requests for its path.
func TestCookieHasThePathOfThePublicURL(t *testing.T) {
	for base, want := range map[string]string{"http://127.0.0.1:1": StartPath,
		"https://gw.example/team/mcp": "/team/mcp" + StartPath} {
		if got := cookiePath(base); got != want {
			t.Errorf("%s: %s, want %s", base, got, want)
		}
	}
}
