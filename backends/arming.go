package backends

import (
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// isSubscription reports whether a request is one that the stateless era has not, for
// there is the listen.
func isSubscription(m wire.Message) bool {
	method := m.Method()
	return method == "resources/subscribe" || method == "resources/unsubscribe"
}

func subject(m wire.Message) string {
	uri, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	return wire.Unquote(uri)
}

// subscribeLocked sees to a request to subscribe, or to end that, at a backend of the
// stateless era: it is answered when the URI is listened to, at once if it is already;
// its end at once. It returns what tells the caller so, to be called without l.mu.
func (l *line) subscribeLocked(w waiting) (tell func()) {
	uri := subject(w.m)
	w.c.Modern, w.c.InterceptResponse = false, nil // it is answered by the gateway
	if w.m.Method() == "resources/unsubscribe" {
		if l.subs.remove(uri, w.c.SessionID) {
			l.pokeListening()
		}
		return func() { w.c.Handler.OnResponse(wire.NewResult("0", nothing), nil) }
	}
	switch {
	case !l.b.permits(w.m, w.c):
		l.subs.refused(uri, w.c.SessionID)
		return func() { w.c.Handler.OnResponse(wire.Message{}, peer.ErrForbidden) }
	case !l.server.has("resources", "subscribe"):
		l.subs.refused(uri, w.c.SessionID)
		return func() {
			w.c.Handler.OnResponse(wire.NewErrorResponse("0", wire.Errorf(wire.CodeMethodNotFound, "Method not found: the backend has no subscriptions")), nil)
		}
	case !l.subs.add(uri, w.c.SessionID):
		return func() {
			w.c.Handler.OnResponse(wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, "Too many subscriptions: there may be %d, of which one client has half at most", maxSubscriptions)), nil)
		}
	case l.listened != nil && slices.Contains(l.listened.uris, uri) && l.listened.hears(uri):
		return l.agreeLocked(w, uri, nil)
	}
	l.arming = append(l.arming, w)
	l.pokeListening()
	return func() {}
}

// settleLocked takes those out that wait for a URI of which it is known whether it is
// listened to, and returns what tells them.
func (l *line) settleLocked(state func(uri string) (known bool, err *wire.Error)) (tell []func()) {
	var rest []waiting
	for _, w := range l.arming {
		uri := subject(w.m)
		if !l.b.permits(w.m, w.c) { // since it began to wait
			l.subs.refused(uri, w.c.SessionID)
			tell = append(tell, func() { w.c.Handler.OnResponse(wire.Message{}, peer.ErrForbidden) })
			continue
		}
		known, err := state(uri)
		if !known {
			rest = append(rest, w)
			continue
		}
		tell = append(tell, l.agreeLocked(w, uri, err))
	}
	l.arming = rest
	return tell
}

func (l *line) agreeLocked(w waiting, uri string, err *wire.Error) func() {
	if err != nil {
		l.subs.refused(uri, w.c.SessionID)
		return func() { w.c.Handler.OnResponse(wire.NewErrorResponse("0", err), nil) }
	}
	l.subs.agreed(uri, w.c.SessionID)
	return func() { w.c.Handler.OnResponse(wire.NewResult("0", nothing), nil) }
}
