package loginpage

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/oauthclient"
)

// Paths that StartPages serves.
const (
	StartPath    = "/login/"         // followed by the id of a page
	RedirectPath = "/login/callback" // the redirect URI
)

const (
	// maxPages bounds the pages that are open at one time. Beyond it, the oldest page is closed,
	// and nothing of it is kept.
	maxPages = 1000
	// pageTTL is the time for which a page is open.
	pageTTL = 10 * time.Minute
	// beginTimeout is the longest time of the requests to the authorization server that begin a
	// login.
	beginTimeout = 30 * time.Second
)

// A LoginRequest describes the server at which somebody has to log in, and who asks for the login.
type LoginRequest struct {
	Backend string
	// Login begins the login. Two LoginRequests with the same Login and Client share a page.
	Login Beginner
	// Client identifies the session of the client that was asked to open the page.
	Client string
	// RedirectPort is the port that the redirect URI has if it is on this machine; 0 = any.
	RedirectPort int
	// For is the name of the principal that the login is for; "" = every client of the gateway.
	For string
}

// A Beginner begins logins; see [oauthclient.Authorization].
type Beginner interface {
	BeginLogin(ctx context.Context, redirectURI string) (*oauthclient.Login, error)
}

// StartPages are the start pages of logins, for the users of clients of a running gateway. A client
// is asked to open a page, which has an unguessable id. The page says which server the login is
// for, and leads to the authorization server, whose redirect ends at RedirectPath. The redirect
// must come from the browser that has used the start page, which a cookie proves, and is accepted
// once.
//
// All methods may be called concurrently.
type StartPages struct {
	base func(port int) (string, error)
	mask func(string) string

	mu    sync.Mutex
	open  []*startPage // oldest first
	byID  map[string]*startPage
	state map[string]*startPage // pages with a login in progress, by parameter state
}

// A startPage is the start page of a LoginRequest.
type startPage struct {
	LoginRequest
	id     string
	expiry *time.Timer
	done   chan struct{} // see Open

	// Guarded by StartPages.mu: the login in progress, and the cookie of its browser; nil and "" =
	// none.
	login  *oauthclient.Login
	cookie string
}

// NewStartPages returns StartPages without pages. base returns the URL under which browsers reach
// the paths of StartPages, without a slash at its end; port is LoginRequest.RedirectPort. mask
// removes secrets from errors.
func NewStartPages(base func(port int) (string, error), mask func(string) string) *StartPages {
	return &StartPages{base: base, mask: mask, byID: make(map[string]*startPage),
		state: make(map[string]*startPage)}
}

// Open returns the URL of the start page for a target, and a channel that is closed when the login
// is completed, or when the page expires. If the same client was asked for the same login before,
// the page is the same until then. If maxPages other pages are opened, the channel may stay open,
// so the caller needs a timeout.
func (p *StartPages) Open(t LoginRequest) (address string, done <-chan struct{}, err error) {
	base, err := p.base(t.RedirectPort)
	if err != nil {
		return "", nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.open {
		if one.Login == t.Login && one.Client == t.Client {
			return base + StartPath + one.id, one.done, nil
		}
	}
	if len(p.open) >= maxPages {
		// The channel stays open, because the login may be completed at another page.
		p.open[0].expiry.Stop()
		p.closeLocked(p.open[0])
	}
	one := &startPage{LoginRequest: t, id: rand.Text(), done: make(chan struct{})}
	one.expiry = time.AfterFunc(pageTTL, func() { p.expire(one) })
	p.open = append(p.open, one)
	p.byID[one.id] = one
	return base + StartPath + one.id, one.done, nil
}

// Complete ends all pages for a login that was completed elsewhere, such as by gateway login: their
// channels are closed.
func (p *StartPages) Complete(login Beginner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range slices.Clone(p.open) {
		if one.Login == login {
			p.completeLocked(one)
		}
	}
}

// completeLocked ends a page whose login is completed.
func (p *StartPages) completeLocked(one *startPage) {
	if p.byID[one.id] == one && one.expiry.Stop() {
		p.closeLocked(one)
		close(one.done)
	}
}

// expire ends a page whose time is over.
func (p *StartPages) expire(one *startPage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(one)
	close(one.done)
}

// closeLocked closes a page, if it is open, but not its channel.
func (p *StartPages) closeLocked(one *startPage) {
	for i, other := range p.open {
		if other == one {
			p.open = append(p.open[:i:i], p.open[i+1:]...)
			break
		}
	}
	delete(p.byID, one.id)
	if one.login != nil {
		delete(p.state, one.login.State())
	}
}

// ServeHTTP serves StartPath and RedirectPath. It needs no authentication: the id of a page, and
// the state of a login, are secrets of the client that was asked.
func (p *StartPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch id := strings.TrimPrefix(r.URL.Path, StartPath); {
	case r.URL.Path == RedirectPath && r.Method == http.MethodGet:
		p.serveRedirect(w, r)
	case r.URL.Path == RedirectPath, id == r.URL.Path, id == "":
		Write(w, http.StatusNotFound, "Not found", "This page is only used by a login.")
	case r.Method == http.MethodGet:
		p.serveStart(w, id)
	case r.Method == http.MethodPost:
		p.begin(w, r, id)
	default:
		w.Header().Set("Allow", "GET, POST")
		Write(w, http.StatusMethodNotAllowed, "Not allowed", "Open the link in a browser.")
	}
}

// find returns an open page, nil if there is none.
func (p *StartPages) find(id string) *startPage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

func writeExpired(w http.ResponseWriter) {
	Write(w, http.StatusGone, "This link is no longer valid",
		"The login was completed already, or the link has expired. "+
			"Let your client repeat what it was doing to get another link.")
}

// serveStart shows what the login is for. It does not begin the login, because other programs than
// the user's browser may fetch the page, such as the preview of a chat.
func (p *StartPages) serveStart(w http.ResponseWriter, id string) {
	one := p.find(id)
	if one == nil {
		writeExpired(w)
		return
	}
	who := "for every client of this gateway"
	if one.For != "" {
		who = "for " + one.For + " only"
	}
	write(w, http.StatusOK, "Log in to "+one.Backend, fmt.Sprintf(
		"<p>An MCP client wants to use the server <b>%s</b>, which requires a login. "+
			"The gateway will use the login %s.</p>\n"+
			"<p>Continue only if you have just used this client yourself.</p>\n"+
			"<form method=\"post\"><button>Continue to the login</button></form>\n",
		html.EscapeString(one.Backend), html.EscapeString(who)))
}

// cookieName returns the name of the cookie that binds the login of a page to a browser.
func cookieName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "gateway_login_" + hex.EncodeToString(sum[:6])
}

// cookiePath returns the path of the cookies of pages under the URL base, whose path a proxy may
// remove.
func cookiePath(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return StartPath
	}
	return u.Path + StartPath
}

// begin begins the login of a page, and leads the browser to the authorization server. If a login
// of the page is in progress, only the same browser may begin another one.
func (p *StartPages) begin(w http.ResponseWriter, r *http.Request, id string) {
	one := p.find(id)
	switch {
	case one == nil:
		writeExpired(w)
		return
	case isCrossSite(r):
		Write(w, http.StatusForbidden, "Not allowed", "Another site has sent this request.")
		return
	}
	base, err := p.base(one.RedirectPort)
	if err == nil {
		err = p.claim(one, r)
	}
	if err != nil {
		Write(w, http.StatusForbidden, "The login was not begun", p.mask(err.Error()))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), beginTimeout)
	defer cancel()
	login, err := one.Login.BeginLogin(ctx, base+RedirectPath)
	if err != nil {
		Write(w, http.StatusBadGateway, "The login cannot begin", p.mask(err.Error()))
		return
	}
	cookie := rand.Text()
	p.mu.Lock()
	isOpen := p.byID[id] == one
	isTaken := one.login != nil && !one.hasCookieLocked(r) // by another browser meanwhile
	if isOpen && !isTaken {
		if one.login != nil {
			delete(p.state, one.login.State())
		}
		one.login, one.cookie = login, cookie
		p.state[login.State()] = one
	}
	p.mu.Unlock()
	switch {
	case !isOpen:
		writeExpired(w)
		return
	case isTaken:
		Write(w, http.StatusForbidden, "The login was not begun", errOtherBrowser.Error())
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(one.id), Value: cookie, Path: cookiePath(base),
		MaxAge: int(pageTTL.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(base, "https:")})
	// Not a redirect: the page's policy for forms would apply to its target.
	target := html.EscapeString(login.URL)
	w.Header().Set("Refresh", "0; url="+login.URL)
	write(w, http.StatusOK, "Log in to "+one.Backend, fmt.Sprintf(
		"<p>The login continues at <a href=\"%s\" rel=\"noreferrer\">%s</a>.</p>\n", target,
		html.EscapeString(login.Issuer)))
}

// isCrossSite reports whether a page of another site has caused the request, as far as the browser
// says.
func isCrossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" {
		return site != "same-origin" && site != "none"
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

var errOtherBrowser = errors.New("another browser has begun this login; " +
	"let your client repeat what it was doing to get another link")

// claim returns an error if another browser has begun a login of the page.
func (p *StartPages) claim(one *startPage, r *http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.login != nil && !one.hasCookieLocked(r) {
		return errOtherBrowser
	}
	return nil
}

// hasCookieLocked reports whether the request comes from the browser that has begun the login.
func (one *startPage) hasCookieLocked(r *http.Request) bool {
	c, err := r.Cookie(cookieName(one.id))
	return err == nil && one.cookie != "" &&
		subtle.ConstantTimeCompare([]byte(c.Value), []byte(one.cookie)) == 1
}

// serveRedirect completes a login.
func (p *StartPages) serveRedirect(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p.mu.Lock()
	one := p.state[query.Get("state")]
	var login *oauthclient.Login
	owns := false
	if one != nil {
		login, owns = one.login, one.hasCookieLocked(r)
	}
	p.mu.Unlock()
	switch {
	case one == nil:
		writeExpired(w)
		return
	case !owns:
		Write(w, http.StatusForbidden, "The login has failed", errOtherBrowser.Error())
		return
	}
	if err := login.Finish(context.WithoutCancel(r.Context()), query); err != nil {
		Write(w, http.StatusBadRequest, "The login has failed", p.mask(err.Error()),
			"Open the first page again to begin another login.")
		return
	}
	p.mu.Lock()
	p.completeLocked(one)
	p.mu.Unlock()
	Write(w, http.StatusOK, "You are logged in",
		"The gateway can now use "+one.Backend+". You can close this page.")
}
