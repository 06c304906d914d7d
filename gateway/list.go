package gateway

import (
	"context"

	"mcpgateway/catalog"
	"mcpgateway/peer"
	"mcpgateway/wire"
)

// listTools answers with the merged list, at once if it is settled. Only a list
// that is asked for while backends are starting for the first time waits.
func (s *Session) listTools(r *peer.Request) {
	if cursor := r.Part(wire.PartCursor); !wire.IsNull(cursor) {
		// The list is one page, so that no cursor was ever given out.
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown cursor"))
		return
	}
	if v := s.g.Backends.View(); v.Settled {
		s.show(r, v.Snapshot)
		return
	}
	s.work.Go(func() {
		v, ok := s.await(s.ctx, func(v *catalog.View) bool { return v.Settled })
		if !ok {
			s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending"))
			return
		}
		s.show(r, v.Snapshot)
	})
}

// await waits until the catalog is as wanted; false means that ctx ended first.
func (s *Session) await(ctx context.Context, wanted func(*catalog.View) bool) (*catalog.View, bool) {
	for {
		v := s.g.Backends.View()
		if wanted(v) {
			return v, true
		}
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return v, false
		}
	}
}

// show answers with a snapshot's list. From now on it is the one by which the
// session's calls are routed, so that a name means what the client has read.
func (s *Session) show(r *peer.Request, snapshot *catalog.Snapshot) {
	r.ReplyAfter(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shown, s.told = snapshot, nil
	}, snapshot.Result())
}

// catalogChanged tells the client, if the list is not the one it has seen and
// it was not told so before.
func (s *Session) catalogChanged(now *catalog.Snapshot) {
	s.mu.Lock()
	news := s.state == ready && s.shown != nil && !now.SameList(s.shown) &&
		(s.told == nil || !now.SameList(s.told))
	if news {
		s.told = now
	}
	s.mu.Unlock()
	if news {
		_ = s.peer.Notify("notifications/tools/list_changed", nil) // a client that is gone needs no news
	}
}

// route finds the tool that a name means to this client: what it was last
// shown decides, then what has come since.
func (s *Session) route(name string, v *catalog.View) (catalog.Route, bool) {
	s.mu.Lock()
	shown := s.shown
	s.mu.Unlock()
	if shown != nil {
		if route, ok := shown.Tool(name); ok {
			return route, true
		}
	} else if !v.Settled {
		return catalog.Route{}, false // an earlier backend may yet claim the name
	}
	return v.Tool(name)
}

// mayCome reports whether a name that nobody has may yet be somebody's: to a
// client that has seen a list only backend__tool of a backend that is starting,
// for any other name would have been in it; to one that has not, any name.
func (s *Session) mayCome(name string, v *catalog.View) bool {
	s.mu.Lock()
	shown := s.shown
	s.mu.Unlock()
	return shown == nil && !v.Complete || v.MayCome(name)
}
