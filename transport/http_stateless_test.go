package transport

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

	"mcpgateway/wire"
)

func dialStateless(t *testing.T, s *stub, change func(*HTTPOptions)) *client {
	return dialStubBy(DialStateless, t, s, change)
}

// idle checks that Read has nothing more to say, now and within an hour.
func (c *client) idle() {
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

// onlyPosts checks that the server has seen neither GET nor DELETE, and that
// nothing was said of a session.
func (s *stub) onlyPosts(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if a.verb != "POST" || a.header.Get("Mcp-Session-Id") != "" || a.header.Get("Last-Event-Id") != "" {
			t.Errorf("%s %s %v", a.verb, a.method, a.header)
		}
	}
}

func TestStatelessSendsItsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Mcp-Session-Id", "session-1") // is nothing to a client of this era
			answer(w, m, `{"protocolVersion":"2025-06-18"}`)
		}
		var mu sync.Mutex
		var described []string
		c := dialStateless(t, s, func(o *HTTPOptions) {
			o.Via = "us"
			o.Headers = map[string]string{"authorization": "Bearer secret", "Accept": "nonsense"}
			o.Describe = func(m wire.Message) map[string]string {
				mu.Lock()
				defer mu.Unlock()
				described = append(described, m.Method())
				return map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": m.Method(), "mcp-param-Empty": ""}
			}
		})
		for _, method := range []string{"server/discover", "tools/call"} {
			c.call(method)
			c.read()
		}
		c.write(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		synctest.Wait()
		c.Close()
		if got := s.order(); got != "server/discover tools/call notifications/x" || strings.Join(described, " ") != got {
			t.Errorf("arrived: %s, described: %s", got, described)
		}
		for _, a := range s.asked {
			want := map[string]string{
				"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Authorization": "Bearer secret",
				"User-Agent": "mcp-gateway", "Via": "1.1 us", "Cookie": "", "Accept-Encoding": "",
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
		s.onlyPosts(t)
	})
}

// Not even initialize makes a session of it.
func TestStatelessKnowsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) { stream(w); hang(r) }
		c := dialStateless(t, s, nil)
		c.shake()
		c.call("tools/list")
		c.read()
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { http.Error(w, "Session not found", 404) }
		if err := c.lost(c.call("tools/list"), false); errors.Is(err, ErrSessionLost) || errors.Is(err, ErrNotStateless) {
			t.Errorf("got %v", err)
		}
		s.post = nil
		c.call("tools/list")
		c.read()
		c.Close()
		s.onlyPosts(t)
	})
}

func TestStatelessAnswers(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}`
	tests := map[string]func(http.ResponseWriter, wire.Message){
		"JSON":   func(w http.ResponseWriter, m wire.Message) { answer(w, m, "{}") },
		"stream": func(w http.ResponseWriter, m wire.Message) { stream(w, sse(progress), sse(result(m, "{}"))) },
		"stream with keep-alives": func(w http.ResponseWriter, m wire.Message) {
			stream(w, ":\n\n", sse(progress), ":\n\n:\n\n", sse(result(m, "{}")))
		},
		"stream with ids": func(w http.ResponseWriter, m wire.Message) {
			stream(w, "id: 1\n"+sse(progress), "id: 2\n"+sse(result(m, "{}")))
		},
	}
	for name, serve := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) { serve(w, m) }
				c := dialStateless(t, s, nil)
				id := c.call("tools/call")
				if name != "JSON" {
					m, about, err := c.Read()
					if string(m.Raw()) != progress || about != id || err != nil {
						t.Errorf("got %s about %s, %v", m.Raw(), about, err)
					}
				}
				c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
				c.idle()
				s.onlyPosts(t)
			})
		})
	}
}

// A stream without a verdict of ours: headers after two hours, a word now and
// then, and an orderly end.
func TestStatelessListensForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const change = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			if m.Method() != "subscriptions/listen" {
				answer(w, m, "{}")
				return
			}
			time.Sleep(2 * time.Hour)
			stream(w, ":\n\n")
			time.Sleep(20 * time.Hour)
			stream(w, sse(change))
			time.Sleep(200 * time.Hour)
			stream(w, sse(result(m, "{}")))
		}
		c := dialStateless(t, s, nil)
		began := time.Now()
		id := c.call("subscriptions/listen")
		c.call("tools/list") // is not held up
		c.want(`{"jsonrpc":"2.0","id":102,"result":{}}`)
		if m, about, err := c.Read(); string(m.Raw()) != change || about != id || err != nil {
			t.Errorf("got %s about %s, %v", m.Raw(), about, err)
		}
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
		if d := time.Since(began); d != 222*time.Hour {
			t.Errorf("took %v", d)
		}
		if s.count("subscriptions/listen") != 1 {
			t.Error("it was sent again")
		}
	})
}

// Closing the stream is the cancellation: nothing else is sent.
func TestStatelessCancelClosesTheStream(t *testing.T) {
	tests := map[string]func(w http.ResponseWriter, m wire.Message){
		"before the headers": func(http.ResponseWriter, wire.Message) {},
		"in the stream":      func(w http.ResponseWriter, _ wire.Message) { stream(w, ":\n\n") },
		"in the body": func(w http.ResponseWriter, m wire.Message) {
			fmt.Fprint(w, result(m, "{}")[:10])
			w.(http.Flusher).Flush()
		},
	}
	for name, begin := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				closed := make(chan time.Time, 1)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if m.Method() != "tools/call" {
						answer(w, m, "{}")
						return
					}
					begin(w, m)
					hang(r)
					closed <- time.Now()
				}
				c := dialStateless(t, s, nil)
				id := c.call("tools/call")
				synctest.Wait()
				began := time.Now()
				c.cancel(id)
				if d := (<-closed).Sub(began); d != 0 {
					t.Errorf("the server sees it after %v", d)
				}
				c.cancel(id) // once more does nothing
				c.call("tools/list")
				c.want(`{"jsonrpc":"2.0","id":102,"result":{}}`)
				c.idle()
				if got := s.order(); got != "tools/call tools/list" {
					t.Errorf("arrived: %s", got)
				}
				s.onlyPosts(t)
			})
		})
	}
}

// What was cancelled before it was sent is never sent: behind a notification that
// hangs, or while there is no connection.
func TestStatelessCancelOfWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.note = func(_ http.ResponseWriter, r *http.Request, _ wire.Message) { hang(r) }
		s.refusing = 1000
		c := dialStateless(t, s, nil)
		c.cancel(c.call("tools/call")) // at some point on its way
		id := c.call("tools/call")
		synctest.Wait()
		c.cancel(id) // between two tries
		synctest.Wait()
		s.refusing = 0
		c.write(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		c.cancel(c.call("tools/call"))
		c.cancel("77") // nobody's
		c.idle()
		if n := s.count("tools/call"); n != 0 {
			t.Errorf("%d calls were sent", n)
		}
		if s.count("notifications/cancelled") != 0 {
			t.Error("a cancellation was sent")
		}
	})
}

// A cancellation that comes when the answer is there changes nothing.
func TestStatelessCancelComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := dialStateless(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		c.cancel(id)
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
		c.cancel(id)
		c.idle()
		if got := s.order(); got != "tools/call" {
			t.Errorf("arrived: %s", got)
		}
	})
}

func TestStatelessNotifications(t *testing.T) {
	for _, status := range []int{200, 202, 204, 400} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.note = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { w.WriteHeader(status) }
				c := dialStateless(t, s, nil)
				c.write(`{"jsonrpc":"2.0","method":"notifications/x"}`)
				c.call("tools/list")
				c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
				if got := s.order(); got != "notifications/x tools/list" {
					t.Errorf("arrived: %s", got)
				}
				synctest.Wait() // what is sent behind the notification does not wait for the log
				if warned := strings.Contains(s.log.String(), "WARN"); warned != (status == 400) {
					t.Errorf("the log is %q", s.log.String())
				}
			})
		})
	}
}

// A caller that answers a question mistakes the era.
func TestStatelessRefusesResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := dialStateless(t, s, nil)
		for _, m := range []wire.Message{
			wire.NewResult("1", []byte("{}")),
			wire.NewBatch([]wire.Message{wire.NewRequest("1", "tools/list", nil)}),
		} {
			if err := c.Write(m, ""); err == nil || errors.Is(err, ErrFull) || errors.Is(err, ErrClosed) {
				t.Errorf("%s: got %v", m.Raw(), err)
			}
		}
		c.idle()
		if s.count("POST") != 0 {
			t.Errorf("arrived: %s", s.order())
		}
	})
}

// A JSON-RPC response is the answer whatever the status, and whether or not an
// error says to what.
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
							text := `{"jsonrpc":"2.0",` + id + `"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`
							if kind == eventStream {
								text = sse(text)
							}
							fmt.Fprint(w, text)
						}
						c := dialStateless(t, s, nil)
						c.call("server/discover")
						c.want(`{"jsonrpc":"2.0","id":101,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`)
						c.idle()
					})
				})
			}
		}
	}
}

// What a server answers to server/discover tells whether the revisions with
// sessions are worth a try.
func TestNotStateless(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter, wire.Message) {
		return func(w http.ResponseWriter, _ wire.Message) { http.Error(w, body, code) }
	}
	tests := []struct {
		name  string
		reply func(http.ResponseWriter, wire.Message)
		older bool
		want  string // of the error; "" if there is an answer
	}{
		{"400", status(400, "Missing session"), true, "HTTP 400 Bad Request: Missing session"},
		{"404", status(404, "<pre>Cannot POST /sse</pre>"), true, "HTTP 404 Not Found: <pre>Cannot POST /sse</pre>"},
		{"405", status(405, ""), true, "HTTP 405 Method Not Allowed"},
		{"400 that repeats a secret", status(400, "who is hunter2?"), true, "HTTP 400 Bad Request: who is ***?"},
		{"404 with other JSON", status(404, `{"detail":"Not Found"}`), true, `HTTP 404 Not Found: {"detail":"Not Found"}`},
		{"404 with a stream", func(w http.ResponseWriter, _ wire.Message) {
			w.Header().Set("Content-Type", eventStream)
			w.WriteHeader(404)
		}, true, "HTTP 404 Not Found"},
		{"400 with another's error", func(w http.ResponseWriter, _ wire.Message) {
			rpcError(w, 400, `"server-error"`, -32600, "Bad Request: Missing session ID") // the Python SDK of that era
		}, true, "HTTP 400 Bad Request"},
		{"400 with the request's result", func(w http.ResponseWriter, m wire.Message) {
			w.WriteHeader(400)
			fmt.Fprint(w, result(m, "{}"))
		}, false, ""},
		{"400 with the request's error", func(w http.ResponseWriter, m wire.Message) {
			rpcError(w, 400, string(m.ID()), -32600, "no")
		}, false, ""},
		{"400 with an error that names nothing", func(w http.ResponseWriter, _ wire.Message) {
			rpcError(w, 400, "null", -32000, "Bad Request: Server not initialized") // the TypeScript SDK of that era
		}, false, ""},
		{"401", status(401, "who are you"), false, "HTTP 401 Unauthorized: who are you"},
		{"403", status(403, ""), false, "HTTP 403 Forbidden"},
		{"406", status(406, ""), false, "HTTP 406 Not Acceptable"},
		{"415", status(415, ""), false, "HTTP 415 Unsupported Media Type"},
		{"429", status(429, ""), false, "HTTP 429 Too Many Requests"},
		{"500", status(500, "oh"), false, "HTTP 500 Internal Server Error: oh"},
		{"502", status(502, "oh"), false, "HTTP 502 Bad Gateway: oh"},
		{"a page", status(200, "<html>"), false, "HTTP 200 OK: <html>"},
		{"nothing", status(202, ""), false, "HTTP 202 Accepted"},
		{"connection broken", func(http.ResponseWriter, wire.Message) { hangUp() }, false, "the connection broke"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) { tt.reply(w, m) }
				c := dialStateless(t, s, func(o *HTTPOptions) { o.Headers = map[string]string{"X-Api-Key": "hunter2"} })
				id := c.call("server/discover")
				m, err := c.outcome()
				if errors.Is(err, ErrNotStateless) != tt.older {
					t.Errorf("got %v", err)
				}
				if lost := new(Lost); errors.As(err, &lost) && lost.ID != id {
					t.Errorf("%s is lost", lost.ID)
				}
				if tt.want != "" {
					wantText(t, err, tt.want)
				} else if m.ID() != id || err != nil {
					t.Errorf("got %s, %v", m.Raw(), err)
				}
				c.call("tools/call") // is no sign of anything
				if _, err := c.outcome(); errors.Is(err, ErrNotStateless) {
					t.Errorf("for another request: %v", err)
				}
			})
		})
	}
}

// outcome reads what came of the request that was called last.
func (c *client) outcome() (wire.Message, error) {
	for {
		m, _, err := c.Read()
		if err != nil || string(m.ID()) == fmt.Sprint(c.next) {
			return m, err
		}
	}
}

// There is no way back to a stream that ended, whatever its events look like.
func TestStatelessLost(t *testing.T) {
	long := string(wire.Quote(strings.Repeat("x", 1<<20)))
	tests := []struct {
		name  string
		serve func(http.ResponseWriter, *http.Request, wire.Message)
		want  string
		ran   bool
	}{
		{"stream ended", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			stream(w, ":\n\n")
		}, "the stream ended without the answer: EOF", true},
		{"stream with ids ended", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			stream(w, "retry: 1\nid: 1\ndata:\n\n", "id: 2\n\n")
		}, "the stream ended without the answer: EOF", true},
		{"stream with ids broken", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			stream(w, "id: 1\n\n", "data: "+result(m, `{}`)+"\n")
			hangUp()
		}, "the stream ended without the answer: unexpected EOF", true},
		{"connection broken", func(http.ResponseWriter, *http.Request, wire.Message) { hangUp() },
			"the connection broke before the answer: EOF", true},
		{"202 for a request", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			w.WriteHeader(202)
		}, "HTTP 202 Accepted", true},
		{"403", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			http.Error(w, "no", http.StatusForbidden)
		},
			"HTTP 403 Forbidden: no", false},
		{"500", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			http.Error(w, "oh", http.StatusInternalServerError)
		},
			"HTTP 500 Internal Server Error: oh", true},
		{"too long", func(w http.ResponseWriter, _ *http.Request, m wire.Message) { answer(w, m, long) },
			"the answer is longer than limits.message, 1048576 bytes", true},
		{"too long, length unknown", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.(http.Flusher).Flush()
			answer(w, m, long)
		}, "the answer is longer than limits.message, 1048576 bytes", true},
		{"too long an event", func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			stream(w, sse(result(m, long)))
			hang(r)
		}, "the answer is longer than limits.message, 1048576 bytes", true},
	}
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		for _, tt := range tests {
			t.Run(method+", "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t)
					s.post = tt.serve
					c := dialStateless(t, s, nil)
					wantText(t, c.lost(c.call(method), tt.ran), tt.want)
					s.post = nil // the conversation goes on
					c.call("tools/list")
					c.want(`{"jsonrpc":"2.0","id":102,"result":{}}`)
					c.idle()
					if n := s.count(method); n != 1 {
						t.Errorf("it was sent %d times", n)
					}
					s.onlyPosts(t)
				})
			})
		}
	}
}

// A notification that is too long does not end the stream it comes on.
func TestStatelessPassesOverALongEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			stream(w, sse(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+strings.Repeat("x", 3<<20)+`"}}`), sse(result(m, "{}")))
		}
		c := dialStateless(t, s, nil)
		c.call("subscriptions/listen")
		_, _, err := c.Read()
		if noise := new(Noise); !errors.As(err, &noise) || len(noise.Text) > maxNoise {
			t.Errorf("got %v", err)
		}
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
	})
}

// What does no harm is sent again when a gateway gives up on it.
func TestStatelessSendsAgain(t *testing.T) {
	for method, again := range map[string]bool{
		"server/discover": true, "tools/list": true, "tasks/get": true,
		"tools/call": false, "tasks/update": false, "tasks/cancel": false, "subscriptions/listen": false,
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					if s.count(m.Method()) == 1 {
						w.WriteHeader(502)
						return
					}
					answer(w, m, "{}")
				}
				c := dialStateless(t, s, nil)
				c.call(method)
				if _, err := c.outcome(); (err == nil) != again {
					t.Errorf("got %v", err)
				}
				s.dialled, s.refusing = 0, 1
				time.Sleep(10 * time.Second) // the pool is empty now
				c.call(method)               // surely was not executed
				if _, err := c.outcome(); err != nil || s.dialled != 2 {
					t.Errorf("dialled %d times: %v", s.dialled, err)
				}
			})
		})
	}
}

// Without a connection there is no verdict on the era.
func TestStatelessNobodyAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.refusing = 1000
		c := dialStateless(t, s, nil)
		err := c.lost(c.call("server/discover"), false)
		wantText(t, err, "no connection: dial tcp: connection refused")
		if errors.Is(err, ErrNotStateless) {
			t.Errorf("got %v", err)
		}
	})
}

// A subscription counts among what may be under way, and cancelling it makes room.
func TestStatelessWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) { stream(w, ":\n\n"); hang(r) }
		c := dialStateless(t, s, nil)
		var err error
		n := 0
		for ; err == nil && n <= maxOpen; n++ {
			err = c.Write(wire.NewRequest(wire.ID(fmt.Sprint(n+1000)), "subscriptions/listen", nil), "")
		}
		if !errors.Is(err, errBusy) || n != maxOpen+1 {
			t.Errorf("after %d requests: %v", n, err)
		}
		synctest.Wait()
		c.cancel("1000")
		synctest.Wait()
		if err := c.Write(wire.NewRequest("9", "tools/call", nil), ""); err != nil {
			t.Errorf("after a cancellation: %v", err)
		}
	})
}

// The bubble would not end if a goroutine were left.
func TestStatelessCloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) { stream(w); hang(r) }
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			switch m.Method() {
			case "subscriptions/listen":
				stream(w, sse(`{"jsonrpc":"2.0","method":"x"}`), ":\n\n")
			case "resources/read":
				stream(w, sse(result(m, "{}"))) // and it lingers
			}
			hang(r)
		}
		c := dialStateless(t, s, nil)
		for range 10 {
			c.call("subscriptions/listen")
			c.call("tools/call")
			c.call("resources/read")
		}
		c.read()
		synctest.Wait()
		began := time.Now()
		c.Close()
		synctest.Wait()
		if d := time.Since(began); d != 0 || s.openConns() != 0 {
			t.Errorf("took %v, %d connections are open", d, s.openConns())
		}
		if err := c.Write(wire.NewRequest("9", "tools/list", nil), ""); err != ErrClosed {
			t.Errorf("Write: %v", err)
		}
		if _, _, err := c.Read(); err != ErrClosed {
			t.Errorf("Read: %v", err)
		}
		s.onlyPosts(t)
	})
}

func TestStatelessOfNoURL(t *testing.T) {
	c := DialStateless(HTTPOptions{URL: "ftp://user:hunter2@h/"})
	if _, _, err := c.Read(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Read: %v", err)
	}
	if err := c.Write(wire.NewRequest("1", "server/discover", nil), ""); !errors.Is(err, ErrClosed) {
		t.Errorf("Write: %v", err)
	}
	c.Close()
}

// A probe leaves nothing behind that the older dialect could stumble over.
func TestStatelessProbeThenHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if r.Header.Get("Mcp-Session-Id") == "" {
				http.Error(w, "Missing session", 400)
				return
			}
			answer(w, m, "{}")
		}
		probe := dialStateless(t, s, nil)
		if err := probe.lost(probe.call("server/discover"), true); !errors.Is(err, ErrNotStateless) {
			t.Errorf("got %v", err)
		}
		probe.Close()
		c := ready(t, s, nil)
		c.call("tools/list")
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
		c.Close()
		verbs := []string{}
		for _, a := range s.asked {
			verbs = append(verbs, a.verb+" "+a.method)
		}
		if want := []string{"POST server/discover", "POST initialize", "POST notifications/initialized", "GET ", "POST tools/list", "DELETE "}; !slices.Equal(verbs, want) {
			t.Errorf("arrived: %q", verbs)
		}
	})
}
