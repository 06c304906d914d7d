package backends

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// A sessionServer is a streamable HTTP server. It keeps its sessions until the test makes it forget
// them, and counts the requests that it runs.
type sessionServer struct {
	refuse func(w http.ResponseWriter, m wire.Message) // response for an unknown session
	fickle bool                                        // it forgets its session at each tools/call

	missing string // a method to which it responds with 404 in each session

	mu      sync.Mutex
	session int            // number of the newest session
	oldest  int            // earlier sessions are forgotten
	ran     map[string]int // method → number of requests run
	refused int
}

func (s *sessionServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.session + 1
}

func (s *sessionServer) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[method]
}

func (s *sessionServer) known(r *http.Request, m wire.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, _ := strconv.Atoi(r.Header.Get("Mcp-Session-Id"))
	opens := m.Method() == "initialize"
	if !opens && (number == 0 || number < s.oldest) || s.fickle && m.Method() == "tools/call" {
		s.refused++
		return false
	}
	if s.ran == nil {
		s.ran = make(map[string]int)
	}
	s.ran[m.Method()]++
	return true
}

func (s *sessionServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.Parse(body)
	if !s.known(r, m) {
		s.refuse(w, m)
		return
	}
	if s.missing != "" && m.Method() == s.missing {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":"no such document"}`)
		return
	}
	result := "{}"
	switch m.Method() {
	case "initialize":
		s.mu.Lock()
		s.session++
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(s.session))
		s.mu.Unlock()
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"now","inputSchema":{"type":"object"}}]}`
	case "resources/list":
		result = `{"resources":[]}`
	case "resources/templates/list":
		result = `{"resourceTemplates":[]}`
	case "tools/call":
		result = `{"content":[]}`
	}
	if m.Kind() != wire.Request {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(wire.NewResult(m.ID(), []byte(result)).Raw())
}

// serve runs a Set with s, over one connection for all sessions or one connection for each session.
func (s *sessionServer) serve(t *testing.T, sharing string) *Set {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	set, end := runAll(t, io.Discard, config.Backend{
		Name: "x", URL: server.URL, Enabled: true, StartTimeout: time.Minute, Generation: "legacy",
		Transport: "auto", Sharing: config.Sharing(sharing),
	})
	t.Cleanup(end)
	set.OpenSession("one", nil, []byte("{}"), false)
	return set
}

func notFound(w http.ResponseWriter, _ wire.Message) {
	http.Error(w, "Session not found", http.StatusNotFound)
}

var unknownSession = map[string]func(w http.ResponseWriter, m wire.Message){
	"404": notFound,
	"404 with JSON": func(w http.ResponseWriter, _ wire.Message) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	},
	"400": func(w http.ResponseWriter, _ wire.Message) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`)
	},
	"not JSON-RPC": func(w http.ResponseWriter, _ wire.Message) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"Session not found"}`)
	},
}

// Calls to a server that has lost their session get responses after one new initialize on each
// connection, and each call runs once.
func TestCallsOfLostSession_F_HTTP_13(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	for name, refuse := range unknownSession {
		for _, sharing := range []string{"shared", "session"} {
			t.Run(name+", "+sharing, func(t *testing.T) {
				s := &sessionServer{refuse: refuse}
				set := s.serve(t, sharing)
				if a := <-sendSized(set, "x", 1); a.Err != nil {
					t.Fatal(a.Err)
				}
				calls, initializes := 1, s.count("initialize")
				for round := range 3 {
					s.forget()
					var waiters []ResponseChan
					for range 20 {
						waiters = append(waiters, sendSized(set, "x", 1))
					}
					calls += len(waiters)
					for _, w := range waiters {
						if a := <-w; a.Err != nil ||
							string(a.Message.Part(wire.PartResult)) != `{"content":[]}` {
							t.Errorf("round %d: got %s, %v", round, a.Message.Raw(), a.Err)
						}
					}
				}
				if n := s.count("tools/call"); n != calls {
					t.Errorf("%d calls ran %d times", calls, n)
				}
				// the session's connection and the shared connection notice the loss
				if n := s.count("initialize") - initializes; n > 6 {
					t.Errorf("%d times initialize after 3 lost sessions", n)
				}
			})
		}
	}
}

// A call counts how often it was sent again.
func TestCallOfLostSessionCountsReconnects(t *testing.T) {
	s := &sessionServer{refuse: notFound}
	set := s.serve(t, "shared")
	for round, want := range []int{0, 1} {
		if round > 0 {
			s.forget()
		}
		w := make(ResponseChan, 1)
		call := set.NewCall("x", contract.BackendRequest{Session: "one",
			Message: wire.NewRequest("0", "tools/call", []byte(`{"name":"now"}`))}, w)
		if n := call.Reconnects(); n != 0 {
			t.Errorf("%d reconnects before the call is sent", n)
		}
		call.Send()
		if a := <-w; a.Err != nil {
			t.Fatal(a.Err)
		}
		if n := call.Reconnects(); n != want {
			t.Errorf("%d reconnects, want %d", n, want)
		}
	}
}

// Other requests to a server that has lost their session are sent in the next session.
func TestRequestsOfLostSession_F_HTTP_13(t *testing.T) {
	for _, m := range []string{"prompts/get", "resources/read", "completion/complete",
		"resources/subscribe"} {
		t.Run(m, func(t *testing.T) {
			s := &sessionServer{refuse: notFound}
			set := s.serve(t, "shared")
			s.forget()
			w := make(ResponseChan, 1)
			set.SendCall("x", "one", wire.NewRequest("0", m, []byte(`{"uri":"x://y","name":"n"}`)),
				w)
			if a := <-w; a.Err != nil || string(a.Message.Part(wire.PartResult)) != "{}" {
				t.Errorf("got %s, %v", a.Message.Raw(), a.Err)
			}
			if n := s.count(m); n != 1 {
				t.Errorf("the request ran %d times", n)
			}
		})
	}
}

// A call is sent again only once, even if a server loses the session at every tool call. A response
// with status 200 may come from the tool, so the call is not sent again.
func TestSessionLostAgain_F_HTTP_13(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse func(http.ResponseWriter, wire.Message)
		sent   int
	}{
		"404": {notFound, 2},
		"200": {func(w http.ResponseWriter, m wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(wire.NewErrorResponse(m.ID(),
				wire.Errorf(-32001, "session not found")).Raw())
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sessionServer{refuse: tt.refuse, fickle: true}
			set := s.serve(t, "shared")
			a := <-sendSized(set, "x", 1)
			if a.Err == nil || !strings.Contains(a.Err.Error(), "forgotten the session") {
				t.Errorf("got %s, %v", a.Message.Raw(), a.Err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.refused != tt.sent {
				t.Errorf("the call was sent %d times", s.refused)
			}
		})
	}
}

// A server that responds 404 to one request does not lose its session, and its breaker stays
// closed.
func Test404IsAResponse_F_HTTP_13(t *testing.T) {
	for _, sharing := range []string{"shared", "session"} {
		t.Run(sharing, func(t *testing.T) {
			s := &sessionServer{missing: "prompts/get"}
			set := s.serve(t, sharing)
			if a := <-sendSized(set, "x", 1); a.Err != nil {
				t.Fatal(a.Err)
			}
			initializes := s.count("initialize")
			for range 2 * supervise.BreakerThreshold {
				w := make(ResponseChan, 1)
				set.SendCall("x", "one", wire.NewRequest("0", s.missing, []byte(`{"name":"n"}`)),
					w)
				if a := <-w; a.Err == nil || !strings.Contains(a.Err.Error(), "404") {
					t.Errorf("the unknown method: %s, %v", a.Message.Raw(), a.Err)
				}
				if a := <-sendSized(set, "x", 1); a.Err != nil {
					t.Errorf("a tool call: %v", a.Err)
				}
			}
			if n := s.count("initialize"); n != initializes {
				t.Errorf("initialize %d times more", n-initializes)
			}
		})
	}
}

// When all backends are settled, the status of each backend that is not ready contains the reason,
// even if the session was lost right after initialize.
func TestSettledBackendHasReason_F_HTTP_14(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	for name, reply := range map[string]http.HandlerFunc{
		"404": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"500": func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &sessionServer{refuse: func(w http.ResponseWriter,
				_ wire.Message) {
				reply(w, nil)
			}}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if m, _ := wire.Parse(body); m.Method() != "initialize" {
					reply(w, r)
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				s.ServeHTTP(w, r)
			}))
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
			server.Start()
			defer server.Close()
			tries := 3
			if name == "404" { // which ends the connection at any moment
				tries = 40
			}
			for range tries {
				set := New(Options{MaxMessage: 1 << 20, NoRestart: true, IgnoreCache: true,
					Log: slog.New(slog.DiscardHandler), Backends: []config.Backend{
						{Name: "x", URL: server.URL, Enabled: true, StartTimeout: time.Minute,
							Generation: "legacy", Transport: "http", Sharing: "shared"},
					}})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- set.Run(ctx, nil) }()
				set.Start()
				for v := set.View(); !v.Complete; v = set.View() {
					<-v.Changed
				}
				if got := set.Status()[0]; got.Err == nil {
					t.Errorf("the backend is %s without a reason", got.State)
				}
				cancel()
				<-done
			}
		})
	}
}
