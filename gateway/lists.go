package gateway

import (
	"bytes"
	"context"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// listState is what a client knows of one of the lists.
type listState struct {
	listed    *catalog.Snapshot // whose list it was given last
	announced *catalog.Snapshot // the change that it was last told of
}

// serveList answers with a merged list, at once if it is settled. Only a list that is
// asked for while backends are starting for the first time waits.
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

// awaitCatalog waits until the catalog is as wanted; false means that ctx ended first.
func (s *Session) awaitCatalog(ctx context.Context, wanted func(*catalog.View) bool) (*catalog.View, bool) {
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

// firstPage answers with the first page of a snapshot's list. From now on it is the
// one by which the session's requests are routed, so that a name means what the
// client has read.
func (s *Session) firstPage(r *peer.Request, kind catalog.Kind, snapshot *catalog.Snapshot) {
	page, _ := snapshot.Page(kind, nil)
	page = s.adaptPage(kind, page)
	r.ReplyAfter(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lists[kind] = listState{listed: snapshot}
	}, page)
	if now := s.g.Backends.View().Snapshot; now != snapshot {
		s.notifyCatalogChanged(now) // it may have been told of while this was not yet shown
	}
}

// nextPage answers with a page to which a cursor leads. The pages of one listing are
// of one snapshot, the one whose first page was shown; a cursor of an older
// listing is unknown if its list is not the same.
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

// adaptPage returns a page of a list in the words of the client's revision: a tool of the
// stateless era may return what is no object.
func (s *Session) adaptPage(kind catalog.Kind, page []byte) []byte {
	if kind != catalog.Tools || !bytes.Contains(page, []byte(`"outputSchema"`)) {
		return page
	}
	return protocol.AdaptResponse(wire.NewResult("0", page), kind.ListMethod(), s.traits()).Part(wire.PartResult)
}

// notifyCatalogChanged tells the client of each list that is not the one it has seen,
// unless it was told so before.
func (s *Session) notifyCatalogChanged(now *catalog.Snapshot) {
	lastNotified := ""
	for kind := range catalog.Kind(catalog.NumKinds) {
		if s.needsNotification(kind, now) && lastNotified != kind.ChangedNotification() {
			lastNotified = kind.ChangedNotification()
			_ = s.peer.Notify(lastNotified, nil) // a client that is gone needs no news
		}
	}
}

// noteAnnounced reports whether the client has asked for a list of which a notification tells,
// and takes it that it will be told of what is now in it.
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

// needsNotification reports whether the client has to be told of a list, and takes it that it
// will be. A list that it never asked for is none of its concerns.
func (s *Session) needsNotification(kind catalog.Kind, now *catalog.Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.lists[kind]
	if s.state != ready || l.listed == nil || now.SameList(kind, l.listed) || l.announced != nil && now.SameList(kind, l.announced) {
		return false
	}
	l.announced = now
	return true
}
