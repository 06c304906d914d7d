package httpclient

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
)

// maxCookies bounds the cookies that a Conn keeps, and maxCookie the bytes of one.
const (
	maxCookies = 64
	maxCookie  = 4 << 10
)

// A jar keeps the cookies of one Conn, which are those of one origin. Some servers, and the
// proxies before them, tell by a cookie which of several processes has a session. A jar is never
// shared, and its values are never shown.
type jar struct {
	mu    sync.Mutex
	kept  *cookiejar.Jar
	known map[string]string // the last value by name, domain and path
}

func newJar() *jar {
	j := new(jar)
	j.clear()
	return j
}

func (j *jar) clear() {
	j.kept, _ = cookiejar.New(nil) // never fails
	j.known = map[string]string{}
}

// SetCookies implements [http.CookieJar]. A cookie that is too long is not kept. When there are
// too many all earlier ones are forgotten.
func (j *jar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range cookies {
		if len(c.Name)+len(c.Value)+len(c.Path)+len(c.Domain) > maxCookie {
			continue
		}
		key := c.Name + ";" + c.Domain + ";" + c.Path
		if _, known := j.known[key]; !known && len(j.known) >= maxCookies {
			j.clear()
		}
		j.known[key] = c.Value
		j.kept.SetCookies(u, []*http.Cookie{c})
	}
}

// Cookies implements [http.CookieJar].
func (j *jar) Cookies(u *url.URL) []*http.Cookie {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.kept.Cookies(u)
}

// blot returns text without the values of cookies.
func (j *jar) blot(text string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, value := range j.known {
		if len(value) >= 4 { // less would blot out words at random
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return text
}
