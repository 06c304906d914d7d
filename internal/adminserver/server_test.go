package adminserver_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver"
)

// fixedStatus is the same status at any time.
type fixedStatus adminapi.GatewayStatus

func (s fixedStatus) Status() adminapi.GatewayStatus { return adminapi.GatewayStatus(s) }

// emptyCatalog is a catalog without entries.
type emptyCatalog struct{}

func (emptyCatalog) Configuration() adminapi.ConfigurationList {
	return adminapi.ConfigurationList{}
}

func (emptyCatalog) Catalog() adminapi.CatalogList { return adminapi.CatalogList{} }
func (emptyCatalog) Series() adminapi.SeriesList   { return adminapi.SeriesList{} }

// serve serves an API on a loopback port until the test ends, and returns its address.
func serve(t *testing.T, o adminserver.Options, access adminserver.AccessRule) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.DiscardHandler)
	o.Catalog = emptyCatalog{}
	if o.Status == nil {
		o.Status = fixedStatus{Gateway: adminapi.GatewayInfo{ID: "abc"}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- adminserver.New(o).Serve(ctx, ln, access) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Serve does not return")
		}
	})
	return ln.Addr().String()
}

// send sends a request and returns the status and the body.
func send(t *testing.T, method, url string, body io.Reader, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestStatusIsServed(t *testing.T) {
	at := "http://" + serve(t, adminserver.Options{}, adminserver.AccessRule{})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/api/v1/status": {200, `"id":"abc"`},
		"/api/v1/none":   {404, `"error":"no such path: /api/v1/none"`},
	} {
		if status, text := send(t, "GET", at+path, nil); status != want.status ||
			!strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

func TestTokenIsRequired(t *testing.T) {
	at := "http://" + serve(t, adminserver.Options{}, adminserver.AccessRule{Token: "right"})
	for header, want := range map[string]int{
		"":              401,
		"Bearer wrong":  401,
		"Bearer right1": 401,
		"Basic right":   401,
		"Bearer right":  200,
		"bearer right":  200,
	} {
		status, text := send(t, "GET", at+"/api/v1/status", nil, "Authorization", header)
		if status != want || strings.Contains(text, "right") ||
			(status == 401) == strings.Contains(text, "abc") {
			t.Errorf("%q: %d %s", header, status, text)
		}
	}
}

// Connections beyond the maximum are closed at once, and a closed connection makes room.
func TestConnectionsAreBounded(t *testing.T) {
	at := serve(t, adminserver.Options{}, adminserver.AccessRule{})
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range 64 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	over, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	over.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := over.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("%d %v", n, err)
	}
	open[0].Close()
	for { // until the server has noticed
		resp, err := http.Get("http://" + at + "/api/v1/status")
		if err == nil {
			resp.Body.Close()
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

func TestRequestsAreBounded(t *testing.T) {
	at := "http://" + serve(t, adminserver.Options{}, adminserver.AccessRule{})
	req, err := http.NewRequestWithContext(t.Context(), "GET", at+"/api/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X", strings.Repeat("x", 64<<10))
	resp, err := http.DefaultClient.Do(req)
	if err == nil { // else the connection was reset because the server has not read everything
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s", resp.Status)
		}
	}
	if status, _ := send(t, "POST", at+"/api/v1/status", strings.NewReader("x")); status !=
		http.StatusMethodNotAllowed {
		t.Errorf("%d", status)
	}
}

// A page of another site cannot use the API through a browser, not even after DNS rebinding.
func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	at := serve(t, adminserver.Options{}, adminserver.AccessRule{Token: "right",
		CheckBrowser: true, Loopback: true, Hosts: []string{"gw.example"}})
	for _, test := range []struct {
		host, header, value string
		want                int
	}{
		{at, "Accept", "*/*", 200},
		{"localhost:7421", "Accept", "*/*", 200},
		{"GW.example", "Accept", "*/*", 200},
		{"evil.example", "Accept", "*/*", 403},
		{"evil.example:7421", "Origin", "http://evil.example:7421", 403},
		{at, "Origin", "http://" + at, 200},
		{at, "Origin", "http://evil.example", 403},
		{at, "Origin", "null", 403},
		{at, "Sec-Fetch-Site", "same-origin", 200},
		{at, "Sec-Fetch-Site", "cross-site", 403},
		{at, "Sec-Fetch-Site", "same-site", 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+at+"/api/v1/status",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = test.host
		req.Header.Set(test.header, test.value)
		req.Header.Set("Authorization", "Bearer right")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%+v: %s", test, resp.Status)
		}
	}
}
