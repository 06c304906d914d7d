package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/peer"
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

// The backlog of a client is limited; a client that exceeds the limit is disconnected.
func TestStatelessBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 10000 })
		s := h.openStream(statelessRequest("1", "hold", "")) // after keepAliveInterval
		r, handler := <-h.heldRequests, <-h.handlers
		n := 0
		var err error
		for ; err == nil && n < 1000; n++ {
			err = handler.Write(logMessage(n), "")
		}
		if !errors.Is(err, transport.ErrFull) || n < 50 || n > 110 {
			t.Errorf("after %d: %v", n, err)
		}
		for i := range n - 1 {
			s.want("", string(logMessage(i).Raw()))
		}
		synctest.Wait()
		h.write(handler, logMessage(n), "") // the backlog is within the limit again
		s.want("", string(logMessage(n).Raw()))

		h.write(handler, largeNotification(1, 100_000), "")
		synctest.Wait()
		r.Notify(progressNotification(1)) // the limit is exceeded: the peer closes the Conn
		if err := <-handler.closed; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("the exchange has ended: %v", err)
		}
		time.Sleep(closeDrainTimeout + time.Second)
		if _, err := s.next(); err == nil {
			t.Error("the whole event arrived")
		}
		synctest.Wait()
		if n := h.server.stateless.limit.counter.Total(); n != 0 {
			t.Errorf("%d stateless exchanges", n)
		}
	})
}

// A subscriber that does not read is disconnected long before it has a backlog of MessageLimit.
func TestSubscriptionBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 64 << 20 })
		s := h.openStream(statelessRequest("1", methodListen, ""))
		_, handler := <-h.heldRequests, <-h.handlers
		h.write(handler, largeNotification(1, 300_000), "")
		time.Sleep(stallTimeout)
		h.write(handler, logMessage(1), "") // the client may just be slow
		time.Sleep(time.Second)
		if err := handler.Write(logMessage(2), ""); !errors.Is(err, transport.ErrFull) {
			t.Errorf("Write succeeded: %v", err)
		}
		_ = handler.Writer.Close()
		time.Sleep(closeDrainTimeout + time.Second)
		s.disconnect()
		synctest.Wait()
		if n := h.server.stateless.limit.counter.Total(); n != 0 {
			t.Errorf("%d stateless exchanges", n)
		}
	})
}

// A subscriber that reads receives everything, regardless of bursts and pauses.
func TestSubscriptionReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 64 << 20 })
		s := h.openStream(statelessRequest("1", methodListen, ""))
		_, handler := <-h.heldRequests, <-h.handlers
		for round := range 3 {
			time.Sleep(10 * time.Second)
			for n := range 2000 {
				h.write(handler, largeNotification(round*2000+n, 300), "")
			}
			for n := range 2000 {
				s.want("", string(largeNotification(round*2000+n, 300).Raw()))
			}
		}
		s.disconnect()
	})
}

// A response that is not read is dropped in the end, as an event or as JSON.
func TestStatelessResponseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		for _, first := range []bool{false, true} {
			c, err := h.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			body := statelessRequest("1", "hold", "").body
			fmt.Fprintf(c,
				"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\nContent-Length: %d\r\n\r\n%s", modernRevision, len(body), body)
			r := <-h.heldRequests
			if first {
				r.Notify(largeNotification(1, 100_000))
			}
			synctest.Wait()
			r.Reply([]byte(`"` + strings.Repeat("x", 1<<20) + `"`))
			time.Sleep(transferTimeout(2 << 20))
			synctest.Wait()
			if n, err := io.Copy(io.Discard, c); err != nil || n > 1<<20 {
				t.Errorf("%d more bytes could be read, %v", n, err)
			}
			c.Close()
			synctest.Wait()
			if n := h.server.stateless.limit.counter.Total(); n != 0 {
				t.Errorf("%d stateless exchanges", n)
			}
		}
	})
}

// The limits of requests and sessions are equal and independent.
func TestTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MaxSessions = 2 })
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { h.want(statelessRequest("1", "hold", ""), 200, resultJSON("1", "{}")) })
		}
		a, b := <-h.heldRequests, <-h.heldRequests
		res := h.wantError(statelessRequest("7", "echo", ""), 503, "7", wire.CodeInvalidRequest)
		if res.Header.Get("Retry-After") != "1" {
			t.Errorf("%v", res.Header)
		}
		// An invalid request is rejected before the limit is applied.
		h.wantError(statelessRequest("7", "echo", "").withRevision("2025-11-25"), 400, "7",
			protocol.CodeHeaderMismatch)
		for range 2 {
			h.want(testRequest{body: initializeRequest("2025-11-25")}, 200, "*")
		}
		a.Reply([]byte("{}"))
		synctest.Wait()
		h.want(statelessRequest("7", "echo", ""), 200, "*")
		b.Reply([]byte("{}"))
		all.Wait()
	})
}

// One token gets at most half of the slots, and all tokens together get at most all slots.
func TestRequestsPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.MaxSessions, o.Tokens = 4, []string{"a", "b", "c"}
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		by := func(token string, tr testRequest) testRequest {
			return tr.withHeader("Authorization", "Bearer "+token)
		}
		refused := func(token, text string) {
			t.Helper()
			res, body := h.do(by(token, statelessRequest("7", "echo", "")))
			if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" ||
				!strings.Contains(body, `"id":7,"error":{"code":-32600,"message":"`+text+`"}`) {
				t.Errorf("%s: %d %v %s", token, res.StatusCode, res.Header, body)
			}
		}
		var all sync.WaitGroup
		hold := func(token string) *peer.Request {
			all.Go(func() {
				h.want(by(token, statelessRequest("1", "hold", "")), 200, resultJSON("1", "{}"))
			})
			return <-h.heldRequests
		}
		held := []*peer.Request{hold("a"), hold("a")}
		refused("a", "Too many requests are open under this token")
		h.want(by("b", statelessRequest("7", "echo", "")), 200, "*")
		synctest.Wait() // the slot is free shortly after the response
		held = append(held, hold("b"), hold("b"))
		for range 100 {
			refused("a", "Too many requests are open")
			refused("c", "Too many requests are open")
		}
		if n := strings.Count(log.String(), "too many requests without a session"); n != 1 ||
			!strings.Contains(log.String(), "principal=1") {
			t.Errorf("the log has\n%s", log.String())
		}
		held[0].Reply([]byte("{}"))
		synctest.Wait()
		refused("b", "Too many requests are open under this token")
		h.want(by("c", statelessRequest("7", "echo", "")), 200, "*")
		synctest.Wait()
		h.want(by("a", statelessRequest("7", "echo", "")), 200, "*")
		for _, r := range held[1:] {
			r.Reply([]byte("{}"))
		}
		all.Wait()
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
			heap[round] = heapInUse()
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
			o.Tokens = []string{"a", "b"}
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
		h.server.UpdateAccess([]string{"b"}, nil, nil)
		synctest.Wait()
		h.stop()
		all.Wait()
		if text := strings.Join(got, ", "); text != "cancelled 1, shut down, cancelled 3" {
			t.Errorf("got %s", text)
		}
	})
}
