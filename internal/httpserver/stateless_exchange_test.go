package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A single error response has the HTTP status of its code, regardless of the client's preference.
func TestResponseStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		fail := func(code int, first bool) {
			r := <-h.heldRequests
			if first {
				r.Notify(progressNotification(1))
			}
			r.Fail(&wire.Error{Code: code, Message: "no", Data: []byte(`{"code":1,"x":[1.0]}`)})
		}
		for code, status := range map[int]int{
			protocol.CodeHeaderMismatch: 400, protocol.CodeMissingCapability: 400,
			protocol.CodeUnsupportedVersion: 400,
			wire.CodeMethodNotFound:         404, wire.CodeInvalidParams: 200,
			wire.CodeInternalError: 200, 0: 200, -32002: 200, 7: 200,
		} {
			answer := fmt.Sprintf(
				`{"jsonrpc":"2.0","id":"a","error":{"code":%d,"message":"no","data":{"code":1,"x":[1.0]}}}`, code)
			go fail(code, false)
			h.want(statelessRequest(`"a"`, "hold", ""), status, answer)
			if status != 200 {
				go fail(code, false)
				res := h.want(statelessRequest(`"a"`, "hold", "").
					withHeader("Accept", "text/event-stream, application/json"), status, answer)
				if kind := res.Header.Get("Content-Type"); kind != "application/json" {
					t.Errorf("%d is sent as %s", code, kind)
				}
			}
			go fail(code, true)
			s := h.openStream(statelessRequest(`"a"`, "hold", ""))
			s.want("", string(progressNotification(1).Raw()))
			s.want("", answer)
			s.wantEnd()
		}
	})
}

// A stateless stream has no event ids, because it cannot be resumed. It is opened by a message
// before the response, by a client that prefers events, or by a late response. Until then the HTTP
// header is not sent, because the response may be an error.
func TestStatelessStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		go func() {
			r := <-h.heldRequests
			handler := <-h.handlers
			// This message is related to no request, but there is only one stream.
			h.write(handler, logMessage(1), "")
			r.Notify(progressNotification(1))
			// This is a response to an id that the client did not send.
			h.write(handler, wire.NewResult("2", []byte("{}")), "2")
			err := handler.Write(wire.NewRequest("9", "roots/list", nil), r.RemoteID())
			if err == nil {
				t.Error("a request to the client was accepted")
			}
			r.Reply([]byte("[\r\n1,\n2]"))
			if err := handler.Write(logMessage(2), r.RemoteID()); !errors.Is(err,
				transport.ErrClosed) {
				t.Errorf("after the response: %v", err)
			}
		}()
		s := h.openStream(statelessRequest("1", "hold", ""))
		if got := s.res.Header; got.Get("Cache-Control") != "no-cache" ||
			got.Get("X-Accel-Buffering") != "no" || got.Get("Mcp-Session-Id") != "" {
			t.Errorf("headers: %v", got)
		}
		s.want("", string(logMessage(1).Raw()))
		s.want("", string(progressNotification(1).Raw()))
		s.want("", resultJSON("1", "[  1, 2]"))
		s.wantEnd()

		s = h.openStream(statelessRequest("1", "echo", "").
			withHeader("Accept", "text/event-stream, application/json"))
		s.want("", resultJSON("1", "{"+meta(modernRevision)+"}"))
		s.wantEnd()

		go func() {
			r := <-h.heldRequests
			time.Sleep(keepAliveInterval - time.Millisecond)
			r.Fail(wire.Errorf(protocol.CodeMissingCapability, "no"))
		}()
		h.wantError(statelessRequest("1", "hold", ""), 400, "1", protocol.CodeMissingCapability)

		go func() {
			r := <-h.heldRequests
			time.Sleep(3*keepAliveInterval - time.Second)
			r.Fail(wire.Errorf(protocol.CodeMissingCapability, "no"))
		}()
		began := time.Now()
		s = h.openStream(statelessRequest("1", "hold", ""))
		if took := time.Since(began); took != keepAliveInterval {
			t.Errorf("the header arrived after %v", took)
		}
		if ev, err := s.next(); err != nil || ev.comment != "keep-alive" ||
			time.Since(began) != 2*keepAliveInterval {
			t.Errorf("%+v, %v", ev, err)
		}
		if ev, err := s.next(); err != nil || !strings.Contains(ev.data, "-32021") {
			t.Errorf("%+v, %v", ev, err)
		}
		s.wantEnd()
	})
}

// A receivedRequest is a request that was passed to ServeRequest.
type receivedRequest struct {
	transport.Writer
	cancelled chan bool // capacity 1
}

func receiveRequests(n int) (
	func(SessionInfo, wire.Message, transport.Writer) func(), chan receivedRequest,
) {
	all := make(chan receivedRequest, n)
	return func(_ SessionInfo, _ wire.Message, out transport.Writer) func() {
		g := receivedRequest{out, make(chan bool, 1)}
		all <- g
		return func() { g.cancelled <- true }
	}, all
}

// Disconnecting cancels the request at once, whether the client waits for the header or for
// events, or has unread messages.
func TestDisconnectCancelsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve, all := receiveRequests(1)
		h := newHarness(t, func(o *Options) { o.ServeRequest = serve })
		for name, before := range map[string]func(g receivedRequest, s func() *eventReader){
			"headers": func(receivedRequest, func() *eventReader) {},
			"events": func(g receivedRequest, s func() *eventReader) {
				_ = g.Write(logMessage(1), "")
				s().want("", string(logMessage(1).Raw()))
			},
			"keep-alives": func(g receivedRequest, s func() *eventReader) {
				if ev, err := s().next(); err != nil || ev.comment == "" {
					t.Errorf("%+v %v", ev, err)
				}
			},
			"unread": func(g receivedRequest, s func() *eventReader) {
				s()
				_ = g.Write(largeNotification(1, 100_000), "")
				synctest.Wait()
			},
		} {
			ctx, hangUp := context.WithCancel(t.Context())
			got := make(chan *http.Response, 1)
			go func() {
				res, _ := h.client.Do(h.newRequest(statelessRequest("1", "x", "")).WithContext(ctx))
				got <- res
			}()
			g := <-all
			before(g, func() *eventReader { return h.readEvents(<-got) })
			began := time.Now()
			hangUp()
			if <-g.cancelled; time.Since(began) > 0 {
				t.Errorf("%s: cancelled after %v", name, time.Since(began))
			}
			synctest.Wait()
			if err := g.Write(logMessage(1), ""); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("%s: write: %v", name, err)
			}
			if n := h.server.stateless.limit.counter.Total(); n != 0 {
				t.Errorf("%s: %d stateless exchanges", name, n)
			}
		}
	})
}

// Disconnecting also cancels the request over a real network.
func TestDisconnectOverNetwork(t *testing.T) {
	serve, all := receiveRequests(1)
	srv := New(Options{ServeRequest: serve, Loopback: true})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- srv.Run(ctx, ln) }()
	for _, begun := range []bool{false, true} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body := statelessRequest("1", "x", "").body
		fmt.Fprintf(c,
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\nContent-Length: %d\r\n\r\n%s", modernRevision, len(body), body)
		g := <-all
		if begun {
			_ = g.Write(logMessage(1), "")
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}
		c.Close()
		<-g.cancelled
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A subscription stays open for hours, sends keep-alives, and gets its result when the gateway
// shuts down.
func TestSubscriptionStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c transport.Writer
		h := newHarness(t, func(o *Options) {
			o.ServeRequest = func(_ SessionInfo, m wire.Message, out transport.Writer) func() {
				c = out
				_ = out.Write(wire.NewNotification("notifications/subscriptions/acknowledged", nil),
					m.ID())
				return func() { t.Error("the subscription was cancelled") }
			}
			o.ShutDownRequests = func() {
				time.Sleep(100 * time.Millisecond)
				_ = c.Write(wire.NewResult(`"L"`, []byte(`{"resultType":"complete"}`)), `"L"`)
			}
		})
		s := h.openStream(statelessRequest(`"L"`, "subscriptions/listen", ""))
		if ev, err := s.next(); err != nil || !strings.Contains(ev.data, "acknowledged") {
			t.Fatalf("%+v %v", ev, err)
		}
		end := time.Now().Add(5 * time.Hour)
		for time.Now().Before(end) {
			last := time.Now()
			if ev, err := s.next(); err != nil || ev.comment != "keep-alive" ||
				time.Since(last) > keepAliveInterval {
				t.Fatalf("%+v %v after %v", ev, err, time.Since(last))
			}
		}
		if err := c.Write(logMessage(1), ""); err != nil {
			t.Error(err)
		}
		s.want("", string(logMessage(1).Raw()))
		stopped := make(chan bool)
		go func() {
			h.stop()
			close(stopped)
		}()
		synctest.Wait()
		res, body := h.do(statelessRequest("2", "subscriptions/listen", ""))
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" ||
			!strings.Contains(body, `"id":2`) {
			t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
		}
		s.want("", resultJSON(`"L"`, `{"resultType":"complete"}`))
		s.wantEnd()
		<-stopped
	})
}

// A request without a response gets an error.
func TestStatelessRequestWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		go func() {
			<-h.heldRequests
			(<-h.handlers).Writer.Close()
		}()
		h.want(statelessRequest("1", "hold", ""), 200,
			string(wire.NewErrorResponse("1", errUnanswered).Raw()))
		go func() {
			(<-h.heldRequests).Notify(progressNotification(1))
			(<-h.handlers).Writer.Close()
		}()
		s := h.openStream(statelessRequest("1", "hold", ""))
		s.want("", string(progressNotification(1).Raw()))
		s.want("", string(wire.NewErrorResponse("1", errUnanswered).Raw()))
		s.wantEnd()

		silent := newHarness(t, func(o *Options) {
			o.ServeRequest = func(_ SessionInfo, _ wire.Message, out transport.Writer) func() {
				_ = out.Close()
				return func() {}
			}
		})
		silent.want(statelessRequest("1", "x", ""), 200,
			string(wire.NewErrorResponse("1", errUnanswered).Raw()))

		// The Server shuts down before there is a response, without a grace period.
		started := make(chan bool)
		go func() {
			h.want(statelessRequest("1", "hold", ""), 200,
				string(wire.NewErrorResponse("1", errUnanswered).Raw()))
			close(started)
		}()
		<-h.heldRequests
		h.stop()
		<-started
	})
}

// Answered and cancelled requests leave no state behind.
func TestStatelessRequestsLeakNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			o.ServeRequest = func(_ SessionInfo, m wire.Message, out transport.Writer) func() {
				return servePeer(testTool{}, m, out, func() {})
			}
		})
		h.want(statelessRequest("1", "initialize", ""), 200, "*")
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		var heap [3]int64
		for round := range heap {
			for i := range 3000 {
				switch i % 3 {
				case 0:
					h.want(statelessRequest("1", "initialize", ""), 200, "*")
				case 1:
					h.want(statelessRequest("1", "tools/call", `"name":"x"`), 200, "*")
				default:
					h.want(statelessRequest("1", "what", ""), 404, "*")
				}
			}
			synctest.Wait()
			if n := runtime.NumGoroutine() - goroutines; n > 2 ||
				h.server.stateless.limit.counter.Total() != 0 {
				t.Errorf("%d goroutines and %d stateless exchanges are left", n,
					h.server.stateless.limit.counter.Total())
			}
			heap[round] = mcptest.LiveHeap()
		}
		if n := heap[2] - heap[0]; n > 1<<20 {
			t.Errorf("%d bytes are leaked by 6000 requests", n)
		}
	})
}

// If the exchange ends while ServeRequest is running, because out is closed or ServeRequest panics,
// the client gets an error. The request is cancelled once ServeRequest has returned.
func TestExchangeEndsDuringServeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		cancelled := 0
		h := newHarness(t, func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			o.ServeRequest = func(_ SessionInfo, m wire.Message, out transport.Writer) func() {
				if m.Method() == "panic" {
					panic("a defect")
				}
				_ = out.Close()
				if err := out.Write(wire.NewResult(m.ID(), []byte("{}")), ""); err == nil {
					t.Error("a response after Close was accepted")
				}
				return func() { cancelled++ }
			}
		})
		for i, method := range []string{"close", "panic"} {
			h.want(statelessRequest("1", method, ""), 200,
				string(wire.NewErrorResponse("1", errUnanswered).Raw()))
			synctest.Wait()
			if n := h.server.stateless.limit.counter.Total(); n != 0 || cancelled != 1 {
				t.Errorf("%s: %d exchanges are open, %d requests were cancelled", method, n,
					cancelled)
			}
			if got := strings.Count(log.String(), "request closed after a panic"); got != i {
				t.Errorf("%s: the log has\n%s", method, log.String())
			}
		}
	})
}

// Requests of a removed token are cancelled, and so are requests without a response at the end of
// the shutdown. Answered requests are not cancelled.
func TestRequestsWithoutResponseAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		out := make(map[string]transport.Writer)
		h := newHarness(t, func(o *Options) {
			o.Tokens = bearerTokens("a", "b")
			o.ServeRequest = func(_ SessionInfo, m wire.Message, w transport.Writer) func() {
				mu.Lock()
				defer mu.Unlock()
				out[string(m.ID())] = w
				return func() {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, "cancelled "+string(m.ID()))
				}
			}
			o.ShutDownRequests = func() {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				_ = out["2"].Write(wire.NewResult("2", []byte("{}")), "2")
				got = append(got, "shut down")
			}
		})
		var all sync.WaitGroup
		for id, token := range map[string]string{"1": "a", "2": "b", "3": "b"} {
			want := string(wire.NewErrorResponse(wire.ID(id), errUnanswered).Raw())
			if id == "2" {
				want = resultJSON("2", "{}")
			}
			all.Go(func() {
				h.want(statelessRequest(id, "x", "").
					withHeader("Authorization", "Bearer "+token), 200, want)
			})
		}
		synctest.Wait()
		h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("b")})
		synctest.Wait()
		h.stop()
		all.Wait()
		if text := strings.Join(got, ", "); text != "cancelled 1, shut down, cancelled 3" {
			t.Errorf("got %s", text)
		}
	})
}
