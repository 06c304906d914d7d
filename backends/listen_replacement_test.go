package backends_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A session subscribes to a URI of the current listen while a listen without this URI is being
// opened. It is subscribed when a listen has the URI again.
func TestListen_SubscribeDuringReplacement(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			h.subscribe("one", "a", "x:old", true)
			b.acceptListen([]string{"x:old"})
			b.WantNotification("notifications/cancelled")
			h.subscribe("one", "a", "x:old", false).wantResult(t)
			time.Sleep(time.Second)
			h.subscribe("one", "a", "x:new", true)
			id := b.takeListen([]string{"x:new"})
			two := h.subscribe("two", "a", "x:old", true)
			two.want(t, "")
			b.acknowledge(id, []string{"x:new"})
			b.WantNotification("notifications/cancelled")
			b.acceptListen([]string{"x:new", "x:old"})
			b.WantNotification("notifications/cancelled")
			two.wantResult(t)
		})
}

// The same on stdio, while the listen is replaced because it has unused URIs.
func TestListen_SubscribeDuringRemovalOfURIs(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			b := h.startModernServer(t)
			first := b.acceptListen(nil)
			b.serveLists("t")
			h.subscribe("one", "a", "x:old", true)
			b.WantNotification("notifications/cancelled")
			b.SendResult(first, `{"resultType":"complete"}`)
			second := b.acceptListen([]string{"x:old"})
			b.serveLists("t")
			h.subscribe("one", "a", "x:old", false).wantResult(t)
			time.Sleep(time.Minute)
			b.WantNotification("notifications/cancelled")
			two := h.subscribe("two", "a", "x:old", true)
			two.want(t, "")
			b.SendResult(second, `{"resultType":"complete"}`)
			third := b.acceptListen(nil)
			b.serveLists("t")
			b.WantNotification("notifications/cancelled")
			b.SendResult(third, `{"resultType":"complete"}`)
			b.acceptListen([]string{"x:old"})
			b.serveLists("t")
			two.wantResult(t)
		})
}

// While a listen cannot be replaced, the current one serves the subscribes whose URIs it has.
func TestListen_SubscribeAfterFailedReplacement(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			h.subscribe("one", "a", "x:old", true)
			b.acceptListen([]string{"x:old"})
			b.WantNotification("notifications/cancelled")
			fail := func() {
				b.FailRead(&transport.CallLostError{ID: b.takeListen([]string{"x:new", "x:old"}),
					Err: errors.New("reset"), MayHaveRun: true})
				synctest.Wait()
			}
			one := h.subscribe("one", "a", "x:new", true)
			time.Sleep(time.Second)
			during := h.subscribe("two", "a", "x:old", true)
			during.want(t, "")
			fail()
			during.wantResult(t)
			fail()
			h.subscribe("two", "a", "x:old", true).wantResult(t)
			one.want(t, "")
			b.acceptListen([]string{"x:new", "x:old"})
			b.WantNotification("notifications/cancelled")
			one.wantResult(t)
		})
}

// If the server ends each listen without an acknowledgement, it refuses the subscription.
func TestListen_EndWithoutAcknowledgementIsARefusal(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			one := h.subscribe("one", "a", "x:y", true)
			b.SendResult(b.takeListen([]string{"x:y"}), `{"resultType":"complete"}`)
			one.want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: `+
				`the backend refuses the subscription: subscriptions/listen ended without an `+
				`acknowledgement"}}`)
		})
}

// A subscribe ends after its call_timeout, or else after two minutes, if no listen can be opened.
func TestListen_SubscribeTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 2 * time.Minute, 10 * time.Second: 10 * time.Second,
	} {
		c := modernBackends(perSessionBackend("a"))
		c[0].CallTimeout = timeout
		withHarness(t, backends.Options{Backends: c}, func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			one, began := h.subscribe("one", "a", "x:y", true), time.Now()
			for one.outcome() == "" && time.Since(began) < 5*time.Minute {
				time.Sleep(time.Millisecond)
				for _, line := range b.TakeAll() {
					m, _ := wire.Parse([]byte(line))
					b.FailRead(&transport.CallLostError{ID: m.ID(), Err: errors.New("reset"),
						MayHaveRun: true})
				}
			}
			one.want(t, fmt.Sprintf("it has not accepted subscriptions/listen within %v", want))
			if took := time.Since(began); took > want+time.Second {
				t.Errorf("%v: it took %v", timeout, took)
			}
			b.TakeAll()
			time.Sleep(time.Minute)
			if lines := strings.Join(b.TakeAll(), "\n"); strings.Contains(lines, "x:y") {
				t.Errorf("the URI is still wanted: %s", lines)
			}
		})
	}
}

// If a listen ends before the one that replaces it is open, changes may have been missed.
func TestListen_EndBeforeReplacement(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			first := b.acceptListen(nil)
			b.serveLists("t")
			one := h.subscribe("one", "a", "x:y", true)
			synctest.Wait()
			b.SendResult(first, `{"resultType":"complete"}`) // within uriBatchDelay
			second := b.acceptListen([]string{"x:y"})
			one.wantResult(t)
			b.serveLists("u")
			h.wantNames("u")
			h.clients.want(t, "one notified by a: notifications/resources/updated")
			h.subscribe("one", "a", "x:z", true)
			third := b.takeListen([]string{"x:y", "x:z"})
			b.SendResult(second, `{"resultType":"complete"}`) // while the third is being opened
			b.acknowledge(third, []string{"x:y", "x:z"})
			b.serveLists("v")
			h.wantNames("v")
		})
}

// A server on stdio may end a listen by notifications/cancelled. Before the acknowledgement it
// refuses the listen thereby.
func TestListen_CancelledByServer(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			end := func(id wire.ID) {
				b.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+
					`{"requestId":%s}}`, id)
			}
			first := b.acceptListen(nil)
			b.serveLists("t")
			end(first)
			second := b.acceptListen(nil)
			b.serveLists("u")
			h.wantNames("u")
			one := h.subscribe("one", "a", "x:y", true)
			b.WantNotification("notifications/cancelled")
			end(second) // the response to the gateway's cancellation
			end(b.takeListen([]string{"x:y"}))
			one.want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: `+
				`the backend refuses the subscription: subscriptions/listen ended without an `+
				`acknowledgement"}}`)
		})
}
