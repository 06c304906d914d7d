package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// The body of an HTTP error is a JSON-RPC error only if its error is an object with an integer
// code. Every other body is shown, shortened and on one line.
func TestHTTPErrorBodies_F_HTTP_1(t *testing.T) {
	tests := []struct {
		name, kind, body string
		status           int
		want             string // text in the error; "" = a JSON-RPC response
	}{
		{"OAuth", "application/json", `{"error":"invalid_token","error_description":"x"}`, 401,
			`HTTP 401 Unauthorized: {"error":"invalid_token","error_description":"x"}`},
		{"error without a code", "application/json", `{"error":{"message":"boom"}}`, 500,
			`HTTP 500 Internal Server Error: {"error":{"message":"boom"}}`},
		{"whole response without a code", "application/json",
			`{"jsonrpc":"2.0","id":null,"error":{"message":"boom"}}`, 500,
			`HTTP 500 Internal Server Error: {"jsonrpc":"2.0","id":null,"error":{"message":"boom"}}`},
		{"own id without a code", "application/json", `{"jsonrpc":"2.0","id":101,"error":"boom"}`,
			500,
			`HTTP 500 Internal Server Error: {"jsonrpc":"2.0","id":101,"error":"boom"}`},
		{"code is text", "application/json", `{"error":{"code":"E7","message":"boom"}}`, 422,
			`HTTP 422 Unprocessable Entity: {"error":{"code":"E7","message":"boom"}}`},
		{"code has a fraction", "application/json", `{"error":{"code":1.5,"message":"boom"}}`, 422,
			"HTTP 422 Unprocessable Entity"},
		{"error is null", "application/json", `{"error":null,"detail":"why"}`, 403,
			`HTTP 403 Forbidden: {"error":null,"detail":"why"}`},
		{"array", "application/json", `[{"error":"a"},{"error":"b"}]`, 400,
			`HTTP 400 Bad Request: [{"error":"a"},{"error":"b"}]`},
		{"problem", "application/problem+json", `{"title":"no","status":403}`, 403,
			`HTTP 403 Forbidden: {"title":"no","status":403}`},
		{"title of a page", "text/html",
			"<!doctype html><html><head><TITLE>\n Just a&nbsp;moment &amp; wait</TITLE><style>b{}</style>", 403,
			"HTTP 403 Forbidden: Just a moment & wait"},
		{"text of a page", "text/html",
			"<html><!-- <p>no --><script>if(a<b){}</script><h1>Bad</h1><p>gateway", 502,
			"HTTP 502 Bad Gateway: Bad gateway"},
		{"page without text", "text/html", "<html><body><", 502, "HTTP 502 Bad Gateway"},
		{"XML", "application/xml", "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
			403, "HTTP 403 Forbidden: AccessDenied"},
		{"control characters", "text/plain", "a\x1b[31mb\u202ec\r\n\x00d\xff", 500,
			"HTTP 500 Internal Server Error: a [31mb c d"},
		{"stream", "text/event-stream", "data: {\"error\":\"invalid_token\"}\n\n", 401,
			`HTTP 401 Unauthorized: {"error":"invalid_token"}`},
		{"JSON-RPC without an id", "application/json", `{"error":{"code":-32000,"message":"m"}}`,
			500, ""},
		{"JSON-RPC", "application/json",
			`{"jsonrpc":"2.0","id":101,"error":{"code":-32000,"message":"m"}}`, 500, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					w.Header().Set("Content-Type", tt.kind)
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.body)
				}
				c := ready(t, s, nil)
				c.call("tools/call")
				if tt.want == "" {
					c.want(`{"jsonrpc":"2.0","id":101,"error":{"code":-32000,"message":"m"}}`)
					return
				}
				_, _, err := c.Read()
				if lost, ok := errors.AsType[*transport.CallLostError](err); !ok ||
					!strings.HasPrefix(lost.Error(), tt.want) ||
					strings.Contains(lost.Error(), "\x1b") {
					t.Errorf("got %v, want %s", err, tt.want)
				}
			})
		})
	}
}

func TestHTTPErrorOfInitialize_F_HTTP_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.init = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":"invalid_token","error_description":"x"}`)
		}
		c := dialStub(t, s, nil)
		wantErrorText(t, c.wantLost(c.call("initialize"), false),
			`HTTP 401 Unauthorized: {"error":"invalid_token","error_description":"x"}`)
	})
}

// Servers report an unknown session in many ways.
func TestHTTPLostSessionBodies_F_HTTP_1(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		lost   bool
	}{
		{404, `{"error":"Session not found"}`, true},
		{400, `{"error":"Session not found"}`, true},
		{400, `{"error":"Invalid or missing session ID"}`, true},
		{400, "No transport found for sessionId", true},
		{400, `{"detail":"Session does not exist"}`, true},
		{400, `{"error":{"message":"Unknown session"}}`, true},
		{410, `{"error":"Session expired"}`, true},
		{500, `{"error":"Session not found"}`, true},
		{200, `{"error":"Session not found"}`, true},
		{503, "No active SSE connection for session abc", true},
		{400, `{"error":"invalid arguments"}`, false},
		{401, `{"error":"Session not found"}`, false},
		{500, `{"error":"the session store is down"}`, false},
		{200, "a page that says session not found", false},
	} {
		t.Run(fmt.Sprint(tt.status, tt.body), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				c := ready(t, s, nil)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.body)
				}
				c.call("tools/call")
				_, _, err := c.Read()
				if errors.Is(err, ErrSessionLost) != tt.lost {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestHTTPNamesTheTargetOfARedirect_F_HTTP_6(t *testing.T) {
	for _, tt := range []struct {
		to, want string
		status   int
	}{
		{"https://stub.test/mcp?key=hunter2#f",
			"HTTP 301 Moved Permanently: redirects to https://stub.test/mcp: put that into url",
			301},
		{"https://stub.test:8443/a%20b",
			"HTTP 308 Permanent Redirect: redirects to https://stub.test:8443/a%20b: put that into url", 308},
		{"http://me:hunter2@other.test/mcp",
			"HTTP 307 Temporary Redirect: redirects to http://other.test/mcp: put that into url",
			307},
		{"/mcp/", "HTTP 302 Found: redirects to http://stub.test/mcp/: put that into url", 302},
		{"//other.test/x",
			"HTTP 307 Temporary Redirect: redirects to http://other.test/x: put that into url",
			307},
		{"http://other.test/" + strings.Repeat("x", 1000),
			strings.Repeat("x", 100) + "…: put that into url", 307},
		{"/mcp",
			"HTTP 307 Temporary Redirect: redirects in a loop, back to http://stub.test/mcp: check the server", 307},
		{"/mcp#again",
			"HTTP 308 Permanent Redirect: redirects in a loop, back to http://stub.test/mcp: check the server", 308},
		{"http://stub.test/mcp",
			"HTTP 302 Found: redirects in a loop, back to http://stub.test/mcp: check the server",
			302},
		{"/mcp?a=1", "HTTP 302 Found: redirects to http://stub.test/mcp: put that into url", 302},
		{"javascript:alert(1)", "HTTP 302 Found", 302},
		{"", "HTTP 304 Not Modified", 304},
	} {
		t.Run(tt.to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				redirect := func(w http.ResponseWriter) {
					if tt.to != "" {
						w.Header().Set("Location", tt.to)
					}
					w.WriteHeader(tt.status)
				}
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
					redirect(
						w)
				}
				c := ready(t, s, nil)
				err := c.wantLost(c.call("tools/call"), false)
				wantErrorText(t, err, tt.want)
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("a secret is shown: %v", err)
				}
				if tt.to == "" || tt.status != 307 {
					return
				}
				s.get = func(w http.ResponseWriter, _ *http.Request) { redirect(w) }
				old := dialStubBy(DialHTTPSSE, t, s, nil)
				old.call("initialize")
				_, _, err = old.Read()
				wantErrorText(t, err, tt.want)
			})
		})
	}
}

// An HTTP+SSE server that also opens its stream for a POST is recognised by the first event.
func TestHTTPEndpointEvent_F_HTTP_8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		gone := make(chan bool, 2)
		open := func(w http.ResponseWriter, r *http.Request) {
			writeStream(w, ": hello\n\n", "event: endpoint\ndata: /messages?sessionId=1\n\n")
			blockUntilAborted(r)
			gone <- true
		}
		s.init = func(w http.ResponseWriter, r *http.Request, _ wire.Message) { open(w, r) }
		s.post = s.init
		c := dialStub(t, s, nil)
		err := c.wantLost(c.call("initialize"), false)
		wantErrorText(t, err, "set transport to sse or auto")
		if !errors.Is(err, ErrNotStreamable) {
			t.Errorf("got %v", err)
		}
		<-gone // at once, not only when the Conn is closed
		modern := dialStubBy(DialStateless, t, s, nil)
		if err := modern.wantLost(modern.call("server/discover"), false); !errors.Is(err,
			ErrNotStateless) {
			t.Errorf("got %v", err)
		}
		<-gone
	})
}

// After initialize such an event is ignored.
func TestHTTPEndpointEventLater_F_HTTP_8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, "event: endpoint\ndata: /x\n\n", messageEvent(resultOf(m, "{}")))
		}
		c := ready(t, s, nil)
		c.call("tools/call")
		c.want(`{"jsonrpc":"2.0","id":101,"result":{}}`)
	})
}

// A request that was written waits for its response on the stream, even if its POST breaks.
func TestSSEBrokenPost_F_HTTP_9(t *testing.T) {
	for name, reply := range map[string]http.HandlerFunc{
		"without a response": func(http.ResponseWriter, *http.Request) { abortConnection() },
		"after 202": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(202)
			fmt.Fprint(w, "Acc")
			w.(http.Flusher).Flush()
			abortConnection()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
					reply(w,
						r)
				}
				c := s.ready(t)
				id := c.call("tools/call")
				synctest.Wait()
				if n := s.count("tools/call"); n != 1 {
					t.Errorf("the server got %d calls", n)
				}
				s.events <- messageEvent(
					fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"late":1}}`, id))
				c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"late":1}}`, id))
			})
		})
	}
}

// When the stream ends, the requests that wait for it are lost.
func TestSSEBrokenPostAndStream_F_HTTP_9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.post = func(http.ResponseWriter, *http.Request, wire.Message) { abortConnection() }
		c := s.ready(t)
		c.call("tools/call")
		synctest.Wait()
		close(s.events)
		wantErrorText(t, c.wantEnd(), "the stream of events ended")
	})
}

// An event of type error is the response if it contains an error with the id of the request or
// without an id.
func TestHTTPErrorEvents_F_HTTP_10(t *testing.T) {
	const failure = `"error":{"code":-32001,"message":"m"}}`
	for _, tt := range []struct{ name, data, want, lost string }{
		{"own", `{"jsonrpc":"2.0","id":101,` + failure, `{"jsonrpc":"2.0","id":101,` + failure, ""},
		{"own id as null", `{"jsonrpc":"2.0","id":null,` + failure,
			`{"jsonrpc":"2.0","id":101,` + failure, ""},
		{"another's", `{"jsonrpc":"2.0","id":7,` + failure, "",
			`but with an error: {"jsonrpc":"2.0","id":7,`},
		{"text", `out of cheese`, "",
			"the stream ended without the answer, but with an error: out of cheese"},
		{"object", `{"error":"invalid_token"}`, "", `but with an error: {"error":"invalid_token"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
					writeStream(w, "event: error\n"+messageEvent(tt.data))
				}
				c := ready(t, s, nil)
				c.call("tools/call")
				if tt.want != "" {
					c.want(tt.want)
				} else {
					wantErrorText(t, c.wantLost("101", true), tt.lost)
				}
			})
		})
	}
}

func TestSSEErrorEvent_F_HTTP_10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { w.WriteHeader(202) }
		c := s.ready(t)
		id := c.call("tools/call")
		s.events <- "event: error\n" + messageEvent("not a message")
		s.events <- "event: error\n" +
			messageEvent(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"m"}}`,
				id))
		c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"m"}}`, id))
	})
}

// With status 404, a response with the id of a call belongs to that call. A response without an id,
// or with an error that mentions the session, reports a lost session.
func TestHTTP404OfOneCall_F_HTTP_10(t *testing.T) {
	for _, tt := range []struct {
		id, text string
		code     int
		lost     bool
	}{
		{"101", "no such tool", -32602, false},
		{"101", "no such tool", -32000, false},
		{"101", "Session not found", -32000, true},
		{"101", "gone", -32001, true},
		{"null", "no such tool", -32602, true},
	} {
		t.Run(fmt.Sprint(tt.id, tt.text, tt.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				c := ready(t, s, nil)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
					rpcError(w, 404, tt.id, tt.code, tt.text)
				}
				c.call("tools/call")
				m, _, err := c.Read()
				if lost := errors.Is(err, ErrSessionLost); lost != tt.lost || !lost &&
					m.ID() != "101" {
					t.Errorf("got %s, %v", m.Raw(), err)
				}
			})
		})
	}
}
