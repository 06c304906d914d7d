package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// openSession begins a session over conn and passes the messages to the session as the HTTP server
// does, until conn is closed. Then it closes the returned channel, and the caller must call
// Closed.
func (h *harness) openSession(conn transport.Conn) (s *gateway.Session, closed chan struct{}) {
	return h.openSessionFor(nil, conn)
}

// openSessionFor begins a session for a named principal, as openSession does.
func (h *harness) openSessionFor(p *principal.Principal,
	conn transport.Conn) (s *gateway.Session, closed chan struct{}) {
	s, closed = h.gateway.Open("", p, gateway.StreamableHTTP, conn), make(chan struct{})
	go func() {
		defer close(closed)
		for m, _, err := conn.Read(); err == nil; m, _, err = conn.Read() {
			s.Receive(m)
		}
	}()
	return s, closed
}

// named returns the principal of a token with this name; nil if the name is "".
func named(name string) *principal.Principal {
	if name == "" {
		return nil
	}
	return principal.FromToken(principal.TokenIdentity{Name: name})
}

// sessionInCall opens a session with a call in flight and also returns the backend.
func (h *harness) sessionInCall() (conn transport.Conn, client, gh *mcptest.Peer,
	s *gateway.Session, closed chan struct{}) {
	return h.sessionInCallFor(nil)
}

// sessionInCallFor opens a session with a call in flight for a named principal, as sessionInCall
// does.
func (h *harness) sessionInCallFor(p *principal.Principal) (conn transport.Conn,
	client, gh *mcptest.Peer, s *gateway.Session, closed chan struct{}) {
	conn, client = mcptest.NewPeer(h.t, "client")
	s, closed = h.openSessionFor(p, conn)
	client.Initialize("2025-06-18", `{"roots":{}}`)
	gh = h.nextProcess("gh")
	gh.ServeStartup("slow")
	listTools(h.t, client)
	client.Send(toolsCall("1", "slow"))
	return conn, client, gh, s, closed
}

// A session that Open has begun is served like a session of Serve. When the Conn is closed, the
// calls of the session are cancelled at once, and the open requests to the client end with an
// error.
func TestOpen_EndWhenClientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		conn, client, gh, s, closed := h.sessionInCall()
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		client.Send(toolsCall("2", "slow"))
		gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		if m := client.NextMessage(); m.Method() != "roots/list" {
			t.Errorf("got %s", m.Raw())
		}
		began := time.Now()
		conn.Close()
		<-closed
		s.Closed(nil)
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		synctest.Wait()
		messages := strings.Join(gh.TakeAll(), "\n")
		if !strings.Contains(messages, `"id":"q","error":`) ||
			!strings.Contains(messages, "notifications/cancelled") {
			t.Errorf("the backend got %s", messages)
		}
		if records := h.auditRecords(); len(records) != 2 ||
			!strings.Contains(records[1], "outcome=cancelled") {
			t.Errorf("recorded %q", records)
		}
	})
}

// When the gateway shuts down, calls in flight may run for another half second, and messages are
// still delivered.
func TestOpen_Shutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		_, client, gh, s, closed := h.sessionInCall()
		first := gh.WantRequest("tools/call")
		client.Send(toolsCall("2", "slow"))
		gh.WantRequest("tools/call")
		began := time.Now()
		go s.Shutdown()
		synctest.Wait()
		client.Send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		gh.SendResult(first.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		<-closed
		s.Closed(nil)
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		client.Want(
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"The gateway was stopped; outcome unknown: the call may have run"}}`)
		gh.WantNotification("notifications/cancelled")
	})
}

// A client that does not read is disconnected, even though no goroutine reads from its connection.
func TestOpen_NonReadingClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		conn, paused := mcptest.NewPausedPeer(t, "deaf client")
		s, closed := h.openSession(conn)
		paused.Send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}`)
		paused.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		gh := h.nextProcess("gh")
		gh.ServeStartup("big")
		large := string(wire.Quote(strings.Repeat("x", 1<<20)))
		for n := 0; !isChanClosed(closed); n++ {
			if n > 66 {
				t.Fatal("the client is not disconnected")
			}
			paused.Send(toolsCall(fmt.Sprint(n), "big"))
			gh.SendResult(gh.WantRequest("tools/call").ID(), large)
			synctest.Wait()
		}
		s.Closed(nil)
		paused.StartReading()
	})
}

func isChanClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A process that several principals share exits during a call. Its stderr output may be caused by
// a call of another principal, and is not in the error. If there is only one principal, the output
// is in the error.
func TestSharedProcessStderrIsHiddenFromPrincipals(t *testing.T) {
	for principal, want := range map[string]string{
		"2": "exit 1; its last output is in the gateway's log; outcome unknown",
		"":  "exit 1; its last words: of another call; outcome unknown",
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{}, "gh")
			conn, client, gh, s, closed := h.sessionInCallFor(named(principal))
			gh.WantRequest("tools/call")
			gh.Exit("exit 1", "of another call")
			if failure := wire.ReadError(
				client.NextMessage().Part(wire.PartError)); !strings.Contains(failure.Message,
				want) {
				t.Errorf("principal %q: got %q, want %q in it", principal, failure.Message, want)
			}
			conn.Close()
			<-closed
			s.Closed(nil)
		})
	}
}

// The audit record of a call names the principal.
func TestPrincipalIsAudited(t *testing.T) {
	for _, principal := range []string{"2", ""} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{singleClient: true}, "gh")
			conn, client, gh, s, closed := h.sessionInCallFor(named(principal))
			gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
			client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			conn.Close()
			<-closed
			s.Closed(nil)
			records := h.auditRecords()
			if len(records) != 1 || strings.Contains(records[0], "principal=2") !=
				(principal == "2") || strings.Contains(records[0], "principal=\"") {
				t.Errorf("principal %q: the audit log has %q", principal, records)
			}
		})
	}
}

// Each audit record has the principal: of calls that end, and of calls that are refused before the
// session is initialized, for an unknown name, or for wrong metadata, in both generations.
func TestPrincipalIsInEveryAuditRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		connect := func() *mcptest.Peer {
			conn, client := mcptest.NewPeer(t, "client")
			go func() { _ = h.gateway.Serve(context.Background(), "", named("ann"), conn) }()
			return client
		}
		client := connect()
		client.Send(toolsCall("1", "one"))
		client.NextMessage()
		client.Initialize("2025-11-25")
		h.nextProcess("gh").ServeStartup("one")
		client.Send(toolsCall("2", "unknown"))
		client.NextMessage()
		modern := connect()
		modern.Send(modernRequest("3", "tools/call", `"name":"unknown",`, "{}"))
		modern.NextMessage()
		modern.Send(strings.Replace(modernRequest("4", "tools/call", `"name":"one",`, "{}"),
			"2026-07-28", "2099-01-01", 1))
		modern.NextMessage()
		records := h.auditRecords()
		if len(records) != 4 {
			t.Errorf("%d records", len(records))
		}
		for _, record := range records {
			if !strings.Contains(record, "principal=ann") {
				t.Errorf("no principal in %s", record)
			}
		}
	})
}

// The end of a session is logged once, with the reason unless the client ended it.
func TestDisconnectReasonIsLogged(t *testing.T) {
	for _, reason := range []error{nil, errors.New("idle for 1h0m0s")} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{singleClient: true}, "gh")
			conn, _, _, s, closed := h.sessionInCall()
			conn.Close()
			<-closed
			s.Closed(reason)
			got := h.log.Lines(`msg="client disconnected"`)
			if len(got) != 1 || strings.Contains(got[0], "err=") != (reason != nil) ||
				reason != nil && !strings.HasSuffix(got[0], `err="idle for 1h0m0s"`) {
				t.Errorf("logged %q", got)
			}
		})
	}
}

// The log names the gateway's shutdown as the reason for the end of a session.
func TestGatewayShutdownIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		conn, _, _, s, closed := h.sessionInCall()
		s.Shutdown()
		conn.Close()
		<-closed
		s.Closed(nil)
		if got := h.log.Lines(`msg="client disconnected"`,
			`err="the gateway is ending"`); len(got) != 1 {
			t.Errorf("logged %q", h.log.Lines())
		}
	})
}
