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

func serverSays(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"n":%d}}`, n)
}

func TestHTTPListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			stream(w, ": hello\n\n", sseEvent(serverSays(1)), sseEvent("nonsense"), sseEvent(serverSays(2)))
			hang(r)
		}
		c := dialStub(t, s, nil)
		synctest.Wait()
		if s.count("GET") != 0 {
			t.Error("GET before initialized")
		}
		c.shake()
		c.want(serverSays(1))
		_, _, err := c.Read()
		if noise := new(transport.MalformedError); !errors.As(err, &noise) {
			t.Errorf("got %v, want Noise", err)
		}
		c.want(serverSays(2))
	})
}

func TestHTTPPassesOverTooLongAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		long := sseEvent(`{"jsonrpc":"2.0","id":"q","params":"` + strings.Repeat("x", 2000) + `","method":"m"}`)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			stream(w, long, sseEvent(serverSays(1)))
			hang(r)
		}
		c := ready(t, s, func(o *Options) { o.Limit = 1000 })
		_, _, err := c.Read()
		var noise *transport.MalformedError
		if !errors.As(err, &noise) || noise.ID != `"q"` {
			t.Errorf("got %v", err)
		}
		c.want(serverSays(1))
	})
}

// HTTP-10: nor is the Conn any worse for it.
func TestPARTIAL_06_HTTP_10_GetRefusedOnceIsNeverAskedAgain(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 406, 409, 501, 200, 204, 302} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.get = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "http://elsewhere.test/")
					w.WriteHeader(status)
				}
				c := ready(t, s, nil)
				time.Sleep(time.Hour)
				if n := s.count("GET"); n != 1 {
					t.Errorf("%d GETs, want 1", n)
				}
				if n := strings.Count(s.log.String(), "no standalone stream"); n != 1 {
					t.Errorf("%d lines in the log, want 1", n)
				}
				id := c.call("tools/call")
				if m := c.read(); m.ID() != id {
					t.Errorf("got %s", m.Raw())
				}
			})
		})
	}
}

func TestHTTPListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		began := time.Now()
		var at []string
		s.get = func(w http.ResponseWriter, r *http.Request) {
			at = append(at, fmt.Sprint(time.Since(began), " ", r.Header.Get("Last-Event-ID")))
			switch len(at) {
			case 1:
				stream(w, "id: a\nretry: 5000\n"+sseEvent(serverSays(1)))
			case 2:
				stream(w, "id: b\n"+sseEvent(serverSays(2)))
				hangUp()
			case 3:
				w.WriteHeader(400) // is the place to resume that is refused?
			case 4:
				w.WriteHeader(503)
			case 5:
				w.WriteHeader(409) // it has not noticed that the stream broke
			default:
				stream(w, sseEvent(serverSays(3)))
				hang(r)
			}
		}
		c := ready(t, s, nil)
		for i := range 3 {
			c.want(serverSays(i + 1))
		}
		synctest.Wait()
		if got := strings.Join(at, ","); got != "0s ,5s a,10s b,15s ,20s ,28s " {
			t.Errorf("GETs at %s", got)
		}
	})
}

func TestHTTPListensAgainMoreAndMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		began := time.Now()
		var at []string
		s.get = func(w http.ResponseWriter, r *http.Request) {
			at = append(at, time.Since(began).String())
			switch len(at) {
			case 9:
				stream(w, sseEvent(serverSays(1)))
			case 10:
				stream(w)
				time.Sleep(time.Minute)
			case 11:
				stream(w)
				hang(r)
			default:
				stream(w)
			}
		}
		c := ready(t, s, nil)
		c.want(serverSays(1))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		want := "0s,1s,3s,7s,15s,31s,1m1s,1m31s,2m1s,2m2s,3m3s"
		if got := strings.Join(at, ","); got != want {
			t.Errorf("GETs at %s\nwant    %s", got, want)
		}
	})
}

func TestHTTPSessionIsLostOnTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, _ *http.Request) {
			if s.count("GET") == 1 {
				stream(w)
				return
			}
			http.Error(w, "session not found", 404)
		}
		c := ready(t, s, nil)
		if _, _, err := c.Read(); !errors.Is(err, ErrSessionLost) {
			t.Errorf("got %v", err)
		}
	})
}

// The server closes the stream of a long call and has the client come back for
// the answer.
func TestHTTPResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		began := time.Now()
		var call wire.Message
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			call = m
			stream(w, "id: p0\nretry: 2000\ndata:\n\n")
		}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Last-Event-ID") {
			case "p0":
				stream(w, "id: p1\n"+sseEvent(serverSays(1)))
				hangUp()
			case "p1":
				stream(w, "id: p2\n"+sseEvent(result(call, "{}")))
			default:
				w.WriteHeader(405)
			}
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		c.want(serverSays(1))
		c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id))
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("took %v", d)
		}
		if s.count("tools/call") != 1 {
			t.Error("the call was sent again")
		}
	})
}

func TestHTTPResumesInVain(t *testing.T) {
	tests := []struct {
		name string
		get  http.HandlerFunc
		want string
		gets int
	}{
		{"refused", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) }, "HTTP 405", 1},
		{"empty", func(w http.ResponseWriter, _ *http.Request) { stream(w) }, "without the answer: EOF", maxResumes},
		{"failing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, "HTTP 502", maxResumes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { stream(w, "id: 1\ndata:\n\n") }
				c := ready(t, s, nil)
				synctest.Wait()
				gets := s.count("GET")
				s.get = tt.get
				wantText(t, c.lost(c.call("tools/call"), true), tt.want)
				if n := s.count("GET") - gets; n != tt.gets {
					t.Errorf("%d GETs, want %d", n, tt.gets)
				}
			})
		})
	}
}

// The stream of a call ends after an event whose id cannot be sent back: the call ends at once.
func TestHTTPDoesNotResumeAtAnIDThatNoHeaderCanHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { stream(w, "id: 1\x7f\ndata:\n\n") }
		c := ready(t, s, nil)
		began := time.Now()
		wantText(t, c.lost(c.call("tools/call"), true), "without the answer: EOF")
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}

// An answer is one, whatever stream it comes on.
func TestHTTPAnswerOnAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		says := make(chan string)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			stream(w, <-says)
			hang(r)
		}
		left := make(chan time.Time, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
			stream(w)
			hang(r)
			left <- time.Now()
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		began := time.Now()
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		says <- sseEvent(answer)
		c.want(answer)
		if d := (<-left).Sub(began); d != lingerTimeout {
			t.Errorf("left after %v", d)
		}
		s.post = nil
		next := c.call("tools/call")
		if m := c.read(); m.ID() != next {
			t.Errorf("got %s", m.Raw())
		}
	})
}

// A server that leaves the stream open after the answer does not hold on to us.
func TestHTTPStreamIsGivenUpAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		left := make(chan time.Time, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			stream(w, sseEvent(result(m, "{}")), sseEvent(serverSays(1)))
			hang(r)
			left <- time.Now()
		}
		c := ready(t, s, nil)
		began := time.Now()
		c.call("tools/call")
		c.read()
		c.want(serverSays(1))
		if d := (<-left).Sub(began); d != lingerTimeout {
			t.Errorf("left after %v", d)
		}
	})
}

// Connections are used again, whatever the answers come in.
func TestHTTPUsesConnectionsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "stream" {
				stream(w, sseEvent(result(m, "{}")))
				return
			}
			answer(w, m, "{}")
		}
		c := ready(t, s, nil)
		for range 50 {
			c.call("stream")
			c.read()
			synctest.Wait()
			c.call("tools/call")
			c.read()
			synctest.Wait()
		}
		if s.dialled > 2 {
			t.Errorf("%d connections for calls one after the other", s.dialled)
		}
	})
}
