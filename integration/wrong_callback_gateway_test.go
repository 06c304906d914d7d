//go:build unix

package integration

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
)

// A testBrowser is a browser with its own cookies.
type testBrowser struct {
	t      testing.TB
	client http.Client
}

func newTestBrowser(t testing.TB) *testBrowser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &testBrowser{t, http.Client{Jar: jar,
		Transport: &http.Transport{DisableKeepAlives: true}}}
}

// send returns the response, which has been read, and its page.
func (b *testBrowser) send(method, address string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(page)
}

// A callback with a wrong state, from the browser of another client, or for the second time, gets
// an error page. It changes nothing for the login, and nothing for another backend.
func TestWrongCallbacks_RunningGateway(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	s.logIn("notes")
	_, gateway := s.serveHTTP()
	mine, theirs := dialHTTP(t, gateway, "2025-11-25"), dialHTTP(t, gateway, "2025-11-25")
	awaitCalls(t, mine, "read", `{}`)
	p.provider.RevokeGrants()
	load := startHealthyLoad(t, dialHTTP(t, gateway, "2025-11-25"))
	link := func(c caller) string {
		t.Helper()
		m := callTool(c, "read", `{"id":"refused"}`)
		_, link, ok := strings.Cut(refusal(m), "open ")
		link, _, _ = strings.Cut(link, " ")
		if !ok {
			t.Fatalf("no link: %s", m.Raw)
		}
		return link
	}
	begin := func(b *testBrowser, page string) (redirect string) {
		t.Helper()
		resp, text := b.send("POST", page)
		_, to, ok := strings.Cut(resp.Header.Get("Refresh"), "url=")
		if !ok {
			t.Fatalf("the page leads nowhere: %s", text)
		}
		redirect, err := p.provider.Approve(to, "ann")
		if err != nil {
			t.Fatal(err)
		}
		return redirect
	}
	wants := func(b *testBrowser, address string, status int, text string) {
		t.Helper()
		resp, page := b.send("GET", address)
		if resp.StatusCode != status || !strings.Contains(page, text) {
			t.Errorf("status %d, want %d with %q: %s", resp.StatusCode, status, text, page)
		}
	}
	if link(mine) == link(theirs) {
		t.Error("two clients got the same page")
	}
	b, other := newTestBrowser(t), newTestBrowser(t)
	redirect, foreign := begin(b, link(mine)), begin(other, link(theirs))
	u, err := url.Parse(redirect)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("state", "wrong")
	u.RawQuery = q.Encode()
	wants(b, u.String(), http.StatusGone, "This link is no longer valid")
	u.RawQuery = ""
	wants(b, u.String(), http.StatusGone, "This link is no longer valid")
	wants(other, redirect, http.StatusForbidden, "another browser has begun this login")
	wants(b, foreign, http.StatusForbidden, "another browser has begun this login")
	if m := callTool(mine, "read", `{"id":"refused"}`); refusal(m) == "" {
		t.Errorf("a wrong callback has completed the login: %s", m.Raw)
	}
	wants(b, redirect, http.StatusOK, "You are logged in")
	wants(b, redirect, http.StatusGone, "This link is no longer valid")
	load.check()
	for _, c := range []caller{mine, theirs} {
		if m := callTool(c, "read", `{"id":"1"}`); m.Result == nil || refusal(m) != "" {
			t.Errorf("after the login: %s", m.Raw)
		}
	}
	if n := p.Executions("refused"); n != 0 {
		t.Errorf("%d calls without a login ran", n)
	}
}
