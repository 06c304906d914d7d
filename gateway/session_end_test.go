package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A client that stops reading is disconnected, and its backend still serves other clients.
func TestMission_C_NonReadingClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		good, _ := h.connectClient()
		good.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("big")
		listTools(t, good)

		conn, paused := mcptest.NewPausedPeer(t, "deaf client")
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(context.Background(), "", nil, conn) }()
		paused.Send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}`)
		paused.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		large := string(wire.Quote(strings.Repeat("x", 1<<20)))
		n := 0
		for ; len(served) == 0 && n < 100; n++ {
			paused.Send(toolsCall(fmt.Sprint(n), "big"))
			gh.SendResult(gh.WantRequest("tools/call").ID(), large)
			synctest.Wait()
		}
		if err := <-served; !errors.Is(err, transport.ErrFull) {
			t.Errorf("Serve: %v", err)
		}
		if n > 66 {
			t.Errorf("disconnected after %d MiB", n)
		}
		paused.StartReading()
		good.Send(toolsCall("1", "big"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		good.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestPingWhileSessionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(ctx, "", nil, conn) }()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("slow")
		listTools(t, client)
		client.Send(toolsCall("1", "slow"))
		m := gh.WantRequest("tools/call")
		stop() // a signal
		synctest.Wait()
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		for i, request := range []string{toolsCall("3", "slow"), listRequest,
			`{"jsonrpc":"2.0","id":5,"method":"initialize"}`} {
			client.Send(request)
			if got := client.Next(); !strings.Contains(got,
				`"error":{"code":-32603,"message":"The gateway is ending; the request did not run"}`) {
				t.Errorf("request %d: got %s", i, got)
			}
		}
		began := time.Now()
		time.Sleep(400 * time.Millisecond)
		gh.SendResult(m.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Errorf("the session continued for %v", took-400*time.Millisecond)
		}
		if !client.Disconnected() {
			t.Error("the client was not disconnected")
		}
		if records := h.auditRecords(); len(records) != 2 {
			t.Errorf("recorded %q", records)
		}
	})
}

// After a signal, calls in flight may run for limits.drain. During this time new requests are
// rejected, and a call that ends gets its response.
func TestShutdownDrains_F_PROC_2(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // until the backend responds; 0 = never
		hurry time.Duration // until a second signal; 0 = never
		want  time.Duration
	}{
		"F-PROC-2 the call ends in time": {after: 1500 * time.Millisecond,
			want: 1500 * time.Millisecond},
		"F-PROC-2 it does not":     {want: 5 * time.Second},
		"F-PROC-2 a second signal": {hurry: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{drain: 5 * time.Second}, "gh")
				conn, client := mcptest.NewPeer(t, "client")
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- h.gateway.Serve(ctx, "", nil, conn) }()
				client.Initialize("2025-06-18")
				gh := h.nextProcess("gh")
				gh.ServeStartup("slow")
				listTools(t, client)
				client.Send(toolsCall("1", "slow"))
				m := gh.WantRequest("tools/call")
				began := time.Now()
				stop()
				synctest.Wait()
				client.Send(toolsCall("2", "slow"))
				client.Want(
					`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"The gateway is ending; the request did not run"}}`)
				switch {
				case c.after > 0:
					time.Sleep(c.after)
					gh.SendResult(m.ID(), "{}")
					client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
				case c.hurry > 0:
					time.Sleep(c.hurry)
					if !h.gateway.EndGracePeriods() {
						t.Error("no call waited")
					}
				}
				if err := <-served; err != nil {
					t.Errorf("Serve: %v", err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("the end took %v, want %v", took, c.want)
				}
				if c.after == 0 {
					client.Want(
						`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"The gateway was stopped; outcome unknown: the call may have run"}}`)
					gh.WantNotification("notifications/cancelled")
				}
				if h.gateway.EndGracePeriods() {
					t.Error("calls are awaited after the end")
				}
			})
		})
	}
}

// If the gateway shuts down while a session is closing, calls in flight may run for half a second.
func TestShutdownDuringCloseShortensGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(ctx, "", nil, conn) }()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("slow")
		listTools(t, client)
		client.Send(toolsCall("1", "slow"))
		gh.WantRequest("tools/call")
		client.CloseSend() // grace: 4 s
		synctest.Wait()
		began := time.Now()
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		client.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"The gateway was stopped; outcome unknown: the call may have run"}}`)
		gh.WantNotification("notifications/cancelled")
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], `outcome=cancelled reason="the gateway was stopped"`) {
			t.Errorf("recorded %q", records)
		}
	})
}

// At the end of the session, requests that wait for backends end. A call that was cancelled
// earlier does not wait.
func TestSessionEndFailsListsWaitingForBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{catalogWait: time.Hour, startTimeout: time.Hour,
			grace: time.Second}, "gh")
		client, served := h.connectClient()
		client.Initialize("2025-06-18")
		client.Send(listRequest)
		client.Send(toolsCall("1", "search"))
		client.Send(toolsCall("2", "search"))
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		began := time.Now()
		client.CloseSend()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the end took %v", took)
		}
		got := client.TakeAll()
		slices.Sort(got)
		want := []string{
			`{"jsonrpc":"2.0","id":"list","error":{"code":-32603,"message":"The session is ending; outcome unknown: the call may have run"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"The session is ending; outcome unknown: the call may have run"}}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		records := h.auditRecords()
		if len(records) != 2 || slices.ContainsFunc(records,
			func(r string) bool { return !strings.Contains(r, "outcome=cancelled") }) {
			t.Errorf("recorded %q", records)
		}
	})
}

// Requests that wait for notifications/initialized end when the client has closed its side.
func TestSessionEndFailsRequestsWaitingForInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{})
		client, served := h.connectClient()
		client.Send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		client.Next()
		client.Send(toolsCall("2", "search"))
		began := time.Now()
		client.CloseSend()
		client.Want(
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"The gateway is ending; the request did not run"}}`)
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], "outcome=rejected") {
			t.Errorf("recorded %q", records)
		}
	})
}

func TestServeReturnsConnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{})
		client, served := h.connectClient()
		failure := errors.New("read |0: input/output error")
		client.FailRead(failure)
		if err := <-served; !errors.Is(err, failure) {
			t.Errorf("Serve: %v", err)
		}
	})
}
