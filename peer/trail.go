package peer

import "mcpgateway/wire"

// A Trail is what is left of a call that was answered though the far side goes on
// with it, as with a task ("the progressToken provided in the original request MUST
// continue to be used throughout the task's lifetime", tasks).
type Trail struct {
	peer  *Peer
	id    int64
	token wire.ID
	to    func(wire.Message)
}

// maxTrails bounds those of one conversation. Progress of what is beyond is dropped.
const maxTrails = 4096

// Trail has what progress still comes go to to, until [Trail.End]. It is for Done to
// call, of a call that has a Token. The call itself is not held on to.
func (c *Pending) Trail(to func(wire.Message)) *Trail {
	t := &Trail{peer: c.peer, id: c.id, token: c.Token, to: to}
	if c.peer == nil || c.Token == "" {
		return t
	}
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	switch {
	case c.peer.end != nil || len(c.peer.trails) >= maxTrails:
		return t
	case c.peer.trails == nil:
		c.peer.trails = make(map[int64]*Trail)
	}
	c.peer.trails[c.id] = t
	return t
}

// End ends a trail. Calling it again does nothing.
func (t *Trail) End() {
	if t.peer == nil {
		return
	}
	t.peer.mu.Lock()
	defer t.peer.mu.Unlock()
	delete(t.peer.trails, t.id)
}

// trailed passes on the progress of a call that was answered.
func (p *Peer) trailed(id int64, m wire.Message) {
	p.mu.Lock()
	t := p.trails[id]
	p.mu.Unlock()
	if t != nil {
		t.to(m.Splice(wire.Edit{Part: wire.PartToken, Text: []byte(t.token)}))
	}
}
