package peer

import "mcpgateway/internal/wire"

// A ProgressRelay forwards the progress of a call after its response. It is needed for tasks ("the
// progressToken provided in the original request MUST continue to be used throughout the task's
// lifetime", tasks).
type ProgressRelay struct {
	calls   *callTable // nil if the call was not sent
	id      int64
	token   wire.ID // "" = no progress wanted
	session string
	forward func(wire.Message)
}

// maxRelays bounds the relays of one connection. The progress of further calls is dropped.
const maxRelays = 4096

// RelayProgress makes the Peer call the function forward with the progress that arrives after the
// response, until Stop is called or the connection ends. While the relay is active, SoleSession
// counts the session of the call as busy. RelayProgress must be called from OnResponse. The relay
// does not retain the Call. It is not active if the call was not sent, if the connection accepts no
// further calls, or if there are maxRelays relays. The function forward is not called if the call
// has no Token.
func (c *Call) RelayProgress(forward func(wire.Message)) *ProgressRelay {
	r := &ProgressRelay{token: c.Token, session: c.SessionID, forward: forward}
	d := c.sentVia.Load()
	if d == nil {
		return r
	}
	t := &d.peer.calls
	r.calls, r.id = t, d.id
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.sendErr != nil:
		return r
	case len(t.relays) >= maxRelays:
		t.sessions.recent.noteAbandoned(r.id, c.SessionID) // still counts for abandonedTTL
		return r
	case t.relays == nil:
		t.relays = make(map[int64]*ProgressRelay)
	}
	t.relays[r.id] = r
	t.sessions.relays.add(r.session, 1)
	return r
}

// Stop ends the relay. Calling it again does nothing.
func (r *ProgressRelay) Stop() {
	t := r.calls
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relays[r.id] == r {
		delete(t.relays, r.id)
		t.sessions.relays.add(r.session, -1)
		// the remote side may still work on the call
		t.sessions.recent.noteAbandoned(r.id, r.session)
	}
}

// relayProgress forwards progress of an answered call to its relay, if there is one.
func (t *callTable) relayProgress(id int64, m wire.Message) {
	t.mu.Lock()
	r := t.relays[id]
	t.mu.Unlock()
	if r != nil && r.token != "" {
		r.forward(m.Splice(wire.Edit{Part: wire.PartToken, Text: []byte(r.token)}))
	}
}
