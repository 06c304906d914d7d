package httpclient

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
)

// maxCookies bounds the cookies that a Conn keeps. maxCookie bounds the bytes of one cookie.
const (
	maxCookies = 64
	maxCookie  = 4 << 10
)

// A cookieJar stores the cookies of one Conn, which come from one origin. Some servers, and the
// proxies in front of them, use a cookie to select the process that has a session. A cookieJar is
// never shared, and its values are never shown.
type cookieJar struct {
	mu     sync.Mutex
	jar    *cookiejar.Jar
	values map[string]string // last value, by name, domain and path
}

func newCookieJar() *cookieJar {
	j := new(cookieJar)
	j.clear()
	return j
}

func (j *cookieJar) clear() {
	j.jar, _ = cookiejar.New(nil) // never fails
	j.values = map[string]string{}
}

// SetCookies implements [http.CookieJar]. It ignores a cookie that is too long. If there are too
// many cookies, it removes all earlier cookies.
func (j *cookieJar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range cookies {
		if len(c.Name)+len(c.Value)+len(c.Path)+len(c.Domain) > maxCookie {
			continue
		}
		key := c.Name + ";" + c.Domain + ";" + c.Path
		if _, known := j.values[key]; !known && len(j.values) >= maxCookies {
			j.clear()
		}
		j.values[key] = c.Value
		j.jar.SetCookies(u, []*http.Cookie{c})
	}
}

// Cookies implements [http.CookieJar].
func (j *cookieJar) Cookies(u *url.URL) []*http.Cookie {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.values) == 0 {
		return nil
	}
	return j.jar.Cookies(u)
}

// redact replaces the values of cookies in text.
func (j *cookieJar) redact(text string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, value := range j.values {
		if len(value) >= 4 { // shorter values would redact ordinary words
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return text
}
