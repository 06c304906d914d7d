package backends_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/transport"
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
