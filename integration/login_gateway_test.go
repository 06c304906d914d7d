//go:build unix

package integration

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
)

func TestLogin_OpensTheBrowserAndEndsWithWhatTheServerOffers(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	s.logIn("notes").expect(t, 0, "Log in to notes at "+p.provider.Issuer(), "notes: logged in",
		"notes offers 2 tools, 0 prompts, 0 resources (protected/1)")
	s.logIn("notes").expect(t, 0, "already logged in", "gateway logout notes", "2 tools")
	for path, info := range s.loginFiles() {
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", path, info.Mode())
		}
	}
	if n := len(s.loginFiles()); n != 1 {
		t.Errorf("%d stored logins", n)
	}
	if n := p.provider.Counts()[oidctest.AuthorizationEndpoint]; n != 1 {
		t.Errorf("%d authorization requests", n)
	}
	s.run("check").expect(t, 0, "notes")
	s.run("call", "read", `{"id":"1"}`).expect(t, 0, `user`)
	if n := p.Executions("1"); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
}

func TestLogin_ShowsThatItWaits(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	l := s.startPasted("notes")
	l.awaitOutput("waiting for the address to be pasted (")
	if n := p.provider.Counts()[oidctest.AuthorizationEndpoint]; n != 0 {
		t.Errorf("a browser was opened in spite of --no-browser: %d requests", n)
	}
	redirect, err := p.provider.Approve(l.url, "ann")
	if err != nil {
		t.Fatal(err)
	}
	l.paste(redirect)
	l.end().expect(t, 0, "notes: logged in", "2 tools")
}

// Without a program that opens the page, login says what to do if the browser is elsewhere.
func TestLogin_NoBrowserOpens(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	cmd := s.command("login", "notes")
	cmd.Env = append(cmd.Env, "BROWSER=/nonexistent/browser")
	l := &pastedLogin{t: t, raw: startRaw(t, cmd)}
	l.awaitOutput("no browser was opened: no program for it was found; if your browser is on " +
		"another machine, stop with Ctrl-C and run gateway login notes -c " + s.config +
		" --no-browser")
	l.awaitOutput("waiting for the login in the browser (")
	redirect, err := p.provider.Approve(loginURL.FindString(l.raw.logs()), "ann")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.Get(redirect); err != nil {
		t.Error(err)
	} else {
		res.Body.Close()
	}
	l.end().expect(t, 0, "notes: logged in")
}

// Whatever is pasted before the redirect changes nothing: a wrong text, the login page, a redirect
// without the code, and the redirect of another login.
func TestLogin_WithoutBrowserReadsThePastedRedirect(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	l, other := s.startPasted("notes"), s.startPasted("notes")
	approve := func(l *pastedLogin) string {
		redirect, err := p.provider.Approve(l.url, "ann")
		if err != nil {
			t.Fatal(err)
		}
		return redirect
	}
	l.paste("hello")
	l.awaitOutput("not the address of the redirect")
	l.paste("http://127.0.0.1:1/callback")
	l.paste(l.url)
	l.awaitOutput("it has no code")
	theirs := approve(other)
	l.paste(theirs)
	l.awaitOutput("does not belong to this login")
	mine := approve(l)
	l.paste("")
	l.paste("  " + mine + " ")
	l.paste(mine)
	l.end().expect(t, 0, "notes: logged in", "2 tools")
	if n := strings.Count(l.raw.logs(), "paste the address again"); n != 4 {
		t.Errorf("asked %d times to paste again:\n%s", n, l.raw.logs())
	}
	other.paste(theirs)
	other.end().expect(t, 0, "notes: logged in")
}

// The redirect of another login, one without a code, and a second one, get an error page.
func TestLogin_RedirectWithWrongStateOrTwice(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	l := s.startPasted("notes")
	redirect, err := p.provider.Approve(l.url, "ann")
	if err != nil {
		t.Fatal(err)
	}
	edit := func(name, value string) string {
		u, err := url.Parse(redirect)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	get := func(at string) (status int, page string) {
		res, err := http.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	for _, wrong := range []string{edit("state", "x"), edit("state", ""), edit("code", "")} {
		if status, page := get(wrong); status != http.StatusBadRequest ||
			!strings.Contains(page, "The login has failed") {
			t.Errorf("%s: %d\n%s", wrong, status, page)
		}
	}
	if status, page := get(redirect); status != http.StatusOK ||
		!strings.Contains(page, "You are logged in") {
		t.Errorf("%d\n%s", status, page)
	}
	// a second request may find the command ended
	if res, err := http.Get(redirect); err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("the second time: %s", res.Status)
		}
	}
	l.end().expect(t, 0, "notes: logged in")
	codes := 0
	for _, r := range p.provider.Requests(oidctest.TokenEndpoint) {
		if r.Form.Get("grant_type") == "authorization_code" {
			codes++
		}
	}
	if codes != 1 {
		t.Errorf("%d codes were sent", codes)
	}
}

// The issuer in the redirect must be that of the metadata (RFC 9207).
func TestLogin_RedirectOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{
		EditRedirect: func(params url.Values) { params.Set("iss", "https://evil.example") },
	}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	s.run("login", "notes").expect(t, 1, `from the issuer "https://evil.example"`)
	if n := p.provider.Counts()[oidctest.TokenEndpoint]; n != 0 {
		t.Errorf("%d token requests", n)
	}
}

func TestLogin_Denied(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	p.provider.SetDenied(true)
	s := newSetup(t, nil, p.backend("notes"))
	s.run("login", "notes").expect(t, 1, "backend notes: the authorization server", "has refused the login",
		"access_denied", "hint: run gateway login notes -c "+s.config+" to try again")
	if n := len(s.loginFiles()); n != 0 {
		t.Errorf("%d stored logins", n)
	}
}

func TestLogin_OfBackendsThatNeedNone(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, demo, backend{Name: "token", URL: "http://127.0.0.1:9/mcp",
		Headers: map[string]string{"Authorization": "Bearer " + secret(t, "header")}})
	s.run("login", "demo").expect(t, 1, "backend demo needs no login", "only a backend with a url")
	s.run("login", "token").expect(t, 1, "backend token needs no login", "header Authorization")
	s.run("login", "dema").expect(t, 2, `there is no backend "dema"`, "did you mean demo?")
	s.run("login").expect(t, 2, "name the backend: gateway login NAME")
}

// Without a state directory a login would be lost with the command.
func TestLogin_WithoutStateDirectory(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, map[string]any{"state": "none"}, p.backend("notes"))
	s.run("login", "notes").expect(t, 1, "cannot be stored without a state directory",
		"remove state: none")
	s.run("check").expect(t, 1, "needs login")
}

func TestLogout_RevokesAndDeletes(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	s.run("logout", "notes").expect(t, 1, "nobody is logged in")
	s.logIn("notes")
	s.run("logout", "notes").expect(t, 0, "notes: login revoked and deleted")
	if n := p.provider.Counts()[oidctest.RevocationEndpoint]; n == 0 {
		t.Error("nothing was revoked")
	}
	if n := len(s.loginFiles()); n != 0 {
		t.Errorf("%d stored logins", n)
	}
	s.run("check").expect(t, 1, "needs login", "gateway login notes")
	// if the authorization server is down, the login is deleted nevertheless
	s.logIn("notes")
	p.provider.SetFault(oidctest.RevocationEndpoint, oidctest.Fault{Status: 503})
	s.run("logout", "notes").expect(t, 1, "is deleted here, but was not revoked", "503")
	if n := len(s.loginFiles()); n != 0 {
		t.Errorf("%d stored logins", n)
	}
}

// An authorization server without a revocation endpoint is not asked.
func TestLogout_WhereRevocationIsNotOffered(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{EditMetadata: func(document map[string]any) {
		delete(document, "revocation_endpoint")
	}}, oidctest.ServerOptions{})
	s := newSetup(t, nil, p.backend("notes"))
	s.logIn("notes")
	s.run("logout", "notes").expect(t, 0,
		"notes: login deleted; its authorization server cannot revoke it")
	if n := len(s.loginFiles()); n != 0 {
		t.Errorf("%d stored logins", n)
	}
}

func TestCheck_PrintsNeedsLogin(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	r := s.run("check")
	r.expect(t, 1, "1 of 2 backends failed", "it needs a login (nobody is logged in): "+
		"gateway login notes")
	if strings.Contains(r.err, "log-level debug") || !strings.Contains(r.err, "gateway login notes") {
		t.Errorf("the advice is not about the login: %s", r.err)
	}
	for _, line := range strings.Split(r.out, "\n") {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[0] == "demo" && fields[1] != "ok" ||
			fields[0] == "notes" && fields[1]+" "+fields[2] != "needs login") {
			t.Errorf("row: %s", line)
		}
	}
	if took := p.provider.Counts()[oidctest.TokenEndpoint]; took != 0 {
		t.Errorf("%d token requests", took)
	}
}
