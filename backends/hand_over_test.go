package backends_test

import (
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/mcptest"
)

// startWithSubscription starts a legacy backend whose session "one" has subscribed to x:y over its
// own connection.
func (h *harness) startWithSubscription(t *testing.T) (shared, own *mcptest.Peer) {
	t.Helper()
	h.OpenSession("one", nil, false)
	p := h.nextProcess("a")
	p.SendError(p.WantRequest("server/discover").ID(), methodNotFound)
	shared = h.nextProcess("a")
	shared.ServeHandshake(loggingServer)
	h.serveLists(shared)
	sub := h.subscribe("one", "a", "x:y", true)
	own = h.nextProcess("a")
	own.ServeHandshake(loggingServer)
	respondEmpty(t, own, "resources/subscribe", "x:y")
	sub.wantResult(t)
	return shared, own
}

// The connection of a session finds that the server has become modern, and is merged into the
// shared connection, which is still up and legacy: its server gets the subscription.
func TestMergedConnection_SubscriptionAtLegacyServer(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			shared, own := h.startWithSubscription(t)
			own.Close() // the server is updated
			own = h.nextProcess("a")
			own.SendError(own.WantRequest("initialize").ID(), refusal(`"2026-07-28"`))
			h.nextProcess("a").ServeDiscover(discoverWith(changeCapabilities))
			respondEmpty(t, shared, "resources/subscribe", "x:y")
			h.clients.want(t, "one notified by a: notifications/resources/updated")
			time.Sleep(time.Hour)
			if shared.Disconnected() {
				t.Error("the shared connection ended")
			}
		})
}

// While the connection of a session is down, updates may be missed. So the session gets an update
// after the connection was merged into the shared one, as after any other reconnect.
func TestMergedConnection_ForwardsMissedUpdates(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			shared, own := h.startWithSubscription(t)
			shared.Close() // the server is updated
			p := h.nextProcess("a")
			p.SendError(p.WantRequest("initialize").ID(), refusal(`"2026-07-28"`))
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			h.clients.want(t)
			own.Close()
			h.nextProcess("a").ServeDiscover(discoverWith(changeCapabilities))
			id := b.takeListen([]string{"x:y"})
			h.clients.want(t) // the update must come after the listen
			b.acknowledge(id, []string{"x:y"})
			h.clients.want(t, "one notified by a: notifications/resources/updated")
		})
}
