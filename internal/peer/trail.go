package peer

import "mcpgateway/internal/wire"

// A ProgressRelay is what is left of a call that was answered though the far side goes on
// with it, as with a task ("the progressToken provided in the original request MUST
// continue to be used throughout the task's lifetime", tasks).
type ProgressRelay struct {
	peer    *Peer
	id      int64
	token   wire.ID // "" = nobody wants progress
	session string
	forward func(wire.Message)
}

// maxRelays bounds those of one conversation. Progress of what is beyond is dropped.
const maxRelays = 4096

// RelayProgress has what progress still comes go to to, until [ProgressRelay.End], and counts for
// [Peer.SoleSession] until then. It is for Done to call. The call itself is not held
// on to.
func (c *Call) RelayProgress(to func(wire.Message)) *ProgressRelay {
	t := &ProgressRelay{token: c.Token, session: c.SessionID, forward: to}
	d := c.sentVia.Load()
	if d == nil {
		return t
	}
	p := d.peer
	t.peer, t.id = p, d.id
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.sendErr != nil:
		return t
	case len(p.relays) >= maxRelays:
		p.recent.noteAbandoned(t.id, c.SessionID) // better than nothing
		return t
	case p.relays == nil:
		p.relays = make(map[int64]*ProgressRelay)
	}
	p.relays[t.id] = t
	p.relaySessions.add(t.session, 1)
	return t
}

// Stop ends a trail. Calling it again does nothing.
func (t *ProgressRelay) Stop() {
	if t.peer == nil {
		return
	}
	t.peer.mu.Lock()
	defer t.peer.mu.Unlock()
	if t.peer.relays[t.id] == t {
		delete(t.peer.relays, t.id)
		t.peer.relaySessions.add(t.session, -1)
		t.peer.recent.noteAbandoned(t.id, t.session) // what has ended for us may go on there
	}
}

// relayProgress passes on the progress of a call that was answered.
func (p *Peer) relayProgress(id int64, m wire.Message) {
	p.mu.Lock()
	t := p.relays[id]
	p.mu.Unlock()
	if t != nil && t.token != "" {
		t.forward(m.Splice(wire.Edit{Part: wire.PartToken, Text: []byte(t.token)}))
	}
}
