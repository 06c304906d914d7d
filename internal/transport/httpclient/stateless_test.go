package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func dialStateless(t *testing.T, s *stub, change func(*Options)) *client {
	return dialStubBy(DialStateless, t, s, change)
}

// wantNothing checks that Read returns nothing within an hour.
func (c *client) wantNothing() {
	c.Helper()
	read := make(chan string, 1)
	go func() {
		m, _, err := c.Read()
		read <- fmt.Sprintf("%s, %v", m.Raw(), err)
	}()
	time.Sleep(time.Hour)
	synctest.Wait()
	select {
	case got := <-read:
		c.Errorf("got %s", got)
		return
	default:
	}
	c.Close()
	if got := <-read; got != ", connection closed" {
		c.Errorf("Read ended with %s", got)
	}
}

// wantOnlyPosts checks that the server has received neither GET nor DELETE, nor headers of a
// session.
func (s *stub) wantOnlyPosts(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.received {
		if a.verb != "POST" || a.header.Get("Mcp-Session-Id") != "" ||
			a.header.Get("Last-Event-Id") != "" {
			t.Errorf("%s %s %v", a.verb, a.method, a.header)
		}
	}
}

func TestStatelessSendsItsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Mcp-Session-Id", "session-1") // is ignored by this transport
			writeResult(w, m, `{"protocolVersion":"2025-06-18"}`)
		}
		var mu sync.Mutex
		var described []string
		c := dialStateless(t, s, func(o *Options) {
			o.Via = "us"
			o.Headers = map[string]string{"authorization": "Bearer secret", "Accept": "nonsense"}
			o.RequestHeaders = func(m wire.Message) map[string]string {
				mu.Lock()
				defer mu.Unlock()
				described = append(described, m.Method())
				return map[string]string{"MCP-Protocol-Version": "2026-07-28",
					"Mcp-Method": m.Method(), "mcp-param-Empty": ""}
			}
		})
		for _, method := range []string{"server/discover", "tools/call"} {
			c.call(method)
			c.read()
		}
		c.write(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		synctest.Wait()
		c.Close()
		if got := s.order(); got != "server/discover tools/call notifications/x" ||
			strings.Join(described, " ") != got {
			t.Errorf("arrived: %s, headers for: %s", got, described)
		}
		for _, a := range s.received {
			want := map[string]string{
				"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
				"Authorization": "Bearer secret",
				"User-Agent":    "mcp-gateway", "Via": "1.1 us", "Cookie": "",
				"Accept-Encoding":      "identity",
				"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": a.method, "Mcp-Param-Empty": "",
			}
			for name, value := range want {
				if got := a.header.Get(name); got != value {
					t.Errorf("%s: %s is %q, want %q", a.method, name, got, value)
				}
			}
			if len(a.header.Values("Mcp-Param-Empty")) != 1 {
				t.Errorf("%s: an empty header was left out", a.method)
			}
		}
		s.wantOnlyPosts(t)
	})
}

// Not even initialize creates a session.
func TestStatelessIgnoresSessionIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w)
			blockUntilAborted(
				r)
		}
		c := dialStateless(t, s, nil)
		c.handshake()
		c.call("tools/list")
		c.read()
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			http.Error(w,
				"Session not found", 404)
		}
		if err := c.wantLost(c.call("tools/list"), false); errors.Is(err, ErrSessionLost) ||
			errors.Is(err, ErrNotStateless) {
			t.Errorf("got %v", err)
		}
		s.post = nil
		c.call("tools/list")
		c.read()
		c.Close()
		s.wantOnlyPosts(t)
	})
}

func TestStatelessResponses(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}`
	tests := map[string]func(http.ResponseWriter, wire.Message){
		"JSON": func(w http.ResponseWriter, m wire.Message) { writeResult(w, m, "{}") },
		"stream": func(w http.ResponseWriter, m wire.Message) {
			writeStream(w, messageEvent(progress), messageEvent(resultOf(m, "{}")))
		},
		"stream with keep-alives": func(w http.ResponseWriter, m wire.Message) {
			writeStream(w, ":\n\n", messageEvent(progress), ":\n\n:\n\n",
				messageEvent(resultOf(m, "{}")))
		},
		"stream with ids": func(w http.ResponseWriter, m wire.Message) {
			writeStream(w, "id: 1\n"+messageEvent(progress),
				"id: 2\n"+messageEvent(resultOf(m, "{}")))
		},
	}
	for name, serve := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					serve(w,
						m)
				}
				c := dialStateless(t, s, nil)
				id := c.call("tools/call")
				if name != "JSON" {
					m, about, err := c.Read()
					if string(m.Raw()) != progress || about != id || err != nil {
						t.Errorf("got %s about %s, %v", m.Raw(), about, err)
					}
				}
				c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
				c.wantNothing()
				s.wantOnlyPosts(t)
			})
		})
	}
}

// A stream may last for hours: here the headers arrive after two hours, then occasional events and
// an orderly end.
func TestStatelessLongStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const change = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			if m.Method() != "subscriptions/listen" {
				writeResult(w, m, "{}")
				return
			}
			time.Sleep(2 * time.Hour)
			writeStream(w, ":\n\n")
			time.Sleep(20 * time.Hour)
			writeStream(w, messageEvent(change))
			time.Sleep(200 * time.Hour)
			writeStream(w, messageEvent(resultOf(m, "{}")))
		}
		c := dialStateless(t, s, nil)
		began := time.Now()
		id := c.call("subscriptions/listen")
		c.call("tools/list") // is not delayed
		c.want(`{"jsonrpc":"2.0","id":102,"result":{}}`)
		if m, about, err := c.Read(); string(m.Raw()) != change || about != id || err != nil {
			t.Errorf("got %s about %s, %v", m.Raw(), about, err)
		}
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
		if d := time.Since(began); d != 222*time.Hour {
			t.Errorf("took %v", d)
		}
		if s.count("subscriptions/listen") != 1 {
			t.Error("the request was sent again")
		}
	})
}

func TestStatelessNotifications(t *testing.T) {
	for _, status := range []int{200, 202, 204, 400} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.note = func(w http.ResponseWriter, _ *http.Request,
					_ wire.Message) {
					w.WriteHeader(status)
				}
				c := dialStateless(t, s, nil)
				c.write(`{"jsonrpc":"2.0","method":"notifications/x"}`)
				c.call("tools/list")
				c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
				if got := s.order(); got != "notifications/x tools/list" {
					t.Errorf("arrived: %s", got)
				}
				synctest.Wait() // the next message does not wait for the log
				if warned := strings.Contains(s.log.String(), "WARN"); warned != (status == 400) {
					t.Errorf("the log is %q", s.log.String())
				}
			})
		})
	}
}

// A response cannot be written with this transport.
func TestStatelessRejectsResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := dialStateless(t, s, nil)
		for _, m := range []wire.Message{
			wire.NewResult("1", []byte("{}")),
			wire.NewBatch([]wire.Message{wire.NewRequest("1", "tools/list", nil)}),
		} {
			if err := c.Write(m, ""); err == nil || errors.Is(err, transport.ErrFull) ||
				errors.Is(err, transport.ErrClosed) {
				t.Errorf("%s: got %v", m.Raw(), err)
			}
		}
		c.wantNothing()
		if s.count("POST") != 0 {
			t.Errorf("arrived: %s", s.order())
		}
	})
}

// A JSON-RPC response is accepted whatever the HTTP status is, and an error also without an id.
func TestStatelessReadsErrorsOnAnyStatus(t *testing.T) {
	for _, status := range []int{200, 400, 401, 403, 404, 405, 406, 429, 500, 503} {
		for _, id := range []string{`"id":101,`, `"id":null,`, ""} {
			for _, kind := range []string{"application/json", eventStream} {
				t.Run(fmt.Sprint(status, id, kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newStub(t)
						s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
							w.Header().Set("Content-Type", kind)
							w.WriteHeader(status)
							text := `{"jsonrpc":"2.0",` + id +
								`"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`
							if kind == eventStream {
								text = messageEvent(text)
							}
							fmt.Fprint(w, text)
						}
						c := dialStateless(t, s, nil)
						c.call("server/discover")
						c.want(
							`{"jsonrpc":"2.0","id":101,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`)
						c.wantNothing()
					})
				})
			}
		}
	}
}

// The response to server/discover shows whether the server may support the revisions with sessions.
func TestNotStateless(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter, wire.Message) {
		return func(w http.ResponseWriter, _ wire.Message) { http.Error(w, body, code) }
	}
	tests := []struct {
		name  string
		reply func(http.ResponseWriter, wire.Message)
		older bool
		want  string // in the error; "" = there is a response
	}{
		{"400", status(400, "Missing session"), true, "HTTP 400 Bad Request: Missing session"},
		{"404", status(404, "<pre>Cannot POST /sse</pre>"), true,
			"HTTP 404 Not Found: Cannot POST /sse"},
		{"405", status(405, ""), true, "HTTP 405 Method Not Allowed"},
		{"400 that repeats a secret", status(400, "who is hunter2?"), true,
			"HTTP 400 Bad Request: who is ***?"},
		{"404 with other JSON", status(404, `{"detail":"Not Found"}`), true,
			`HTTP 404 Not Found: {"detail":"Not Found"}`},
		{"404 with a stream", func(w http.ResponseWriter, _ wire.Message) {
			w.Header().Set("Content-Type", eventStream)
			w.WriteHeader(404)
		}, true, "HTTP 404 Not Found"},
		{"400 with another's error", func(w http.ResponseWriter, _ wire.Message) {
			// the legacy Python SDK
			rpcError(w, 400, `"server-error"`, -32600, "Bad Request: Missing session ID")
		}, true, "HTTP 400 Bad Request"},
		{"400 with the request's result", func(w http.ResponseWriter, m wire.Message) {
			w.WriteHeader(400)
			fmt.Fprint(w, resultOf(m, "{}"))
		}, false, ""},
		{"400 with the request's error", func(w http.ResponseWriter, m wire.Message) {
			rpcError(w, 400, string(m.ID()), -32600, "no")
		}, false, ""},
		{"400 with an error that names nothing", func(w http.ResponseWriter, _ wire.Message) {
			// the legacy TypeScript SDK
			rpcError(w, 400, "null", -32000, "Bad Request: Server not initialized")
		}, false, ""},
		{"401", status(401, "who are you"), false, "HTTP 401 Unauthorized: who are you"},
		{"403", status(403, ""), false, "HTTP 403 Forbidden"},
		{"406", status(406, ""), false, "HTTP 406 Not Acceptable"},
		{"415", status(415, ""), false, "HTTP 415 Unsupported Media Type"},
		{"429", status(429, ""), false, "HTTP 429 Too Many Requests"},
		{"500", status(500, "oh"), false, "HTTP 500 Internal Server Error: oh"},
		{"502", status(502, "oh"), false, "HTTP 502 Bad Gateway: oh"},
		{"a page", status(200, "<html>"), false, "(HTTP 200 OK)"},
		{"nothing", status(202, ""), false, "HTTP 202 Accepted"},
		{"connection broken", func(http.ResponseWriter, wire.Message) { abortConnection() }, false,
			"the connection broke"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					tt.reply(w,
						m)
				}
				c := dialStateless(t, s,
					func(o *Options) { o.Headers = map[string]string{"X-Api-Key": "hunter2"} })
				id := c.call("server/discover")
				m, err := c.outcome()
				if errors.Is(err, ErrNotStateless) != tt.older {
					t.Errorf("got %v", err)
				}
				if lost := new(transport.CallLostError); errors.As(err, &lost) && lost.ID != id {
					t.Errorf("%s is lost", lost.ID)
				}
				if tt.want != "" {
					wantErrorText(t, err, tt.want)
				} else if m.ID() != id || err != nil {
					t.Errorf("got %s, %v", m.Raw(), err)
				}
				c.call("tools/call") // does not show the generation
				if _, err := c.outcome(); errors.Is(err, ErrNotStateless) {
					t.Errorf("for another request: %v", err)
				}
			})
		})
	}
}

// A notification that is too long does not end its stream.
func TestStatelessSkipsOversizedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w,
				messageEvent(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+
					strings.Repeat("x", 3<<20)+`"}}`), messageEvent(resultOf(m, "{}")))
		}
		c := dialStateless(t, s, nil)
		c.call("subscriptions/listen")
		_, _, err := c.Read()
		if malformed := new(transport.MalformedError); !errors.As(err, &malformed) ||
			len(malformed.Text) > 4<<10 {
			t.Errorf("got %v", err)
		}
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
	})
}

func TestStatelessInvalidURL(t *testing.T) {
	c := DialStateless(Options{URL: "ftp://user:hunter2@h/"})
	if _, _, err := c.Read(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Read: %v", err)
	}
	if err := c.Write(wire.NewRequest("1", "server/discover", nil), ""); !errors.Is(err,
		transport.ErrClosed) {
		t.Errorf("Write: %v", err)
	}
	c.Close()
}

// A probe has no effect on a later handshake.
func TestStatelessProbeThenHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if r.Header.Get("Mcp-Session-Id") == "" {
				http.Error(w, "Missing session", 400)
				return
			}
			writeResult(w, m, "{}")
		}
		probe := dialStateless(t, s, nil)
		if err := probe.wantLost(probe.call("server/discover"), true); !errors.Is(err,
			ErrNotStateless) {
			t.Errorf("got %v", err)
		}
		probe.Close()
		c := ready(t, s, nil)
		c.call("tools/list")
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
		c.Close()
		verbs := []string{}
		for _, a := range s.received {
			verbs = append(verbs, a.verb+" "+a.method)
		}
		if want := []string{"POST server/discover", "POST initialize",
			"POST notifications/initialized", "GET ", "POST tools/list",
			"DELETE "}; !slices.Equal(verbs, want) {
			t.Errorf("arrived: %q", verbs)
		}
	})
}
