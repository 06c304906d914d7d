package gateway

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// clientLists contains what a session client knows of each list. The zero value is a client that
// knows no list. Its methods may be called concurrently.
type clientLists struct {
	mu    sync.Mutex
	lists [catalog.NumKinds]clientList
}

// A clientList contains the snapshots of one list that a client knows.
type clientList struct {
	listed    *catalog.Snapshot // of the last response; nil = never listed
	announced *catalog.Snapshot // of the last notification; nil = none
}

// listed returns the snapshot of the last response to a list request; nil if the client has never
// requested the list.
func (l *clientLists) listed(kind catalog.Kind) *catalog.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[kind].listed
}

func (l *clientLists) setListed(kind catalog.Kind, snapshot *catalog.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists[kind] = clientList{listed: snapshot}
}

// changes returns the notifications, each once, of the lists that differ from what the client
// knows, and records the snapshot as announced. The client is not notified of lists that it has
// never requested.
func (l *clientLists) changes(now *catalog.Snapshot) (notifications []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range catalog.Kind(catalog.NumKinds) {
		known := &l.lists[kind]
		if known.listed == nil || now.SameList(kind, known.listed) ||
			known.announced != nil && now.SameList(kind, known.announced) {
			continue
		}
		known.announced = now
		if !slices.Contains(notifications, kind.ChangedNotification()) {
			notifications = append(notifications, kind.ChangedNotification())
		}
	}
	return notifications
}

// noteAnnounced reports whether the client has requested a list to which the notification applies.
// If so, it records the snapshot as announced.
func (l *clientLists) noteAnnounced(notification string, now *catalog.Snapshot) (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range catalog.Kind(catalog.NumKinds) {
		known := &l.lists[kind]
		if kind.ChangedNotification() == notification && known.listed != nil {
			known.announced, some = now, true
		}
	}
	return some
}

// serveList responds to a list request. A request for the first page is served from the current
// view, and waits only while backends start for the first time.
func (s *Session) serveList(r *peer.Request, kind catalog.Kind) {
	if cursor := r.Part(wire.PartCursor); !wire.IsNull(cursor) {
		s.nextPage(r, kind, cursor)
		return
	}
	if v := s.view(); v.Settled {
		s.firstPage(r, kind, v.Snapshot)
	} else {
		s.awaitSettled(r, func(v *catalog.View) { s.firstPage(r, kind, v.Snapshot) })
	}
}

var errUnknownCursor = wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown cursor")

// awaitCatalog waits until match returns true for the current view. It returns false if ctx was
// done first.
func awaitCatalog(ctx context.Context, current func() *catalog.View,
	match func(*catalog.View) bool) (*catalog.View, bool) {
	for {
		v := current()
		if match(v) {
			return v, true
		}
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return v, false
		}
	}
}

func isSettled(v *catalog.View) bool { return v.Settled }

// firstPage responds with the first page of a snapshot's list. The session's later requests are
// routed by this snapshot, so that names refer to the entries that the client has read.
func (s *Session) firstPage(r *peer.Request, kind catalog.Kind, snapshot *catalog.Snapshot) {
	page, _ := snapshot.Page(kind, nil)
	page = s.adaptPage(kind, page)
	r.ReplyAfter(func() { s.lists.setListed(kind, snapshot) }, page)
	if now := s.view(); now.Snapshot != snapshot {
		// a notification may have been skipped before the client got the list
		s.notifyCatalogChanged(now)
	}
}

// nextPage responds with the page at a cursor. All pages come from the snapshot of the first page,
// or from the current one if the client has not read a first page. A cursor of an earlier list is
// unknown, unless the two lists are equal. For a client with profiles, the cursor is also unknown
// if the list has changed since the first page, because its profiles may have changed.
func (s *Session) nextPage(r *peer.Request, kind catalog.Kind, cursor []byte) {
	snapshot, now := s.lists.listed(kind), s.view()
	if snapshot == nil || s.principal.ProfileKey() != "" && !now.SameList(kind, snapshot) {
		snapshot = now.Snapshot
	}
	page, ok := snapshot.Page(kind, cursor)
	if !ok {
		s.fail(r, errUnknownCursor)
		return
	}
	r.Reply(s.adaptPage(kind, page))
}

// adaptPage adapts a page to the client's revision, because the output schema of a modern tool
// need not describe an object.
func (s *Session) adaptPage(kind catalog.Kind, page []byte) []byte {
	if kind != catalog.Tools || !bytes.Contains(page, []byte(`"outputSchema"`)) {
		return page
	}
	return protocol.AdaptResponse(wire.NewResult("0", page), kind.ListMethod(),
		s.lifecycle.handshake().Revision).Part(wire.PartResult)
}

// notifyCatalogChanged notifies the client, once per change, of each list that differs from the
// list that the client got. While the view is not settled, such as after a reload of a backend with
// oauth.per: principal, the client is not notified, because it would only wait for the new list.
func (s *Session) notifyCatalogChanged(now *catalog.View) {
	if !s.isReady() || !now.Settled {
		return
	}
	for _, notification := range s.lists.changes(now.Snapshot) {
		_ = s.peer.Notify(notification, nil)
	}
}
