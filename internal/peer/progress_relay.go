package peer

import "mcpgateway/internal/wire"

// A ProgressRelay forwards the progress of a call after its response. It is needed for tasks ("the
// progressToken provided in the original request MUST continue to be used throughout the task's
// lifetime", tasks).
type ProgressRelay struct {
	peer    *Peer // nil if the call was not sent
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
	p := d.peer
	r.peer, r.id = p, d.id
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.sendErr != nil:
		return r
	case len(p.relays) >= maxRelays:
		p.sessions.recent.noteAbandoned(r.id, c.SessionID) // still counts for abandonedTTL
		return r
	case p.relays == nil:
		p.relays = make(map[int64]*ProgressRelay)
	}
	p.relays[r.id] = r
	p.sessions.relays.add(r.session, 1)
	return r
}

// Stop ends the relay. Calling it again does nothing.
func (r *ProgressRelay) Stop() {
	if r.peer == nil {
		return
	}
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	if r.peer.relays[r.id] == r {
		delete(r.peer.relays, r.id)
		r.peer.sessions.relays.add(r.session, -1)
		// the remote side may still work on the call
		r.peer.sessions.recent.noteAbandoned(r.id, r.session)
	}
}

// relayProgress forwards progress of an answered call to its relay, if there is one.
func (p *Peer) relayProgress(id int64, m wire.Message) {
	p.mu.Lock()
	r := p.relays[id]
	p.mu.Unlock()
	if r != nil && r.token != "" {
		r.forward(m.Splice(wire.Edit{Part: wire.PartToken, Text: []byte(r.token)}))
	}
}
