package backends

import (
	"context"
	"errors"
	"slices"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A hearing is one subscriptions/listen.
type hearing struct {
	c     *peer.Call
	uris  []string
	acked chan []byte // 1 slot: what the server has agreed to
	over  peer.ResponseChan
	began time.Time
	all   bool     // it has not said what it has agreed to
	some  []string // the URIs that it has agreed to
}

func (h *hearing) hears(uri string) bool { return h.all || slices.Contains(h.some, uri) }

// is reports whether a notification says that it comes by this listen.
func (h *hearing) is(m wire.Message) bool {
	id := protocol.SubscriptionID(m)
	return id == "" || string(id) == string(h.c.ID()) || wire.Unquote([]byte(id)) == string(h.c.ID())
}

// arm opens a listen and waits until the server has acknowledged it.
func (g *listening) arm(ctx context.Context, params []byte, uris []string) (*hearing, error) {
	l := g.l
	h := &hearing{uris: uris, acked: make(chan []byte, 1), over: make(peer.ResponseChan, 1), began: time.Now()}
	h.c = &peer.Call{Handler: h.over, Modern: true, Internal: true}
	l.mu.Lock()
	l.opening = h
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.opening = nil
		l.mu.Unlock()
	}()
	m := wire.NewRequest("0", "subscriptions/listen", params)
	if err := g.p.TrySend(l.b.stamped(m, g.s, "", false), h.c); err != nil {
		return nil, err
	}
	select {
	case agreed := <-h.acked:
		h.agree(agreed)
	case a := <-h.over:
		return nil, ending(a)
	case <-time.After(ackWait):
		l.log.Warn("backend does not acknowledge what it is listened to; it is taken to have agreed")
		h.all = true
	case <-ctx.Done():
		h.c.Cancel(nil)
		return nil, ctx.Err()
	}
	return h, nil
}

// ending returns why a listen ended that was not acknowledged.
func ending(a peer.Response) error {
	if failure := a.Part(wire.PartError); a.Err == nil && failure != nil {
		return wire.ReadError(failure)
	}
	if a.Err == nil {
		return errors.New("it ended at once")
	}
	return a.Err
}

// acknowledged notes what the server has agreed to.
func (l *line) acknowledged(m wire.Message, on peer.Origin) {
	l.mu.Lock()
	h := l.opening
	l.mu.Unlock()
	if h == nil || on.Call != nil && on.Call != h.c || on.Call == nil && !h.is(m) {
		return
	}
	select {
	case h.acked <- m.Part(wire.PartParams):
	default: // it was said before
	}
}

// agree reads what the server has agreed to.
func (h *hearing) agree(params []byte) {
	list, _ := wire.Lookup(params, "notifications")
	if !wire.IsObject(list) {
		h.all = true
		return
	}
	uris, _ := wire.Lookup(list, "resourceSubscriptions")
	h.some = texts(uris)
}
