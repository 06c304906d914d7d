package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestHTTPLost(t *testing.T) {
	status := func(code int, text string) func(http.ResponseWriter, *http.Request, wire.Message) {
		return func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			http.Error(w, text,
				code)
		}
	}
	tests := []struct {
		name  string
		serve func(http.ResponseWriter, *http.Request, wire.Message)
		want  string
		ran   bool
	}{
		{"400", status(400, "bad\n\n request"), "HTTP 400 Bad Request: bad request", true},
		{"401", status(401, "who are you"), "HTTP 401 Unauthorized: who are you", false},
		{"403", status(403, ""), "HTTP 403 Forbidden", false},
		{"405", status(405, ""), "HTTP 405 Method Not Allowed", false},
		{"413", status(413, ""), "HTTP 413 Request Entity Too Large", false},
		{"429", status(429, "slow down"), "HTTP 429 Too Many Requests: slow down", false},
		{"500", status(500, strings.Repeat("é", 150)),
			"HTTP 500 Internal Server Error: " + strings.Repeat("é", 100) + "…", true},
		{"501", status(501, ""), "HTTP 501 Not Implemented", false},
		{"502", status(502, "<h1>Bad\tGateway</h1>"), "HTTP 502 Bad Gateway: Bad Gateway", true},
		{"503", status(503, "upstream connect error"),
			"HTTP 503 Service Unavailable: upstream connect error", true},
		{"599", status(599, ""), "HTTP 599", true},
		{"no text", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			w.Header().Set("Content-Type", "image/png")
			w.WriteHeader(500)
			fmt.Fprint(w, "\x89PNG")
		}, "HTTP 500 Internal Server Error", true},
		{"202 for a request", status(202, ""), "HTTP 202 Accepted", true},
		{"204 for a request", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			w.WriteHeader(204)
		}, "the answer is not a JSON-RPC response: HTTP 204 No Content", true},
		{"a page", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			fmt.Fprint(w, "<html>log in</html>")
		}, "HTTP 200 OK: log in", true},
		{"truncated JSON", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			fmt.Fprint(w, resultOf(m, `{}`)[:20])
		}, "the answer is not a message: Parse error", true},
		{"both result and error", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":1,"error":{"code":1,"message":"m"}}`,
				m.ID())
		}, "the answer is not a message: Invalid request", true},
		{"too long", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeResult(w, m, string(wire.Quote(strings.Repeat("x", 1<<20))))
		}, "the answer is longer than limits.message (1048576 bytes)", true},
		{"too long, length unknown", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.(http.Flusher).Flush()
			writeResult(w, m, string(wire.Quote(strings.Repeat("x", 1<<20))))
		}, "the answer is longer than limits.message (1048576 bytes)", true},
		{"too long an event", func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			writeStream(w,
				messageEvent(resultOf(m, string(wire.Quote(strings.Repeat("x", 1<<20))))))
			blockUntilAborted(r)
		}, "the answer is longer than limits.message (1048576 bytes)", true},
		{"connection broken",
			func(http.ResponseWriter, *http.Request, wire.Message) { abortConnection() },
			"the connection broke before the answer: EOF", true},
		{"broken in a body", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, resultOf(m, `{}`))
			w.(http.Flusher).Flush()
			abortConnection()
		}, "the connection broke before the answer was complete: unexpected EOF", true},
		{"stream ended", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			writeStream(w, ": hello\n\n")
		}, "the stream ended without the answer: EOF", true},
		{"stream broken", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, "data: "+resultOf(m, `{}`)+"\n")
			abortConnection()
		}, "the stream ended without the answer: unexpected EOF", true},
		{"stream on a refusal", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(403)
		}, "HTTP 403 Forbidden", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = tt.serve
				c := ready(t, s, nil)
				wantErrorText(t, c.wantLost(c.call("tools/call"), tt.ran), tt.want)
				s.post = nil // the connection stays open
				id := c.call("tools/call")
				if m := c.read(); m.ID() != id {
					t.Errorf("then got %s", m.Raw())
				}
			})
		})
	}
}

// Input in a stream that is not a message is reported; if the stream then ends without the
// response, the error mentions it.
func TestHTTPMalformedMessagesInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, messageEvent("nonsense"),
				messageEvent(`{"jsonrpc":"2.0","id":`+string(m.ID())+`}`), messageEvent(resultOf(m,
					`{}`)))
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		for _, text := range []string{"nonsense", `{"jsonrpc":`} {
			_, _, err := c.Read()
			var malformed *transport.MalformedError
			if !errors.As(err, &malformed) || !strings.HasPrefix(string(malformed.Text), text) {
				t.Fatalf("got %v", err)
			}
		}
		wantErrorText(t, c.wantLost(id, true), "the answer is not a message")
	})
}

func TestHTTPDialErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := ready(t, s, nil)
		synctest.Wait()
		time.Sleep(10 * time.Second) // the pool is empty then
		s.dialled, s.refusing = 0, 1000
		wantErrorText(t, c.wantLost(c.call("tools/call"), false),
			"no connection: dial tcp: connection refused")
		if s.dialled != 1+maxRetries {
			t.Errorf("dialled %d times", s.dialled)
		}
		s.refusing = maxRetries
		id := c.call("tools/call")
		if m := c.read(); m.ID() != id || s.count("tools/call") != 1 {
			t.Errorf("got %s after %d calls", m.Raw(), s.count("tools/call"))
		}
		if !strings.Contains(s.log.String(), "retrying a message") {
			t.Error("the retry is not logged")
		}
	})
}

// A call that may have run is never retried.
func TestCONC_04_ACallThatMayHaveRunIsNotRetried(t *testing.T) {
	failures := map[string]func(http.ResponseWriter, *http.Request){
		"connection broken": func(http.ResponseWriter, *http.Request) { abortConnection() },
		"broken in a body": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			abortConnection()
		},
		"stream broken": func(w http.ResponseWriter, _ *http.Request) {
			writeStream(w,
				"id: 1\ndata:\n\n")
			abortConnection()
		},
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"502": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"504": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(504) },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) { fail(w, r) }
				c := ready(t, s, nil)
				c.call("ping") // leaves a connection in the pool; the call then uses the connection
				c.wantLost("101", true)
				c.wantLost(c.call("tools/call"), true)
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := s.count("tools/call"); n != 1 {
					t.Errorf("the server got %d calls", n)
				}
			})
		})
	}
}

func TestHTTPRetries(t *testing.T) {
	putOff := func(status int, after string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(status)
		}
	}
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code) }
	}
	tests := []struct {
		name, method string
		fail         func(http.ResponseWriter)
		again        bool
		after        time.Duration
	}{
		{"a call on 429 with Retry-After", "tools/call", putOff(429, "20"), true, 20 * time.Second},
		{"a call on 503 with Retry-After", "tools/call", putOff(503, "30"), true, 30 * time.Second},
		{"a call on 429 with a date", "tools/call", putOff(429, "Sat, 01 Jan 2000 00:00:07 GMT"),
			true, 7 * time.Second},
		{"not if that is too long", "tools/call", putOff(429, "31"), false, 0},
		{"not a call on 500 with Retry-After", "tools/call", putOff(500, "1"), false, 0},
		{"a list on 502", "tools/list", status(502), true, 250 * time.Millisecond},
		{"a list on 503", "resources/templates/list", status(503), true, 250 * time.Millisecond},
		{"a resource on 504", "resources/read", status(504), true, 250 * time.Millisecond},
		{"a prompt when the connection breaks", "prompts/get",
			func(http.ResponseWriter) { abortConnection() }, true, 250 * time.Millisecond},
		{"not a list on 500", "tools/list", status(500), false, 0},
		{"not an unknown method", "x/y", status(502), false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				reconnects := 0
				c := ready(t, s, func(o *Options) {
					o.OnReconnect = func(wire.ID) { reconnects++ }
				})
				synctest.Wait()
				failed := false
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					if !failed {
						failed = true
						tt.fail(w)
						return
					}
					writeResult(w, m, "{}")
				}
				began := time.Now()
				id := c.call(tt.method)
				m, _, err := c.Read()
				if again := err == nil && m.ID() == id; again != tt.again {
					t.Errorf("got %s, %v", m.Raw(), err)
				}
				if again := reconnects == 1; again != tt.again || reconnects > 1 {
					t.Errorf("%d reconnects", reconnects)
				}
				if took := time.Since(began).Truncate(10 * time.Millisecond); took != tt.after {
					t.Errorf("took %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// The response to initialize shows whether the server may support HTTP+SSE.
func TestHTTPNotStreamable(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter, wire.Message) {
		return func(w http.ResponseWriter, _ wire.Message) { http.Error(w, body, code) }
	}
	failure := func(code int, id string) func(http.ResponseWriter, wire.Message) {
		return func(w http.ResponseWriter, m wire.Message) {
			rpcError(w, code, strings.ReplaceAll(id, "ID", string(m.ID())), -32000, "no")
		}
	}
	tests := []struct {
		name  string
		reply func(http.ResponseWriter, wire.Message)
		older bool
		want  string // in the error; "" = there is a response
	}{
		{"400", status(400, "sessionid must be provided"), true,
			"HTTP 400 Bad Request: sessionid must be provided"},
		{"404", status(404, "<pre>Cannot POST /sse</pre>"), true,
			"HTTP 404 Not Found: Cannot POST /sse"},
		{"405", status(405, ""), true, "HTTP 405 Method Not Allowed"},
		{"404 with other JSON", status(404, `{"detail":"Not Found"}`), true,
			`HTTP 404 Not Found: {"detail":"Not Found"}`},
		{"405 with a stream", func(w http.ResponseWriter, _ wire.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(405)
		}, true, "HTTP 405 Method Not Allowed"},
		{"400 with an error that names nothing", failure(400, "null"), true,
			`HTTP 400 Bad Request: {"jsonrpc":"2.0","id":null,"error"`},
		{"400 with the request's error", failure(400, "ID"), false, ""},
		{"404 with the request's error", failure(404, "ID"), false, ""},
		{"405 with the request's error", failure(405, "ID"), false, ""},
		{"401", status(401, "who are you"), false, "HTTP 401 Unauthorized: who are you"},
		{"403", status(403, ""), false, "HTTP 403 Forbidden"},
		{"406", status(406, ""), false, "HTTP 406 Not Acceptable"},
		{"500", status(500, "oh"), false, "HTTP 500 Internal Server Error: oh"},
		{"502", status(502, "oh"), false, "HTTP 502 Bad Gateway: oh"},
		{"a page", status(200, "<html>"), false, "(HTTP 200 OK)"},
		{"403 with an error that names nothing", failure(403, "null"), false, ""},
		{"connection broken", func(http.ResponseWriter, wire.Message) { abortConnection() }, false,
			"the connection broke"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.init = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					tt.reply(w,
						m)
				}
				s.session = ""
				c := dialStub(t, s, nil)
				id := c.call("initialize")
				m, _, err := c.Read()
				if errors.Is(err, ErrNotStreamable) != tt.older {
					t.Errorf("got %v", err)
				}
				if tt.want != "" {
					wantErrorText(t, err, tt.want)
				} else if m.ID() != id || m.Part(wire.PartError) == nil {
					t.Errorf("got %s, %v", m.Raw(), err)
				}
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					tt.reply(w,
						m)
				}
				c.call("tools/call") // does not show the transport
				if _, _, err := c.Read(); errors.Is(err, ErrNotStreamable) {
					t.Errorf("for another request: %v", err)
				}
			})
		})
	}
}
