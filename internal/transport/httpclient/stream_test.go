package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func serverNotification(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"n":%d}}`, n)
}

func TestHTTPStandaloneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w, ": hello\n\n", messageEvent(serverNotification(1)),
				messageEvent("nonsense"), messageEvent(serverNotification(2)))
			blockUntilAborted(r)
		}
		c := dialStub(t, s, nil)
		synctest.Wait()
		if s.count("GET") != 0 {
			t.Error("GET before initialized")
		}
		c.handshake()
		c.want(serverNotification(1))
		_, _, err := c.Read()
		if malformed := new(transport.MalformedError); !errors.As(err, &malformed) {
			t.Errorf("got %v, want a MalformedError", err)
		}
		c.want(serverNotification(2))
	})
}

func TestHTTPSkipsOversizedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		long := messageEvent(`{"jsonrpc":"2.0","id":"q","params":"` + strings.Repeat("x", 2000) +
			`","method":"m"}`)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w, long, messageEvent(serverNotification(1)))
			blockUntilAborted(r)
		}
		c := ready(t, s, func(o *Options) { o.Limit = 1000 })
		_, _, err := c.Read()
		var malformed *transport.MalformedError
		if !errors.As(err, &malformed) || malformed.ID != `"q"` {
			t.Errorf("got %v", err)
		}
		c.want(serverNotification(1))
	})
}

// HTTP-10: the Conn works without a standalone stream.
func TestPARTIAL_06_HTTP_10_ARejectedGETIsNotRepeated(t *testing.T) {
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
				if n := strings.Count(s.log.String(), "standalone stream rejected"); n != 1 {
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

func TestHTTPReopensTheStandaloneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		began := time.Now()
		var at []string
		s.get = func(w http.ResponseWriter, r *http.Request) {
			at = append(at, fmt.Sprint(time.Since(began), " ", r.Header.Get("Last-Event-ID")))
			switch len(at) {
			case 1:
				writeStream(w, "id: a\nretry: 5000\n"+messageEvent(serverNotification(1)))
			case 2:
				writeStream(w, "id: b\n"+messageEvent(serverNotification(2)))
				abortConnection()
			case 3:
				w.WriteHeader(400) // possibly because of the id
			case 4:
				w.WriteHeader(503)
			case 5:
				w.WriteHeader(409) // the server has not noticed that the stream broke
			default:
				writeStream(w, messageEvent(serverNotification(3)))
				blockUntilAborted(r)
			}
		}
		c := ready(t, s, nil)
		for i := range 3 {
			c.want(serverNotification(i + 1))
		}
		synctest.Wait()
		if got := strings.Join(at, ","); got != "0s ,5s a,10s b,15s ,20s ,28s " {
			t.Errorf("GETs at %s", got)
		}
	})
}

func TestHTTPReopensTheStandaloneStreamWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		began := time.Now()
		var at []string
		s.get = func(w http.ResponseWriter, r *http.Request) {
			at = append(at, time.Since(began).String())
			switch len(at) {
			case 9:
				writeStream(w, messageEvent(serverNotification(1)))
			case 10:
				writeStream(w)
				time.Sleep(time.Minute)
			case 11:
				writeStream(w)
				blockUntilAborted(r)
			default:
				writeStream(w)
			}
		}
		c := ready(t, s, nil)
		c.want(serverNotification(1))
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
				writeStream(w)
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

// The server closes the stream of a long call, and the client resumes it for the response.
func TestHTTPResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		began := time.Now()
		var call wire.Message
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			call = m
			writeStream(w, "id: p0\nretry: 2000\ndata:\n\n")
		}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Last-Event-ID") {
			case "p0":
				writeStream(w, "id: p1\n"+messageEvent(serverNotification(1)))
				abortConnection()
			case "p1":
				writeStream(w, "id: p2\n"+messageEvent(resultOf(call, "{}")))
			default:
				w.WriteHeader(405)
			}
		}
		reconnects := make(map[wire.ID]int)
		c := ready(t, s, func(o *Options) { o.OnReconnect = func(id wire.ID) { reconnects[id]++ } })
		id := c.call("tools/call")
		c.want(serverNotification(1))
		c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id))
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("took %v", d)
		}
		if s.count("tools/call") != 1 {
			t.Error("the call was sent again")
		}
		if len(reconnects) != 1 || reconnects[id] != 2 {
			t.Errorf("reconnects: %v", reconnects)
		}
	})
}

// A resumable stream ends in the middle of an event, in an orderly way for HTTP: every body ends in
// this way if its connection is closed. The event has not been received, so the stream is resumed
// after the event before.
func TestHTTPResumesBeforeATruncatedEvent(t *testing.T) {
	for _, cut := range []int{1, 10, 30} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				var response string
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					response = resultOf(m, `{"content":[]}`)
					writeStream(w, "id: 1\ndata: \n\n",
						"id: 2\ndata: "+response[:len(response)-cut])
				}
				var lastIDs []string
				s.get = func(w http.ResponseWriter, r *http.Request) {
					last := r.Header.Get("Last-Event-ID")
					lastIDs = append(lastIDs, last)
					switch last {
					case "":
						http.Error(w, "", http.StatusMethodNotAllowed)
					case "1":
						writeStream(w, "id: 2\n"+messageEvent(response))
					default:
						writeStream(w, ": nothing follows\n\n")
					}
				}
				c := ready(t, s, nil)
				c.call("tools/call")
				m, _, err := c.Read()
				if err != nil || string(m.Raw()) != response {
					t.Errorf("got %s, %v; GETs with Last-Event-ID %q", m.Raw(), err, lastIDs)
				}
			})
		})
	}
}

func TestHTTPResumesAreBounded(t *testing.T) {
	tests := []struct {
		name string
		get  http.HandlerFunc
		want string
		gets int
	}{
		{"refused", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) }, "HTTP 405",
			1},
		{"empty", func(w http.ResponseWriter, _ *http.Request) { writeStream(w) },
			"without the answer: EOF", maxResumes},
		{"failing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, "HTTP 502",
			maxResumes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
					writeStream(
						w, "id: 1\ndata:\n\n")
				}
				c := ready(t, s, nil)
				synctest.Wait()
				gets := s.count("GET")
				s.get = tt.get
				wantErrorText(t, c.wantLost(c.call("tools/call"), true), tt.want)
				if n := s.count("GET") - gets; n != tt.gets {
					t.Errorf("%d GETs, want %d", n, tt.gets)
				}
			})
		})
	}
}

// The stream of a call ends after an event whose id is not valid in a header: the call fails at
// once.
func TestHTTPDoesNotResumeWithAnInvalidID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			writeStream(w,
				"id: 1\x7f\ndata:\n\n")
		}
		c := ready(t, s, nil)
		began := time.Now()
		wantErrorText(t, c.wantLost(c.call("tools/call"), true), "without the answer: EOF")
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}

// A response is accepted on any stream.
func TestHTTPResponseOnAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		events := make(chan string)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w, <-events)
			blockUntilAborted(r)
		}
		left := make(chan time.Time, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
			writeStream(w)
			blockUntilAborted(r)
			left <- time.Now()
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		began := time.Now()
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		events <- messageEvent(answer)
		c.want(answer)
		if d := (<-left).Sub(began); d != lingerTimeout {
			t.Errorf("the stream was closed after %v", d)
		}
		s.post = nil
		next := c.call("tools/call")
		if m := c.read(); m.ID() != next {
			t.Errorf("got %s", m.Raw())
		}
	})
}

// If the server leaves the stream open after the response, the client closes it.
func TestHTTPStreamIsClosedAfterTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		left := make(chan time.Time, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			writeStream(w, messageEvent(resultOf(m, "{}")), messageEvent(serverNotification(1)))
			blockUntilAborted(r)
			left <- time.Now()
		}
		c := ready(t, s, nil)
		began := time.Now()
		c.call("tools/call")
		c.read()
		c.want(serverNotification(1))
		if d := (<-left).Sub(began); d != lingerTimeout {
			t.Errorf("the stream was closed after %v", d)
		}
	})
}

// Connections are reused, regardless of the form of the responses.
func TestHTTPReusesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "stream" {
				writeStream(w, messageEvent(resultOf(m, "{}")))
				return
			}
			writeResult(w, m, "{}")
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
			t.Errorf("%d connections for consecutive calls", s.dialled)
		}
	})
}

// The last event of a resumable stream is too large, and the blank line after it is missing. It can
// never be received, so the client must not request it again and again.
func TestOversizedLastEventIsNotRequestedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		large := "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"v\":\"" +
			strings.Repeat("x", 2000) + "\"}}\n"
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			writeStream(w, "id: 1\ndata: \n\n", large)
		}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Last-Event-ID") {
			case "":
				http.Error(w, "", http.StatusMethodNotAllowed)
			case "1":
				writeStream(w, large)
			default:
				writeStream(w)
			}
		}
		c := ready(t, s, func(o *Options) { o.Limit = 1000 })
		gets := s.count("GET")
		c.call("tools/call")
		go func() {
			for range 500 {
				c.Read()
			}
		}()
		time.Sleep(10 * time.Minute)
		if n := s.count("GET") - gets; n > maxResumes+1 {
			t.Errorf("%d GETs in 10 minutes", n)
		}
		c.Close()
	})
}

// A message of a batch may be stored for long. It does not keep the other messages of the batch in
// memory.
func TestMessageOfABatchKeepsOnlyItsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		long := strings.Repeat("x", 1<<20-1000)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, messageEvent(`[{"jsonrpc":"2.0","id":`+string(m.ID())+`,"result":{}},`+
				`{"jsonrpc":"2.0","method":"long","params":{"x":"`+long+`"}}]`))
		}
		c := ready(t, s, nil)
		var stored []wire.Message
		before := mcptest.LiveHeap()
		for range 50 {
			c.call("tools/call")
			stored = append(stored, c.read())
			c.read()
		}
		time.Sleep(time.Minute)
		if kept := mcptest.LiveHeap() - before; kept > 20<<20 {
			t.Errorf("%d bytes are kept", kept)
		}
		runtime.KeepAlive(stored)
	})
}
