package httpserver

import (
	"net/http"
	"testing"
)

// Without a token a page of another port of this machine is a stranger, like any other page.
func TestPagesOfOtherPorts_F_SEC_6(t *testing.T) {
	const other, listed = "http://localhost:3000", "http://localhost:6274"
	house := func(tokens ...string) *house {
		return newHouse(t, func(o *Options) { o.Loopback, o.Origins, o.Tokens = true, []string{listed}, tokens })
	}
	open, closed := house(), house("secret")
	for _, host := range []string{"localhost:7420", "127.0.0.1:7420", "[::1]:7420"} {
		for origin, ok := range map[string]bool{
			"-": true, "http://" + host: true, listed: true,
			other: false, "http://127.0.0.1:3000": false, "http://[::1]:3000": false, "http://localhost": false, "https://localhost:7421": false,
		} {
			for _, v := range []knock{{body: initialize("2025-11-25")}, {verb: "OPTIONS"}, {verb: "GET", path: "/sse"}, lone("1", "echo", "")} {
				v.host = host
				res := open.send(v.with("Origin", origin))
				res.Body.Close()
				if (res.StatusCode < 300) != ok || !ok && res.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s from %s: %s", v.verb, host, origin, res.Status)
				}
			}
		}
	}
	for origin, status := range map[string]int{other: 200, "https://evil.example": 403} {
		v := knock{body: initialize("2025-11-25")}.with("Origin", origin, "Authorization", "Bearer secret")
		closed.want(v, status, "*")
		if status == 200 {
			closed.want(v.with("Authorization", "-"), 401, "*")
		}
	}
	open.door.UpdateAccess([]string{"secret"}, nil, nil)
	open.want(knock{body: initialize("2025-11-25")}.with("Origin", other, "Authorization", "Bearer secret"), 200, "*")
}

// What a page of another site, or port, has a browser fetch without an Origin opens no session.
func TestPagesThatSendNoOrigin_F_SEC_12(t *testing.T) {
	h := newHouse(t, func(o *Options) { o.Loopback, o.Origins = true, []string{"http://localhost:6274"} })
	for site, ok := range map[string]bool{"cross-site": false, "same-site": false, "Cross-Site": false, "same-origin": true, "none": true, "-": true} {
		for _, v := range []knock{
			{verb: "GET", path: "/sse"}, {verb: "GET", path: "/sse/"}, {body: initialize("2025-11-25")}, lone("1", "echo", ""),
		} {
			res := h.send(v.with("Sec-Fetch-Site", site, "Sec-Fetch-Mode", "no-cors"))
			res.Body.Close()
			if (res.StatusCode == 200) != ok || !ok && res.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s, %s: %s", v.verb, v.path, site, res.Status)
			}
		}
	}
	page := knock{body: initialize("2025-11-25")}.with("Origin", "http://localhost:6274", "Sec-Fetch-Site", "cross-site")
	h.want(page, 200, "*")
}
