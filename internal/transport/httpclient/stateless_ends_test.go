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

// A request is cancelled by closing its stream; nothing else is sent.
func TestStatelessCancelClosesTheStream(t *testing.T) {
	tests := map[string]func(w http.ResponseWriter, m wire.Message){
		"before the headers": func(http.ResponseWriter, wire.Message) {},
		"in the stream": func(w http.ResponseWriter, _ wire.Message) {
			writeStream(w,
				":\n\n")
		},
		"in the body": func(w http.ResponseWriter, m wire.Message) {
			fmt.Fprint(w, resultOf(m, "{}")[:10])
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
						writeResult(w, m, "{}")
						return
					}
					begin(w, m)
					blockUntilAborted(r)
					closed <- time.Now()
				}
				c := dialStateless(t, s, nil)
				id := c.call("tools/call")
				synctest.Wait()
				began := time.Now()
				c.cancel(id)
				if d := (<-closed).Sub(began); d != 0 {
					t.Errorf("the server noticed it after %v", d)
				}
				c.cancel(id) // a second time has no effect
				c.call("tools/list")
				c.want(`{"jsonrpc":"2.0","id":102,"result":{}}`)
				c.wantNothing()
				if got := s.order(); got != "tools/call tools/list" {
					t.Errorf("arrived: %s", got)
				}
				s.wantOnlyPosts(t)
			})
		})
	}
}

// A request that was cancelled before it was sent is never sent: after a notification that hangs,
// or while there is no connection.
func TestStatelessCancelBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.note = func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
			blockUntilAborted(
				r)
		}
		s.refusing = 1000
		c := dialStateless(t, s, nil)
		c.cancel(c.call("tools/call")) // while it is being sent
		id := c.call("tools/call")
		synctest.Wait()
		c.cancel(id) // between two retries
		synctest.Wait()
		s.refusing = 0
		c.write(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		c.cancel(c.call("tools/call"))
		c.cancel("77") // unknown
		c.wantNothing()
		if n := s.count("tools/call"); n != 0 {
			t.Errorf("%d calls were sent", n)
		}
		if s.count("notifications/cancelled") != 0 {
			t.Error("a cancellation was sent")
		}
	})
}

// A cancellation after the response has no effect.
func TestStatelessCancelIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := dialStateless(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		c.cancel(id)
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
		c.cancel(id)
		c.wantNothing()
		if got := s.order(); got != "tools/call" {
			t.Errorf("arrived: %s", got)
		}
	})
}

// outcome reads the response or error of the latest request.
func (c *client) outcome() (wire.Message, error) {
	for {
		m, _, err := c.Read()
		if err != nil || string(m.ID()) == fmt.Sprint(c.next) {
			return m, err
		}
	}
}

// A stream that has ended is not resumed, regardless of its events.
func TestStatelessLost(t *testing.T) {
	long := string(wire.Quote(strings.Repeat("x", 1<<20)))
	tests := []struct {
		name  string
		serve func(http.ResponseWriter, *http.Request, wire.Message)
		want  string
		ran   bool
	}{
		{"stream ended", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			writeStream(w, ":\n\n")
		}, "the stream ended without the answer: EOF", true},
		{"stream with ids ended", func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			writeStream(w, "retry: 1\nid: 1\ndata:\n\n", "id: 2\n\n")
		}, "the stream ended without the answer: EOF", true},
		{"stream with ids broken", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, "id: 1\n\n", "data: "+resultOf(m, `{}`)+"\n")
			abortConnection()
		}, "the stream ended without the answer: unexpected EOF", true},
		{"connection broken",
			func(http.ResponseWriter, *http.Request, wire.Message) { abortConnection() },
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
		{"too long",
			func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
				writeResult(w, m,
					long)
			},
			"the answer is longer than limits.message (1048576 bytes)", true},
		{"too long, length unknown", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.(http.Flusher).Flush()
			writeResult(w, m, long)
		}, "the answer is longer than limits.message (1048576 bytes)", true},
		{"too long an event", func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			writeStream(w, messageEvent(resultOf(m, long)))
			blockUntilAborted(r)
		}, "the answer is longer than limits.message (1048576 bytes)", true},
	}
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		for _, tt := range tests {
			t.Run(method+", "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t)
					s.post = tt.serve
					c := dialStateless(t, s, nil)
					wantErrorText(t, c.wantLost(c.call(method), tt.ran), tt.want)
					s.post = nil // the connection stays open
					c.call("tools/list")
					c.want(`{"jsonrpc":"2.0","id":102,"result":{}}`)
					c.wantNothing()
					if n := s.count(method); n != 1 {
						t.Errorf("it was sent %d times", n)
					}
					s.wantOnlyPosts(t)
				})
			})
		}
	}
}

// Idempotent requests are retried when a proxy fails.
func TestStatelessRetries(t *testing.T) {
	for method, again := range map[string]bool{
		"server/discover": true, "tools/list": true, "tasks/get": true,
		"tools/call": false, "tasks/update": false, "tasks/cancel": false,
		"subscriptions/listen": false,
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					if s.count(m.Method()) == 1 {
						w.WriteHeader(502)
						return
					}
					writeResult(w, m, "{}")
				}
				c := dialStateless(t, s, nil)
				c.call(method)
				if _, err := c.outcome(); (err == nil) != again {
					t.Errorf("got %v", err)
				}
				s.dialled, s.refusing = 0, 1
				time.Sleep(10 * time.Second) // the pool is empty then
				// The first attempt certainly did not run, so every method is retried.
				c.call(method)
				if _, err := c.outcome(); err != nil || s.dialled != 2 {
					t.Errorf("dialled %d times: %v", s.dialled, err)
				}
			})
		})
	}
}

// Without a connection the generation is not known.
func TestStatelessNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.refusing = 1000
		c := dialStateless(t, s, nil)
		err := c.wantLost(c.call("server/discover"), false)
		wantErrorText(t, err, "no connection: dial tcp: connection refused")
		if errors.Is(err, ErrNotStateless) {
			t.Errorf("got %v", err)
		}
	})
}

// A subscription counts as a message being sent until it is cancelled.
func TestStatelessWriteIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
			writeStream(w, ":\n\n")
			blockUntilAborted(r)
		}
		c := dialStateless(t, s, nil)
		var err error
		n := 0
		for ; err == nil && n <= maxOpen; n++ {
			err = c.Write(wire.NewRequest(wire.ID(fmt.Sprint(n+1000)), "subscriptions/listen", nil),
				"")
		}
		if !errors.Is(err, errTooManyMessages) || n != maxOpen+1 {
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

// A remaining goroutine would make the test fail.
func TestStatelessCloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w)
			blockUntilAborted(
				r)
		}
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			switch m.Method() {
			case "subscriptions/listen":
				writeStream(w, messageEvent(`{"jsonrpc":"2.0","method":"x"}`), ":\n\n")
			case "resources/read":
				writeStream(w, messageEvent(resultOf(m, "{}"))) // and the stream stays open
			}
			blockUntilAborted(r)
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
		if err := c.Write(wire.NewRequest("9", "tools/list", nil), ""); err != transport.ErrClosed {
			t.Errorf("Write: %v", err)
		}
		if _, _, err := c.Read(); err != transport.ErrClosed {
			t.Errorf("Read: %v", err)
		}
		s.wantOnlyPosts(t)
	})
}
