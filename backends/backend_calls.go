package backends

import (
	"fmt"

	"mcpgateway/backends/internal/limiter"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

// submit sends a call to the backend, when it has got its slot. Requests about subscriptions need
// no slot.
func (b *Backend) submit(q *queuedCall) {
	q.b = b
	switch {
	case q.subscription == nil:
		b.limiter.submit(q)
	case q.subscription.ends:
		b.unsubscribe(q)
	default:
		b.send(q)
	}
}

// send sends a call that has its slot over the connection of its session.
func (b *Backend) send(q *queuedCall) { b.conn(q.request.Session, false).send(q) }

// reroute sends a call over the connection of the same backend that the call belongs on (redirect
// sends a call to another backend). The call stays on that connection, unless it is the shared
// connection and not ready: then the capabilities for its next handshake are unknown.
func (b *Backend) reroute(q *queuedCall) {
	bc := b.conn(q.request.Session, false)
	q.staysOnConn = bc.isPerSession() || bc.current() != nil
	bc.send(q)
}

// redirect sends a call for a draining backend to its successor, which is another backend (reroute
// changes only the connection). If there is no successor, the call fails.
// It loses the slot that it has at the draining backend.
func (b *Backend) redirect(q *queuedCall) {
	granted := b.limiter.release(q)
	q.slot, q.isRetry, q.staysOnConn = new(limiter.Slot), false, false
	if next, err := b.successor(q.request.Session); err == nil {
		next.submit(q)
	} else {
		q.fail(err)
	}
	b.limiter.slots.SendQueued(granted) // the limiter may still have calls
}

// unsubscribe ends a subscription on the connection that has it.
func (b *Backend) unsubscribe(q *queuedCall) {
	uri, session := q.subscription.uri, q.request.Session
	bc := b.conn(session, true)
	if bc != b.shared && b.shared.hasSubscription(uri, session) {
		// the subscribe was queued on the shared connection before the session had its own
		// connection, where the session may have subscribed again
		if bc != nil && bc.hasSubscription(uri, session) {
			b.shared.unsubscribe(b.newCall(q.request))
		} else {
			bc = b.shared
		}
	}
	if bc == nil {
		bc = b.conn(session, false)
	}
	bc.unsubscribe(q)
}

// newCall returns a call of the gateway itself, whose response does not matter.
func (b *Backend) newCall(r contract.BackendRequest) *queuedCall {
	q := newCall(b.set, b.cfg.Name, r, ignoreOutcome{})
	q.b = b
	return q
}

func (b *Backend) continuationError(m wire.Message) error {
	why := "inputResponses without requestState: retry with the requestState of the result that requested the input"
	if !wire.IsNull(m.Part(wire.PartRequestState)) {
		why = "requestState: it is no longer valid: start the call again"
	}
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: backend %s: %s", b.cfg.Name, why)
}

// permits returns nil if a request may be sent to the backend now: [contract.ErrForbidden] if the
// filters of the backend or the profiles of the request's session do not permit it, and a
// *[contract.NotApprovedError] if it calls a tool that is not approved, or by a name that is
// approved for another backend.
func (b *Backend) permits(r *contract.BackendRequest) error {
	var a *audience // nil = no profiles
	if who := b.set.sessions.restrictedPrincipal(r.Session); who != nil {
		a = b.set.publisher.audiences.of(who)
	}
	if r.Builtin {
		return b.login.permitsTool(a)
	}
	if !b.filters.permits(r) || a != nil && !a.permits(b, r) {
		return contract.ErrForbidden
	}
	if !callsTool(r) {
		return nil
	}
	if b.lists.pins.blocks() {
		if err := b.lists.pins.permits(ownName(r)); err != nil {
			return err
		}
	}
	if owners := b.set.publisher.approved.owners.Load(); owners != nil {
		name := r.Message.Name()
		if owner := owners.Owner(name, b.cfg.Name); owner != "" &&
			(a == nil || a.hasBackend(owner)) {
			return &contract.NotApprovedError{Reason: fmt.Sprintf(
				"the name %s is approved for backend %s: run gateway approve %s",
				text.Truncate(name, shownToolName), owner, b.cfg.Name)}
		}
	}
	return nil
}
