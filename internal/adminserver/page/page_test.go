package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/adminserver/page"
)

const host = "127.0.0.1:7421"

// send sends a request to a handler, as the page does, with cookies and a form.
func send(
	handler http.HandlerFunc, method, path, origin string, cookies []*http.Cookie, form ...string,
) *http.Response {
	values := make(url.Values)
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	handler(w, r)
	return w.Result()
}

const own = "http://" + host

func logIn(t *testing.T, l *page.Logins, token string) *http.Response {
	t.Helper()
	return send(l.ServeLogin, "POST", "/login", own, nil, "token", token)
}

// isLoggedIn reports whether a request with cookies has a login.
func isLoggedIn(l *page.Logins, method, origin string, cookies []*http.Cookie) bool {
	var ok bool
	send(func(_ http.ResponseWriter, r *http.Request) { _, ok = l.Check(r) }, method, "/", origin,
		cookies)
	return ok
}

func TestLoginWithToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := page.NewLogins("right")
		start := time.Now()
		if r := logIn(t, l, "wrong"); r.StatusCode != 401 || len(r.Cookies()) != 0 {
			t.Errorf("%v", r)
		}
		if time.Since(start) < time.Second {
			t.Error("a wrong token is refused at once")
		}
		r := logIn(t, l, " right\n")
		if r.StatusCode != 204 || len(r.Cookies()) != 1 {
			t.Fatalf("%v", r)
		}
		c := r.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" ||
			c.MaxAge != 0 || strings.Contains(c.Value, "right") || len(c.Value) < 20 {
			t.Errorf("%v", c)
		}
		if !isLoggedIn(l, "GET", "", r.Cookies()) || isLoggedIn(l, "GET", "", nil) {
			t.Error("the cookie is not what counts")
		}
		c.Value += "x"
		if isLoggedIn(l, "GET", "", []*http.Cookie{c}) {
			t.Error("another cookie is accepted")
		}
	})
}

// A request that could change something needs the origin of the page besides the cookie.
func TestOtherSitesChangeNothing(t *testing.T) {
	l := page.NewLogins("right")
	cookies := logIn(t, l, "right").Cookies()
	for origin, want := range map[string]bool{
		own: true, "": false, "null": false, "http://evil.example": false,
		"http://127.0.0.1:7422": false,
	} {
		if got := isLoggedIn(l, "POST", origin, cookies); got != want {
			t.Errorf("origin %q: %v", origin, got)
		}
		if r := send(l.ServeLogin, "POST", "/login", origin, nil, "token", "right"); (r.
			StatusCode == 204) != want {
			t.Errorf("login from origin %q: %v", origin, r.Status)
		}
	}
}

func TestLogout(t *testing.T) {
	l := page.NewLogins("right")
	cookies := logIn(t, l, "right").Cookies()
	var done <-chan struct{}
	send(func(_ http.ResponseWriter, r *http.Request) {
		ctx, _ := l.Check(r)
		done = ctx.Done()
	}, "GET", "/", "", cookies)
	if r := send(l.ServeLogout, "POST", "/logout", "http://evil.example", cookies); r.
		StatusCode != 401 || !isLoggedIn(l, "GET", "", cookies) {
		t.Error("another site ends the login")
	}
	if r := send(l.ServeLogout, "POST", "/logout", own, cookies); r.StatusCode != 204 {
		t.Errorf("%v", r)
	}
	<-done // its requests end
	if isLoggedIn(l, "GET", "", cookies) {
		t.Error("the cookie is still accepted")
	}
}

// After 10 wrong tokens in a minute, also the right one must wait. Codes work.
func TestFailedLoginsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := page.NewLogins("right")
		for range 10 {
			go logIn(t, l, "wrong")
		}
		synctest.Wait()
		if r := logIn(t, l, "right"); r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
			t.Errorf("%v", r)
		}
		r := send(l.ServeLogin, "POST", "/login", "null", nil, "code", l.NewCode())
		if !isLoggedIn(l, "GET", "", r.Cookies()) {
			t.Error("the code does not work")
		}
		time.Sleep(61 * time.Second)
		if r := logIn(t, l, "right"); r.StatusCode != 204 {
			t.Errorf("after a minute: %v", r)
		}
	})
}

// A code logs in once, within a minute, also from a file.
func TestLoginWithCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := page.NewLogins("right")
		use := func(code string) bool {
			r := send(l.ServeLogin, "POST", "/login", "null", nil, "code", code)
			if r.StatusCode != 303 || r.Header.Get("Location") != "/" {
				t.Errorf("%v", r)
			}
			return isLoggedIn(l, "GET", "", r.Cookies())
		}
		code, late := l.NewCode(), l.NewCode()
		if !use(code) || use(code) || use("x") {
			t.Error("a code does not work once")
		}
		time.Sleep(time.Minute)
		if use(late) {
			t.Error("a code works after a minute")
		}
		first := l.NewCode()
		for range 8 {
			time.Sleep(time.Millisecond)
			l.NewCode()
		}
		if use(first) {
			t.Error("there are more than 8 codes")
		}
	})
}

func TestLoginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := page.NewLogins("right")
		first := logIn(t, l, "right").Cookies()
		time.Sleep(time.Second)
		second := logIn(t, l, "right").Cookies()
		for range 31 {
			time.Sleep(time.Second)
			logIn(t, l, "right")
		}
		if isLoggedIn(l, "GET", "", first) || !isLoggedIn(l, "GET", "", second) {
			t.Error("not the login that was unused for the longest time has ended")
		}
		time.Sleep(25 * time.Hour)
		if isLoggedIn(l, "GET", "", second) {
			t.Error("a login does not end that was unused for a day")
		}
	})
}

// All files together are small, refer to nothing outside, and have the headers that protect them.
func TestAssets(t *testing.T) {
	files, err := filepath.Glob("assets/*")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	size := 0
	outside := regexp.MustCompile(`(src|href)="?(https?:)?//|url\(|@import|<style|style="| on\w+="`)
	markup := regexp.MustCompile(
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|` +
			`createContextualFragment|srcdoc`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		size += len(text)
		if !strings.Contains(file, "uplot") {
			if found := outside.Find(text); found != nil {
				t.Errorf("%s: %s", file, found)
			}
			if found := markup.Find(text); found != nil {
				t.Errorf("%s makes markup of text: %s", file, found)
			}
		}
		r := send(page.ServeAsset, "GET", "/"+filepath.Base(file), "", nil)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %v", file, r)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
				"connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; " +
				"base-uri 'none'; form-action 'self'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store",
		} {
			if got := r.Header.Get(header); got != want {
				t.Errorf("%s: %s: %s", file, header, got)
			}
		}
	}
	if size > 150_000 {
		t.Errorf("the page has %d bytes", size)
	}
	for _, path := range []string{"/x.js", "/../page.go", "/assets/app.js", "//"} {
		if r := send(page.ServeAsset, "GET", path, "", nil); r.StatusCode != 404 {
			t.Errorf("%s: %v", path, r.Status)
		}
	}
	if page.HasAsset(httptest.NewRequest("POST", "/app.js", nil)) {
		t.Error("POST gets a file")
	}
}
