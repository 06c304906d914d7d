package backends

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// logLines are the lines of a log.
type logLines chan string

func (r logLines) Write(line []byte) (int, error) {
	select {
	case r <- string(line):
	default: // no backend is started so often
	}
	return len(line), nil
}

// If server/discover and initialize fail in the same way, the generation is not the reason.
// Otherwise it may be the reason, and the error suggests era: legacy.
func TestSameFailureOfTwoRequests(t *testing.T) {
	isDiscover := func(r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		return strings.Contains(string(body), "server/discover")
	}
	page := func(w http.ResponseWriter, code int, title string) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html><title>"+title+"</title></html>")
	}
	for name, tt := range map[string]struct {
		reply http.HandlerFunc
		want  string
		hint  bool
	}{
		"page": {func(w http.ResponseWriter, _ *http.Request) { page(w, 200, "Log in") },
			"HTTP 200 OK: Log in", false},
		"500": {func(w http.ResponseWriter, _ *http.Request) { page(w, 500, "Oops") },
			"HTTP 500 Internal Server Error: Oops", false},
		"other": {func(w http.ResponseWriter,
			r *http.Request) {
			page(w, 500, time.Now().String())
		}, "HTTP 500", false},
		"different": {func(w http.ResponseWriter, r *http.Request) {
			if isDiscover(r) {
				page(w, 500, "Oops")
			} else {
				page(w, 422, "What?")
			}
		}, "HTTP 422 Unprocessable Entity: What?", true},
		"broken": {func(w http.ResponseWriter, r *http.Request) {
			if isDiscover(r) {
				page(w, 200, "Log in")
			} else {
				page(w, 500, "Oops")
			}
		}, "HTTP 500 Internal Server Error: Oops", true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.reply)
			defer server.Close()
			s, end := runAll(t, make(logLines, 100),
				config.Backend{Name: "x", URL: server.URL, Enabled: true, StartTimeout: time.Minute,
					Generation: "auto", Transport: "auto"})
			defer end()
			err := s.Status()[0].Err
			if err == nil || strings.Count(err.Error(), tt.want) != 1 ||
				strings.Contains(err.Error(), "era: legacy") != tt.hint {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// The error of a backend, and the log, contain the reason that an HTTP response gives, even if the
// body is not a JSON-RPC error.
func TestReasonsOfHTTPServers_F_HTTP_1(t *testing.T) {
	for name, tt := range map[string]struct {
		reply http.HandlerFunc
		want  string
	}{
		"OAuth": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, `{"error":"invalid_token","error_description":"x"}`)
		}, `HTTP 401 Unauthorized: {"error":"invalid_token","error_description":"x"}`},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://me:hunter2@other.test/mcp?key=hunter2",
				http.StatusPermanentRedirect)
		}, "redirects to https://other.test/mcp: put that into url"},
		"coding": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "\x0b")
		}, `the body has the Content-Encoding "br"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.reply)
			defer server.Close()
			log := make(logLines, 100)
			s, end := runAll(t, log, config.Backend{Name: "x", URL: server.URL, Enabled: true,
				StartTimeout: time.Minute, Generation: "auto", Transport: "auto"})
			defer end()
			err := s.Status()[0].Err
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			// otherwise the test never ends
			for want := strings.ReplaceAll(tt.want, `"`, `\"`); !strings.Contains(<-log, want); {
			}
		})
	}
}

// An HTTP+SSE server that opens a stream for each request to its address is detected, and a
// response that arrives after its POST was broken off is accepted.
func TestHTTPSSEServer_F_HTTP_8_F_HTTP_9(t *testing.T) {
	reports := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := wire.Parse(body)
		switch {
		case r.URL.Path == "/sse":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: endpoint\ndata: /messages?sessionId=1\n\n")
			w.(http.Flusher).Flush()
			for r.Method == http.MethodGet {
				select {
				case text := <-reports:
					_, _ = io.WriteString(w, "data: "+text+"\n\n")
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
			<-r.Context().Done()
		case m.Method() == "initialize":
			reports <- string(wire.NewResult(m.ID(),
				[]byte(
					`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)).Raw())
		case m.Method() == "tools/list":
			reports <- string(wire.NewResult(m.ID(),
				[]byte(`{"tools":[{"name":"now","inputSchema":{"type":"object"}}]}`)).Raw())
		case m.Method() == "tools/call":
			time.AfterFunc(50*time.Millisecond,
				func() {
					reports <- string(wire.NewResult(m.ID(), []byte(`{"content":[]}`)).Raw())
				})
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.Start()
	defer server.Close()
	s, end := runAll(t, io.Discard, config.Backend{Name: "x", URL: server.URL + "/sse",
		Enabled: true, StartTimeout: time.Minute, Generation: "auto", Transport: "auto",
		Sharing: "shared"})
	defer end()
	if a := <-sendSized(s, "x", 10); a.Err != nil ||
		string(a.Message.Part(wire.PartResult)) != `{"content":[]}` {
		t.Errorf("got %s, %v; the backend is %+v", a.Message.Raw(), a.Err, s.Status()[0])
	}
}
