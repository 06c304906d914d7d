package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

func TestSSERejectedPost(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Error(w, text, code) }
	}
	tests := []struct {
		name  string
		reply http.HandlerFunc
		want  string
		ran   bool
	}{
		{"400", status(400, "what?"), "HTTP 400 Bad Request: what?", true},
		{"401", status(401, ""), "HTTP 401 Unauthorized", false},
		{"404", status(404, "no such page"), "HTTP 404 Not Found: no such page", false},
		{"405", status(405, ""), "HTTP 405 Method Not Allowed", false},
		{"413", status(413, ""), "HTTP 413 Request Entity Too Large", false},
		{"500", status(500, "oh"), "HTTP 500 Internal Server Error: oh", true},
		{"503", status(503, "oh"), "HTTP 503 Service Unavailable: oh", true},
		{"to another origin", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.test/", http.StatusTemporaryRedirect)
		}, "HTTP 307 Temporary Redirect: redirects to http://other.test/: put that into url",
			false},
		{"truncated answer", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":101,"result":{`)
		}, "the answer is not a message", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
					tt.reply(w,
						r)
				}
				s.note = s.post
				c := s.dialSSE(t, nil)
				err := c.wantLost(c.call("tools/call"), tt.ran)
				wantErrorText(t, err, tt.want)
				if errors.Is(err, ErrNotStreamable) {
					t.Error("an error of streamable HTTP")
				}
				c.write(`{"jsonrpc":"2.0","method":"a"}`)
				synctest.Wait()
				if n := strings.Count(s.log.String(), "message not accepted"); n != 1 &&
					tt.name != "truncated answer" {
					t.Errorf("%d warnings: %s", n, s.log.String())
				}
				if n := s.count("tools/call"); n != 1 {
					t.Errorf("the server got %d calls", n)
				}
				s.post, s.note = s.acceptPost, nil // the connection stays open
				c.wantCallWorks()
			})
		})
	}
}

// If the server no longer knows the session, the connection ends, even if the stream stays open.
func TestSSESessionIsLost(t *testing.T) {
	for name, reply := range lostSessionResponses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				c := s.ready(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) { reply(w) }
				if err := c.wantLost(c.call("tools/call"), false); !errors.Is(err, ErrSessionLost) {
					t.Errorf("got %v", err)
				}
				if err := c.wantEnd(); !errors.Is(err, ErrSessionLost) {
					t.Errorf("Read ends with %v", err)
				}
			})
		})
	}
}

// Some servers send the response in the HTTP response to the POST.
func TestSSEResponsesInTheBody(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		want       []string
	}{
		{"result", `{"jsonrpc":"2.0","id":101,"result":{}}`, 200,
			[]string{`{"jsonrpc":"2.0","id":101,"result":{}}`}},
		{"with more", "[" + serverNotification(1) + `,{"jsonrpc":"2.0","id":101,"result":{}}]`, 200,
			[]string{serverNotification(1), `{"jsonrpc":"2.0","id":101,"result":{}}`}},
		{"error", `{"jsonrpc":"2.0","id":101,"error":{"code":1,"message":"no"}}`, 400,
			[]string{`{"jsonrpc":"2.0","id":101,"error":{"code":1,"message":"no"}}`}},
		{"error that names nothing",
			`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}`, 404,
			[]string{`{"jsonrpc":"2.0","id":101,"error":{"code":1,"message":"no"}}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.init = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.body)
				}
				c := s.dialSSE(t, nil)
				c.call("initialize")
				for _, text := range tt.want {
					c.want(text)
				}
				c.wantCallWorks()
			})
		})
	}
}

// A body that is not a response is ignored if the status is a success.
func TestSSEAcceptedPost(t *testing.T) {
	for name, reply := range map[string]func(http.ResponseWriter){
		"200":         func(w http.ResponseWriter) {},
		"202":         func(w http.ResponseWriter) { w.WriteHeader(202) },
		"204":         func(w http.ResponseWriter) { w.WriteHeader(204) },
		"202 at once": func(w http.ResponseWriter) { w.WriteHeader(202); w.(http.Flusher).Flush() },
		"text":        func(w http.ResponseWriter) { fmt.Fprint(w, "Accepted") },
		"object":      func(w http.ResponseWriter) { fmt.Fprint(w, `{"ok":true}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					reply(w)
					s.respond(r, m)
				}
				c := s.dialSSE(t, nil)
				c.wantCallWorks()
				c.write(`{"jsonrpc":"2.0","method":"a"}`)
				c.wantCallWorks()
				synctest.Wait()
				if text := s.log.String(); strings.Contains(text, "WARN") {
					t.Errorf("the log is %s", text)
				}
			})
		})
	}
}

// If the response arrives before the HTTP response to its POST, the HTTP response is ignored.
func TestSSEResponseOvertakesItsPost(t *testing.T) {
	for name, then := range map[string]func(http.ResponseWriter, *http.Request){
		"rejected": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"broken":   func(http.ResponseWriter, *http.Request) { abortConnection() },
		"hanging":  func(_ http.ResponseWriter, r *http.Request) { blockUntilAborted(r) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				left := make(chan time.Duration, 1)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					s.respond(r, m)
					time.Sleep(time.Millisecond) // until the response has arrived
					began := time.Now()
					defer func() { left <- time.Since(began) }()
					then(w, r)
				}
				c := s.dialSSE(t, nil)
				c.wantCallWorks()
				if d := <-left; d > lingerTimeout {
					t.Errorf("the POST went on for %v", d)
				}
				s.post = s.acceptPost
				c.wantCallWorks()
			})
		})
	}
}

func TestSSECancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		c := s.ready(t)
		aborted := make(chan bool, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "slow" {
				blockUntilAborted(r)
				aborted <- true
			}
			w.WriteHeader(202)
		}
		taken, posting := c.call("tools/call"), c.call("slow")
		synctest.Wait()
		release := make(chan bool)
		s.note = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "a" {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			w.WriteHeader(202)
		}
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		waiting := c.call("tools/list")
		synctest.Wait()
		for _, id := range []wire.ID{taken, posting, waiting} {
			c.cancel(id)
		}
		<-aborted // the POST is aborted when the cancellation was accepted
		close(release)
		synctest.Wait()
		if n := s.count("notifications/cancelled"); n != 2 || s.count("tools/list") != 0 {
			t.Errorf("%d cancellations; arrived: %s", n, s.order())
		}
		s.post = s.acceptPost
		c.wantCallWorks()
	})
}

// Accepted messages no longer count as messages being sent.
func TestSSEWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		c := s.ready(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "slow" {
				blockUntilAborted(r)
			}
			w.WriteHeader(202)
		}
		for range 10 {
			c.call("tools/call")
		}
		synctest.Wait()
		var err error
		n := 1 // one for the stream
		for ; err == nil && n <= maxOpen; n++ {
			err = c.Write(wire.NewRequest(wire.ID(fmt.Sprint(n+1000)), "slow", nil), "")
		}
		if !errors.Is(err, errTooManyMessages) || n != maxOpen+1 {
			t.Errorf("after %d requests: %v", n, err)
		}
	})
}

func TestSSERetriesAfterRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			s.post = s.acceptPost
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		c := s.dialSSE(t, nil)
		began := time.Now()
		c.wantCallWorks()
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}
