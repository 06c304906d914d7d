package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// An exchange is the Writer of one modern request over HTTP.
type exchange chan string

func (e exchange) Write(m wire.Message, _ wire.ID) error {
	e <- string(m.Raw())
	return nil
}

func (e exchange) Close() error { return nil }

// next returns the next message; "" = none is written.
func (e exchange) next() string {
	synctest.Wait()
	select {
	case m := <-e:
		return m
	default:
		return ""
	}
}

// serveRequest passes a modern request to the gateway, as the HTTP server does.
func (h *harness) serveRequest(request string) (e exchange, cancel func()) {
	h.t.Helper()
	m, err := wire.Parse([]byte(request))
	if err != nil {
		h.t.Fatal(err)
	}
	e = make(exchange, 10)
	return e, h.gateway.ServeRequest("log-id", nil, m, e)
}

// openRequests starts a gateway with a backend that has the tool slow.
func openRequests(t *testing.T) (h *harness, gh *mcptest.Peer) {
	h = newHarness(t, settings{drain: time.Second}, "gh")
	e, _ := h.serveRequest(modernRequest("0", "tools/list", "", "{}"))
	gh = h.nextProcess("gh")
	gh.ServeStartup("slow")
	if got := e.next(); !strings.Contains(got, `"slow"`) {
		t.Fatalf("tools/list: got %s", got)
	}
	return h, gh
}

// At shutdown a subscription ends with its response at once, and calls have a grace period. A call
// that is still open then gets an error and is cancelled at the backend. Later requests are
// rejected.
func TestServeRequest_ShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, gh := openRequests(t)
		listen, _ := h.serveRequest(listenFor("1", `{"toolsListChanged":true}`))
		if got := listen.next(); !strings.Contains(got, "acknowledged") {
			t.Errorf("subscription: got %s", got)
		}
		call := modernRequest("1", "tools/call", `"name":"slow",`, "{}") // the same id
		fast, _ := h.serveRequest(call)
		gh1 := gh.WantRequest("tools/call")
		slow, _ := h.serveRequest(call)
		gh2 := gh.WantRequest("tools/call")

		began := time.Now()
		done := make(chan time.Duration)
		go func() {
			h.gateway.ShutDownRequests()
			done <- time.Since(began)
		}()
		if got := listen.next(); !strings.Contains(got, `"result":{`) {
			t.Errorf("subscription: got %s", got)
		}
		late, _ := h.serveRequest(call)
		if got := late.next(); !strings.Contains(got, "the request did not run") {
			t.Errorf("late request: got %s", got)
		}
		gh.SendResult(gh1.ID(), "{}")
		if got := fast.next(); !strings.Contains(got, `"result":{`) {
			t.Errorf("first call: got %s", got)
		}
		if took := <-done; took != time.Second {
			t.Errorf("ShutDownRequests took %v", took)
		}
		if got := slow.next(); !strings.Contains(got, "The gateway was stopped; outcome unknown") {
			t.Errorf("second call: got %s", got)
		}
		if m := gh.NextMessage(); m.Method() != "notifications/cancelled" ||
			m.RequestID() != gh2.ID() {
			t.Errorf("backend: got %s", m.Raw())
		}
		var reasons []string
		for _, record := range h.auditRecords() {
			_, reason, _ := strings.Cut(record, "outcome=")
			reasons = append(reasons, strings.Fields(reason)[0])
		}
		if got := strings.Join(reasons, " "); got != "rejected ok cancelled" {
			t.Errorf("the audit log has the outcomes %s", got)
		}
	})
}

// EndGracePeriods ends the grace period of requests over HTTP.
func TestServeRequest_EndGracePeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, gh := openRequests(t)
		call, _ := h.serveRequest(modernRequest("1", "tools/call", `"name":"slow",`, "{}"))
		gh.WantRequest("tools/call")
		if h.gateway.EndGracePeriods() {
			t.Error("a grace period had begun")
		}
		began := time.Now()
		h.gateway.ShutDownRequests()
		if took := time.Since(began); took != 0 {
			t.Errorf("ShutDownRequests took %v", took)
		}
		if got := call.next(); !strings.Contains(got, "The gateway was stopped") {
			t.Errorf("call: got %s", got)
		}
	})
}

// A disconnected client's call is cancelled at the backend, and its other requests end.
func TestServeRequest_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, gh := openRequests(t)
		call, cancelCall := h.serveRequest(modernRequest("1", "tools/call", `"name":"slow",`, "{}"))
		m := gh.WantRequest("tools/call")
		listen, cancelListen := h.serveRequest(listenFor("2", `{"toolsListChanged":true}`))
		listen.next()
		cancelCall()
		cancelCall()
		cancelListen()
		if got := gh.NextMessage(); got.Method() != "notifications/cancelled" ||
			got.RequestID() != m.ID() {
			t.Errorf("backend: got %s", got.Raw())
		}
		gh.SendResult(m.ID(), "{}")
		if got := call.next() + listen.next(); got != "" {
			t.Errorf("a cancelled request got %s", got)
		}
		began := time.Now()
		h.gateway.ShutDownRequests()
		if took := time.Since(began); took != 0 {
			t.Errorf("ShutDownRequests waits %v for cancelled requests", took)
		}
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], `reason="the client is gone"`) ||
			!strings.Contains(records[0], "session=S") {
			t.Errorf("the audit log has %q", records)
		}
	})
}

// A panic while a request is served ends the request, so that it does not delay the shutdown.
func TestServeRequest_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, gh := openRequests(t)
		m, _ := wire.Parse([]byte(modernRequest("1", "server/discover", "", "{}")))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			h.gateway.ServeRequest("log-id", nil, m, nil)
		}()
		began := time.Now()
		h.gateway.ShutDownRequests()
		if took := time.Since(began); took != 0 {
			t.Errorf("ShutDownRequests waits %v for the request", took)
		}
		gh.WantNothing()
	})
}
