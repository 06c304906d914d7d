package gateway

import (
	"bytes"
	"context"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// listState is what a client knows of one list.
type listState struct {
	listed    *catalog.Snapshot // last shown to the client
	announced *catalog.Snapshot // last announced by a notification
}

// serveList answers a list request, from the current view if it is settled. Only while backends
// start for the first time does the request wait.
func (s *Session) serveList(r *peer.Request, kind catalog.Kind) {
	if cursor := r.Part(wire.PartCursor); !wire.IsNull(cursor) {
		s.nextPage(r, kind, cursor)
		return
	}
	if v := s.g.Backends.View(); v.Settled {
		s.firstPage(r, kind, v.Snapshot)
		return
	}
	s.work.Go(func() {
		v, ok := s.awaitCatalog(s.ctx, func(v *catalog.View) bool { return v.Settled })
		if !ok {
			s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending"))
			return
		}
		s.firstPage(r, kind, v.Snapshot)
	})
}

// awaitCatalog waits until wanted returns true for the view; it returns false if ctx ended first.
func (s *Session) awaitCatalog(ctx context.Context,
	wanted func(*catalog.View) bool) (*catalog.View, bool) {
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

// firstPage answers with the first page of a snapshot's list. From then on the session's requests
// are routed by this snapshot, so that a name means what the client has read.
func (s *Session) firstPage(r *peer.Request, kind catalog.Kind, snapshot *catalog.Snapshot) {
	page, _ := snapshot.Page(kind, nil)
	page = s.adaptPage(kind, page)
	r.ReplyAfter(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lists[kind] = listState{listed: snapshot}
	}, page)
	if now := s.g.Backends.View().Snapshot; now != snapshot {
		// a notification may have been skipped before the list was shown
		s.notifyCatalogChanged(now)
	}
}

// nextPage answers with the page of a cursor. All pages of one listing come from the snapshot
// whose first page was shown; a cursor of an older listing is unknown unless the list is the
// same.
func (s *Session) nextPage(r *peer.Request, kind catalog.Kind, cursor []byte) {
	s.mu.Lock()
	snapshot := s.lists[kind].listed
	s.mu.Unlock()
	if snapshot == nil {
		snapshot = s.g.Backends.View().Snapshot
	}
	page, ok := snapshot.Page(kind, cursor)
	if !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown cursor"))
		return
	}
	r.Reply(s.adaptPage(kind, page))
}

// adaptPage adapts a page to the client's revision: a modern tool may have an output schema that
// is not an object.
func (s *Session) adaptPage(kind catalog.Kind, page []byte) []byte {
	if kind != catalog.Tools || !bytes.Contains(page, []byte(`"outputSchema"`)) {
		return page
	}
	return protocol.AdaptResponse(wire.NewResult("0", page), kind.ListMethod(),
		s.revision()).Part(wire.PartResult)
}

// notifyCatalogChanged notifies the client of each list that differs from the one it was shown,
// once per change.
func (s *Session) notifyCatalogChanged(now *catalog.Snapshot) {
	lastNotified := ""
	for kind := range catalog.Kind(catalog.NumKinds) {
		if s.needsNotification(kind, now) && lastNotified != kind.ChangedNotification() {
			lastNotified = kind.ChangedNotification()
			_ = s.peer.Notify(lastNotified, nil)
		}
	}
}

// noteAnnounced reports whether the client has been shown a list of this notification, and
// records the snapshot as announced.
func (s *Session) noteAnnounced(notification string, now *catalog.Snapshot) (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind := range catalog.Kind(catalog.NumKinds) {
		if l := &s.lists[kind]; kind.ChangedNotification() == notification && l.listed != nil {
			l.announced, some = now, true
		}
	}
	return some
}

// needsNotification reports whether the client must be notified of a list, and records the
// snapshot as announced. Lists that the client never requested are skipped.
func (s *Session) needsNotification(kind catalog.Kind, now *catalog.Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.lists[kind]
	if s.state != ready || l.listed == nil || now.SameList(kind, l.listed) ||
		l.announced != nil && now.SameList(kind, l.announced) {
		return false
	}
	l.announced = now
	return true
}
