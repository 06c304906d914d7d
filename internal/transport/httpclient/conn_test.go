package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestHTTPResponses(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}`
	const question = `{"jsonrpc":"2.0","id":0,"method":"roots/list"}`
	tests := []struct {
		name  string
		serve func(w http.ResponseWriter, m wire.Message)
		want  []string // R stands for the result
	}{
		{"JSON", func(w http.ResponseWriter, m wire.Message) { writeResult(w, m, `{"a":1}`) },
			[]string{"R"}},
		{"JSON of another media type", func(w http.ResponseWriter, m wire.Message) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, "\uFEFF"+resultOf(m, `{"a":1}`))
		}, []string{"R"}},
		{"stream", func(w http.ResponseWriter, m wire.Message) {
			writeStream(w, messageEvent(progress), messageEvent(question),
				messageEvent(resultOf(m, `{"a":1}`)))
		}, []string{progress, question, "R"}},
		{"stream that goes on", func(w http.ResponseWriter, m wire.Message) {
			writeStream(w, messageEvent(resultOf(m, `{"a":1}`)), messageEvent(progress))
		}, []string{"R", progress}},
		{"other events", func(w http.ResponseWriter, m wire.Message) {
			w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
			fmt.Fprint(w,
				"event: ping\ndata: {}\n\n: hello\n\nevent: message\n"+messageEvent(resultOf(m,
					`{"a":1}`)))
		}, []string{"R"}},
		{"JSON batch", func(w http.ResponseWriter, m wire.Message) {
			fmt.Fprint(w, "["+progress+", "+resultOf(m, `{"a":1}`)+"]")
		}, []string{progress, "R"}},
		{"batch in a stream", func(w http.ResponseWriter, m wire.Message) {
			writeStream(w, messageEvent("["+progress+","+resultOf(m, `{"a":1}`)+"]"))
		}, []string{progress, "R"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					tt.serve(w,
						m)
				}
				c := ready(t, s, nil)
				id := c.call("tools/call")
				for _, text := range tt.want {
					if text == "R" {
						text = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"a":1}}`, id)
					}
					c.want(text)
				}
			})
		})
	}
}

// The bytes of a body are returned unchanged, whatever their layout.
func TestHTTPKeepsTheBytesOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pretty = "{\n  \"result\" : {\"n\": 1.50, \"s\":\"\\u00e9\"},\n  \"id\":101, \"jsonrpc\":\"2.0\"\n}\n"
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			fmt.Fprint(w,
				pretty)
		}
		c := ready(t, s, nil)
		c.call("tools/call")
		c.want(pretty)
	})
}

func TestFRAME_14_DataOfSeveralLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, "\uFEFFid: 1\r\ndata: {\"jsonrpc\":\"2.0\",\r\n",
				": ping\r\nfoo: bar\r\n",
				"data: \"id\":"+string(m.ID())+",\r\n", "data: \"result\":{}}\r\n\r\n")
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		if m := c.read(); m.ID() != id || m.OneLine().Kind() != wire.Response {
			t.Errorf("got %s", m.Raw())
		}
	})
}

func TestHTTPSendsItsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := ready(t, s, func(o *Options) {
			o.Headers = map[string]string{"authorization": "Bearer secret", "Accept": "nonsense"}
		})
		c.call("ping")
		c.read()
		synctest.Wait()
		c.Close()
		if n := len(s.received); n != 5 {
			t.Fatalf("%d HTTP requests, want initialize, initialized, ping, GET, DELETE", n)
		}
		for _, a := range s.received {
			both, session, revision := "application/json, text/event-stream", "session-1",
				"2025-06-18"
			switch {
			case a.verb == "GET":
				both = "text/event-stream"
			case a.verb == "DELETE":
				both = "nonsense"
			case a.method == "initialize":
				session, revision = "", ""
			}
			if a.verb == "POST" && a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: Content-Type %q", a.method, a.header.Get("Content-Type"))
			}
			want := map[string]string{
				"Accept": both, "Authorization": "Bearer secret", "User-Agent": "mcp-gateway",
				"Cookie":         "",
				"Mcp-Session-Id": session, "Mcp-Protocol-Version": revision,
				"Accept-Encoding": "identity",
			}
			for name, value := range want {
				if got := a.header.Get(name); got != value {
					t.Errorf("%s %s: %s is %q, want %q", a.verb, a.method, name, got, value)
				}
			}
			if a.host != "stub.test" {
				t.Errorf("Host is %s", a.host)
			}
		}
	})
}

// A JSON-RPC error is the response whatever the HTTP status is, with and without an id.
func TestHTTPReadsErrorsOnAnyStatus(t *testing.T) {
	for _, status := range []int{200, 400, 401, 403, 404, 405, 422, 429, 500, 502, 503} {
		for _, id := range []string{`"id":101,`, `"id":null,`, ""} {
			t.Run(fmt.Sprint(status, id), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t)
					s.session = "" // 404 has another meaning in a session
					s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
						w.WriteHeader(status)
						fmt.Fprintf(w,
							`{"jsonrpc":"2.0",%s"error":{"code":-32000,"message":"no","data":[1]}}`,
							id)
					}
					c := ready(t, s, nil)
					c.call("tools/call")
					c.want(
						`{"jsonrpc":"2.0","id":101,"error":{"code":-32000,"message":"no","data":[1]}}`)
				})
			})
		}
	}
}

func TestHTTPReplacesInvalidUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeResult(w, m, `"ok"`)
		}
		c := ready(t, s, nil)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"a%sb"}`, m.ID(), "\xff\xfe")
		}
		c.call("tools/call")
		c.want(`{"jsonrpc":"2.0","id":101,"result":"a` + "\uFFFD" + `b"}`)
		c.call("tools/call")
		c.want(`{"jsonrpc":"2.0","id":102,"result":"a` + "\uFFFD" + `b"}`)
		if n := strings.Count(s.log.String(), "replacing invalid UTF-8"); n != 1 {
			t.Errorf("%d warnings, want 1: %s", n, s.log.String())
		}
	})
}

// A notification or response needs no response body, and a body is not a response to any request.
func TestHTTPNotificationsNeedNoResponseBody(t *testing.T) {
	replies := map[string]func(http.ResponseWriter){
		"202":    func(w http.ResponseWriter) { w.WriteHeader(202) },
		"204":    func(w http.ResponseWriter) { w.WriteHeader(204) },
		"200":    func(w http.ResponseWriter) {},
		"text":   func(w http.ResponseWriter) { fmt.Fprint(w, "Accepted") },
		"object": func(w http.ResponseWriter) { fmt.Fprint(w, "{}") },
		"result": func(w http.ResponseWriter) {
			fmt.Fprint(w,
				`{"jsonrpc":"2.0","id":null,"result":{}}`)
		},
		"refusal": func(w http.ResponseWriter) { http.Error(w, "no", 400) },
		"error": func(w http.ResponseWriter) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}`)
		},
		"broken": func(http.ResponseWriter) { abortConnection() },
		"stream": func(w http.ResponseWriter) { writeStream(w, "id: 1\n", "data:\n\n") },
	}
	for name, reply := range replies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.note = func(w http.ResponseWriter, _ *http.Request, m wire.Message) { reply(w) }
				c := ready(t, s, nil)
				c.write(`{"jsonrpc":"2.0","id":"q","result":{}}`)
				id := c.call("tools/list")
				if m := c.read(); m.ID() != id {
					t.Errorf("got %s", m.Raw())
				}
				synctest.Wait()
				if warned := strings.Contains(s.log.String(),
					"WARN"); warned != (name == "refusal" || name == "error" || name == "broken") {
					t.Errorf("the log is %q", s.log.String())
				}
			})
		})
	}
}

func TestHTTPWriteIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
			blockUntilAborted(
				r)
		}
		c := ready(t, s, nil)
		synctest.Wait()
		var err error
		n := 0
		for ; err == nil && n <= maxOpen; n++ {
			err = c.Write(wire.NewRequest(wire.ID(fmt.Sprint(n+1000)), "tools/call", nil), "")
		}
		if !errors.Is(err, errTooManyMessages) || n != maxOpen+1 {
			t.Errorf("after %d requests: %v", n, err)
		}
		synctest.Wait()
		c.cancel("1000") // is always accepted, and reduces the load
		time.Sleep(time.Second)
		synctest.Wait()
		if err := c.Write(wire.NewRequest("9", "tools/call", nil), ""); err != nil {
			t.Errorf("after a cancellation: %v", err)
		}
	})
}

func TestHTTPWriteBoundsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.note = func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
			blockUntilAborted(
				r)
		}
		c := dialStub(t, s, nil)
		few := wire.NewNotification("x", nil)
		conn := c.Conn.(*streamable)
		conn.pendingBytes = 2*maxPendingBytes - 1 // simulates that number of bytes being sent
		if err := c.Write(few, ""); err != nil {
			t.Error(err)
		}
		if err := c.Write(few, ""); !errors.Is(err, errTooManyMessages) {
			t.Errorf("got %v", err)
		}
		if err := c.Write(wire.NewRequest("9", "tools/call", nil), ""); !errors.Is(err,
			errTooManyMessages) {
			t.Errorf("a request: %v", err)
		}
		time.Sleep(notificationTimeout) // the first notification is abandoned
		synctest.Wait()
		if err := c.Write(few, ""); err != nil {
			t.Error(err)
		}
	})
}

func TestHTTPCloseEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w)
			blockUntilAborted(
				r)
		}
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "tools/call" {
				blockUntilAborted(r)
			}
			writeStream(w, ": still at it\n")
			blockUntilAborted(r)
		}
		c := ready(t, s, nil)
		c.call("tools/call")
		c.call("resources/read")
		synctest.Wait()
		read := make(chan error)
		go func() {
			_, _, err := c.Read()
			read <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-read; err != transport.ErrClosed {
			t.Errorf("Read: %v", err)
		}
		if err := c.Write(wire.NewRequest("9", "ping", nil), ""); err != transport.ErrClosed {
			t.Errorf("Write: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
		synctest.Wait()
		if s.count("DELETE") != 1 || s.openConns() != 0 {
			t.Errorf("%d DELETEs, %d connections are open", s.count("DELETE"), s.openConns())
		}
	})
}

func TestHTTPCloseDoesNotWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.end = func(_ http.ResponseWriter, r *http.Request) { blockUntilAborted(r) }
		c := ready(t, s, nil)
		began := time.Now()
		c.Close()
		if d := time.Since(began); d != deleteTimeout {
			t.Errorf("took %v", d)
		}
	})
}

// Close is called while unread responses arrive, and while other goroutines write.
func TestHTTPCloseWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, _ *http.Request) {
			writeStream(w, messageEvent(`{"jsonrpc":"2.0","method":"x"}`))
		}
		c := ready(t, s, nil)
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				for j := range 50 {
					id := wire.ID(fmt.Sprint(1000*(i+1) + j))
					err := c.Write(wire.NewRequest(id, "tools/list", nil), "")
					if err != nil && err != transport.ErrClosed {
						t.Errorf("write: %v", err)
					}
				}
			})
		}
		for range 20 {
			c.Read()
		}
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() { c.Close() })
		}
		closers.Wait()
		writers.Wait()
	})
}

func TestHTTPCloseBeforeAnyMessage(t *testing.T) {
	for _, url := range []string{"http://stub.test/mcp", "", "ftp://user:hunter2@h/",
		"http://[::1/?key=hunter2", "x\x00"} {
		c := DialStreamable(Options{URL: url})
		if url != "http://stub.test/mcp" {
			if _, _, err := c.Read(); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: Read: %v", url, err)
			}
			if err := c.Write(wire.NewRequest("1", "ping", nil), ""); err == nil {
				t.Errorf("%q: Write succeeded", url)
			}
		}
		c.Close()
		if _, _, err := c.Read(); err != transport.ErrClosed {
			t.Errorf("%q: Read after Close: %v", url, err)
		}
	}
}

// A closed Conn leaves no goroutine or connection, regardless of how the Conn has ended.
func TestLEAK_02_NothingIsLeftOfAConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeStream(w)
			blockUntilAborted(
				r)
		}
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			http.Error(w, "session not found", http.StatusNotFound)
		}
		for range 500 {
			c := ready(t, s, nil)
			c.wantLost(c.call("tools/call"), false)
			if _, _, err := c.Read(); !errors.Is(err, ErrSessionLost) {
				t.Fatal(err)
			}
			c.Close()
			synctest.Wait()
			if n := s.openConns(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
		}
		if n := s.count("DELETE"); n != 0 {
			t.Errorf("%d DELETEs for lost sessions", n)
		}
	})
}
