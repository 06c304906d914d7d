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

func TestHTTP_02_SessionIsLost(t *testing.T) {
	for name, reply := range lostSessionResponses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if m.Method() == "slow" {
						blockUntilAborted(r)
					}
					reply(w)
				}
				c := ready(t, s, nil)
				c.call("tools/call")
				err := c.wantLost("101", false)
				if !errors.Is(err, ErrSessionLost) {
					t.Errorf("got %v", err)
				}
				_, _, err = c.Read()
				if lost := new(transport.CallLostError); errors.As(err, &lost) ||
					!errors.Is(err, ErrSessionLost) {
					t.Errorf("Read ends with %v", err)
				}
				if err := c.Write(wire.NewRequest("9", "ping", nil), ""); !errors.Is(err,
					ErrSessionLost) {
					t.Errorf("Write: %v", err)
				}
			})
		})
	}
}

func TestHTTP_02_OpenRequestsAreLostWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w)
			blockUntilAborted(
				r)
		}
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "slow" {
				blockUntilAborted(r)
			}
			w.WriteHeader(404)
		}
		c := ready(t, s, nil)
		c.call("slow")
		c.call("slow")
		synctest.Wait()
		c.call("tools/call")
		ran := map[wire.ID]bool{}
		for {
			_, _, err := c.Read()
			var lost *transport.CallLostError
			if !errors.As(err, &lost) {
				if !errors.Is(err, ErrSessionLost) {
					t.Errorf("Read ends with %v", err)
				}
				break
			}
			ran[lost.ID] = lost.MayHaveRun
		}
		if len(ran) != 3 || !ran["101"] || !ran["102"] || ran["103"] {
			t.Errorf("may have run: %v", ran)
		}
		c.Close()
		if s.count("DELETE") != 0 {
			t.Error("DELETE for a lost session")
		}
	})
}

// These responses do not report a lost session.
func TestHTTP_02_SessionIsNotLost(t *testing.T) {
	replies := map[string]func(http.ResponseWriter){
		"unknown method with 404": func(w http.ResponseWriter) {
			rpcError(w, 404, "101", -32601,
				"Method not found")
		},
		"a tool's own session": func(w http.ResponseWriter) {
			rpcError(w, 200, "101", -32000,
				"browser session not found")
		},
		"invalid params": func(w http.ResponseWriter) {
			rpcError(w, 400, "101", -32602,
				"invalid params: session_id")
		},
	}
	for name, reply := range replies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { reply(w) }
				c := ready(t, s, nil)
				c.call("tools/call")
				if m := c.read(); m.ID() != "101" {
					t.Errorf("got %s", m.Raw())
				}
			})
		})
	}
}

func TestHTTP404WithoutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.session = ""
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			http.NotFound(w,
				nil)
		}
		c := ready(t, s, nil)
		for range 2 {
			err := c.wantLost(c.call("tools/call"), false)
			wantErrorText(t, err, "HTTP 404 Not Found: 404 page not found")
		}
		c.Close()
		if s.count("DELETE") != 0 {
			t.Error("DELETE without a session")
		}
	})
}

// The response to a notification may also report a lost session.
func TestHTTPSessionIsLostWithANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.note = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { w.WriteHeader(404) }
		c := ready(t, s, nil)
		if _, _, err := c.Read(); !errors.Is(err, ErrSessionLost) {
			t.Errorf("got %v", err)
		}
	})
}

// Status 404 reports a lost session, unless the server responds to a ping in that session. Some
// servers, and routers in front of them, send 404 if the object of a request does not exist.
func TestA404InAnExistingSession_F_HTTP_13(t *testing.T) {
	const missing = "prompts/get" // always gets 404
	pong := func(w http.ResponseWriter, _ *http.Request, m wire.Message) { writeResult(w, m, "{}") }
	for name, tt := range map[string]struct {
		body string
		ping func(http.ResponseWriter, *http.Request, wire.Message)
		lost bool
	}{
		"a ping is answered": {"", pong, false},
		"with a body":        {`{"error":"no such document"}`, pong, false},
		"a ping is answered on a stream": {"",
			func(w http.ResponseWriter, r *http.Request, m wire.Message) {
				writeStream(w, messageEvent(resultOf(m, "{}")))
				blockUntilAborted(r)
			}, false},
		"the body tells of the session": {"Unknown session", pong, true},
		"a ping gets 404": {"",
			func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
				w.WriteHeader(
					404)
			}, true},
		"a ping gets an error": {"", func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			rpcError(w, 200, string(m.ID()), -32001, "no session")
		}, true},
		"a ping is not answered": {"",
			func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
				blockUntilAborted(
					r)
			}, true},
		"the connection breaks at a ping": {"",
			func(http.ResponseWriter, *http.Request, wire.Message) { abortConnection() }, true},
		"a ping is answered with an event": {"",
			func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
				writeStream(w, ": hello\n\n")
				blockUntilAborted(r)
			}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					switch m.Method() {
					case missing:
						w.WriteHeader(404)
						fmt.Fprint(w, tt.body)
					case "ping":
						tt.ping(w, r, m)
					default:
						writeResult(w, m, "{}")
					}
				}
				c := ready(t, s, nil)
				for range 3 {
					err := c.wantLost(c.call(missing), false)
					if lost := errors.Is(err, ErrSessionLost); lost != tt.lost ||
						!strings.Contains(err.Error(), "404") {
						t.Errorf("got %v", err)
					}
					if tt.lost {
						break
					}
					c.wantCallWorks()
				}
				if tt.lost {
					return
				}
				want := map[wire.ID]bool{}
				for range 20 {
					want[c.call(missing)] = true
				}
				for len(want) > 0 {
					_, _, err := c.Read()
					lost, is := errors.AsType[*transport.CallLostError](err)
					if !is || errors.Is(err, ErrSessionLost) || !want[lost.ID] {
						t.Fatalf("at the same time: %v", err)
					}
					delete(want, lost.ID)
				}
				c.wantCallWorks()
			})
		})
	}
}

// A request that is cancelled during the check of the session does not end the session.
func TestACancelledRequestThatGot404_F_HTTP_13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			switch m.Method() {
			case "prompts/get":
				w.WriteHeader(404)
			case "ping":
				blockUntilAborted(r)
			default:
				writeResult(w, m, "{}")
			}
		}
		c := ready(t, s, nil)
		id := c.call("prompts/get")
		synctest.Wait() // the ping hangs
		c.cancel(id)
		synctest.Wait()
		time.Sleep(2 * sessionCheckTimeout)
		c.wantCallWorks()
	})
}

// A lost session is noticed even if the server responds to pings without a session.
func TestPingsWithoutASession_F_HTTP_13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			if m.Method() != "ping" {
				w.WriteHeader(404)
				return
			}
			writeResult(w, m, "{}")
		}
		c := ready(t, s, nil)
		began := time.Now()
		for {
			err := c.wantLost(c.call("tools/call"), false)
			lost, late := errors.Is(err, ErrSessionLost), time.Since(began) > max404Duration
			if lost != late {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if lost {
				break
			}
			time.Sleep(7 * time.Second)
		}
	})
}
