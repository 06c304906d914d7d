package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of logins.
const (
	maxLogins     = 32             // the login that was not used for the longest time ends
	maxUnused     = 24 * time.Hour // after which a login ends
	maxCodes      = 8              // the oldest becomes invalid
	codeTTL       = time.Minute
	maxFailures   = 10 // wrong tokens in failureWindow; further attempts are refused
	failureWindow = time.Minute
	failureDelay  = time.Second // before the response to a wrong token
)

// A secretHash is the hash of a secret: looking it up reveals nothing about the secret by its time.
type secretHash [sha256.Size]byte

func hashOf(secret string) secretHash { return sha256.Sum256([]byte(secret)) }

// Logins are the logins of browsers. They end with the process.
type Logins struct {
	token secretHash

	mu       sync.Mutex
	open     map[secretHash]*browserLogin
	codes    map[secretHash]time.Time // one-time codes, with their expiry
	failures []time.Time              // the last wrong tokens, the oldest first
}

// A browserLogin is a browser that may send requests.
type browserLogin struct {
	ctx  context.Context // done when the login has ended
	end  context.CancelFunc
	used time.Time
}

// NewLogins returns Logins with a token.
func NewLogins(token string) *Logins {
	return &Logins{token: hashOf(token), open: make(map[secretHash]*browserLogin),
		codes: make(map[secretHash]time.Time)}
}

// NewCode returns a code with which a browser can log in once, within a minute.
func (l *Logins) NewCode() string {
	code := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.codes) >= maxCodes {
		var oldest secretHash
		for one, expiry := range l.codes {
			if first, ok := l.codes[oldest]; !ok || expiry.Before(first) {
				oldest = one
			}
		}
		delete(l.codes, oldest)
	}
	l.codes[hashOf(code)] = time.Now().Add(codeTTL)
	return code
}

// Check returns the context of the login of a request, which is done when the login ends. It
// returns false if the request has no login, or if it could change something and a page of another
// site may have sent it.
func (l *Logins) Check(r *http.Request) (context.Context, bool) {
	if r.Method != http.MethodGet && !isOwnOrigin(r) {
		return nil, false
	}
	cookie, err := r.Cookie(cookieName(r.Host))
	if err != nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := hashOf(cookie.Value)
	one := l.open[id]
	if one == nil {
		return nil, false
	}
	if time.Since(one.used) > maxUnused {
		l.endLocked(id)
		return nil, false
	}
	one.used = time.Now()
	return one.ctx, true
}

// isOwnOrigin reports whether the page itself has sent a request. Browsers send the header Origin
// with all requests that could change something.
func isOwnOrigin(r *http.Request) bool {
	u, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// cookieName returns the name of the cookie. Cookies of all ports of a host are the same, but each
// gateway has its own logins.
func cookieName(host string) string {
	if port := (&url.URL{Host: host}).Port(); port != "" {
		return "gateway-page-" + port
	}
	return "gateway-page"
}

// ServeState is the handler of GET /login: it says whether the request has a login.
func (l *Logins) ServeState(w http.ResponseWriter, r *http.Request) {
	SetHeaders(w.Header())
	_, ok := l.Check(r)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"logged_in":`+strconv.FormatBool(ok)+"}\n")
}

// ServeLogin is the handler of POST /login. The form has a token, or a code. A code may come from
// a page of another origin, namely from a file; nobody else knows it.
func (l *Logins) ServeLogin(w http.ResponseWriter, r *http.Request) {
	SetHeaders(w.Header())
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest,
			"the form cannot be read")
		return
	}
	if code := r.PostForm.Get("code"); code != "" {
		l.loginWithCode(w, r, code)
		return
	}
	if !isOwnOrigin(r) {
		refuse(w, http.StatusForbidden,
			"a page of another site sends this request")
		return
	}
	if !l.mayTry() {
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusTooManyRequests,
			"too many wrong tokens: wait a minute, or run gateway page")
		return
	}
	given := hashOf(strings.TrimSpace(r.PostForm.Get("token")))
	if subtle.ConstantTimeCompare(given[:], l.token[:]) != 1 {
		select {
		case <-r.Context().Done():
		case <-time.After(failureDelay):
		}
		refuse(w, http.StatusUnauthorized,
			"this is not the admin token")
		return
	}
	l.forgive()
	l.setCookie(w, r)
	w.WriteHeader(http.StatusNoContent)
}

// loginWithCode logs in a browser, and shows the page.
func (l *Logins) loginWithCode(w http.ResponseWriter, r *http.Request, code string) {
	l.mu.Lock()
	expiry, ok := l.codes[hashOf(code)]
	delete(l.codes, hashOf(code))
	l.mu.Unlock()
	if ok && time.Now().Before(expiry) {
		l.setCookie(w, r)
	}
	// Without a login, the page asks for the token.
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// ServeLogout is the handler of POST /logout. It ends the login of the request, and the requests
// of the login that are not ended.
func (l *Logins) ServeLogout(w http.ResponseWriter, r *http.Request) {
	SetHeaders(w.Header())
	if _, ok := l.Check(r); !ok {
		refuse(w, http.StatusUnauthorized,
			"not logged in")
		return
	}
	cookie, _ := r.Cookie(cookieName(r.Host)) // Check has found it
	l.mu.Lock()
	l.endLocked(hashOf(cookie.Value))
	l.mu.Unlock()
	http.SetCookie(w, newCookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// refuse responds to a request that is refused with a text for the user.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // fails if the client has disconnected
}

// mayTry counts an attempt as failed, and reports whether it may be made. Attempts are counted when
// they begin, so that simultaneous ones are too.
func (l *Logins) mayTry() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.failures) > 0 && time.Since(l.failures[0]) > failureWindow {
		l.failures = l.failures[1:]
	}
	if len(l.failures) >= maxFailures {
		return false
	}
	l.failures = append(l.failures, time.Now())
	return true
}

// forgive forgets failed attempts after the right token.
func (l *Logins) forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = nil
}

// setCookie creates a login for the browser of a request.
func (l *Logins) setCookie(w http.ResponseWriter, r *http.Request) {
	value := rand.Text()
	one := &browserLogin{used: time.Now()}
	one.ctx, one.end = context.WithCancel(context.Background())
	l.mu.Lock()
	for len(l.open) >= maxLogins {
		var oldest secretHash
		for id, other := range l.open {
			if first := l.open[oldest]; first == nil || other.used.Before(first.used) {
				oldest = id
			}
		}
		l.endLocked(oldest)
	}
	l.open[hashOf(value)] = one
	l.mu.Unlock()
	http.SetCookie(w, newCookie(r, value, 0))
}

func newCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: cookieName(r.Host), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// endLocked ends a login. mu is held.
func (l *Logins) endLocked(id secretHash) {
	l.open[id].end()
	delete(l.open, id)
}
