package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
)

// openNotifying sends three notifications on the standalone stream, and returns a handler that
// responds to each request.
func openNotifying(_ SessionInfo, out transport.Writer) SessionHandler {
	for i := range 3 {
		_ = out.Write(progressNotification(i), "")
	}
	return echoHandler{silentHandler{out}}
}

// For any request without a body there is no panic and no 5xx status. Only requests with the key of
// a session get its messages: each message once per stream, beginning after Last-Event-ID. Only a
// request with the key closes the session.
func FuzzListen(f *testing.F) {
	for _, key := range []string{"KEY", "", "x", "KEYx"} {
		for _, last := range []string{"", "0-1", "0-0", "0-3", "1-1", "0-99999999999999999999",
			"-1", "0-01", "x"} {
			f.Add("GET", "/mcp", key, last, "text/event-stream", "2025-11-25", "", "localhost", "",
				"")
		}
		for _, verb := range []string{"DELETE", "OPTIONS", "HEAD", "PUT"} {
			f.Add(verb, "/mcp", key, "", "*/*", "2025-11-25", "http://localhost", "127.0.0.1:1",
				"tools/call", "x")
		}
		f.Add("GET", "/sse?x=y", key, "", "text/event-stream;q=0", "", "", "localhost", "", "")
		f.Add("GET", "/message?sessionId=KEY", key, "", "", "2026-07-28", "null", "[::1]", "", "")
	}
	f.Add("GET", "/mcp", "KEY", "0-1", "text/event-stream", modernRevision, "", "localhost",
		"subscriptions/listen", "n")
	f.Add("GET", "/readyz", "", "", "", "", "", "evil.com", "", "")
	f.Fuzz(func(t *testing.T, verb, path, key, last, accept, version, origin, host, method,
		name string) {
		if verb == "POST" || strings.ToUpper(verb) != verb || !printable(verb) ||
			strings.ContainsAny(verb, `()<>@,;:\"/[]?={}`) || verb == "" {
			verb = "GET" // POST is covered by FuzzPost
		}
		synctest.Test(t, func(t *testing.T) {
			srv := New(Options{OpenSession: openNotifying, MessageLimit: 64 << 10, Loopback: true})
			initRequest := httptest.NewRequest("POST", "/mcp",
				strings.NewReader(initializeRequest("2025-11-25")))
			initRequest.Host, initRequest.Header = "localhost",
				http.Header{"Content-Type": {"application/json"},
					"Accept": {"application/json, text/event-stream"}}
			initResponse := httptest.NewRecorder()
			srv.ServeHTTP(initResponse, initRequest)
			sessionKey := initResponse.Header().Get(sessionHeader)
			if sessionKey == "" {
				t.Fatalf("no session: %d %s", initResponse.Code, initResponse.Body)
			}
			session := srv.sessions.sessions[sessionKey]
			key, path := strings.ReplaceAll(key, "KEY", sessionKey), strings.ReplaceAll(path,
				"KEY", sessionKey)
			if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
				!printable(path) || strings.ContainsAny(path, "%#") {
				path = "/mcp"
			}
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, verb, path, nil)
			r.Host = host
			for header, value := range map[string]string{
				sessionHeader: key, "Last-Event-ID": last, "Accept": accept,
				"Mcp-Protocol-Version": version, "Origin": origin, "Mcp-Method": method,
				"Mcp-Name": name,
			} {
				if value != "" {
					r.Header.Set(header, value)
				}
			}
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, r)
			synctest.Wait()

			if w.Code >= 500 && r.URL.Path != "/readyz" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			received := receivedOn(t, w)
			if r.URL.Path == "/mcp" && received != nil && (key != sessionKey || verb != "GET") {
				t.Errorf("%s with key %q received %q", verb, key, received)
			}
			if r.URL.Path == "/mcp" && w.Code == 200 && verb == "GET" {
				var all []string
				for i := range 3 {
					all = append(all, string(progressNotification(i).Raw()))
				}
				if at := len(all) - len(received); at < 0 || !slices.Equal(received, all[at:]) ||
					last == "" && at != 0 || slices.Contains([]string{"0-1", "0-2", "0-3"},
					last) && last != fmt.Sprint("0-", at) {
					t.Errorf("after %q it received %q", last, received)
				}
			}
			if closed := session.isClosed(); closed != (verb == "DELETE" && key == sessionKey &&
				w.Code/100 == 2) {
				t.Errorf("%s with key %q (%q): %d, session closed: %v", verb, key,
					sessionKey, w.Code, closed)
			}
			srv.shutDown(func() {})
		})
	})
}

// receivedOn returns the messages in an event stream; nil = the response is not an event stream. It
// skips the endpoint event of HTTP+SSE.
func receivedOn(t *testing.T, w *httptest.ResponseRecorder) []string {
	if w.Header().Get("Content-Type") != "text/event-stream" {
		if strings.Contains(w.Body.String(), `"progressToken"`) {
			t.Errorf("%d: message outside an event stream: %s", w.Code, w.Body)
		}
		return nil
	}
	all := []string{}
	ids := make(map[string]bool)
	for line := range strings.Lines(w.Body.String()) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "id" && ids[value]:
			t.Errorf("event id %s was used twice", value)
		case name == "id":
			ids[value] = true
		case name == "data" && strings.HasPrefix(value, "{"):
			all = append(all, value)
		case name != "data" && name != "event" && name != "retry" && name != "" && name != "\n" &&
			!strings.HasPrefix(line, ":"):
			t.Errorf("unexpected line in the stream: %q", line)
		}
	}
	return all
}

func (s *httpSession) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil
}
