package httpserver

import (
	"errors"
	"io"
	"sync"

	"mcpgateway/internal/wire"
)

// bodyQuota counts what has been posted and is still held: from its first byte until what it
// asks is answered, or has no answer. Who holds as much as is free may post no more until
// something of it is answered; so one client takes half of the room at most, two take a third
// each, and there is always some for one that comes. What is small is counted, but never
// refused: it may be what takes a call back, and there are bounds enough on how many.
type bodyQuota struct {
	limit int64

	mu    sync.Mutex
	total int64
	byKey map[quotaKey]int64
}

const smallBody = 4 << 10

// A quotaKey is who has posted: one of several principals, or else a session, or else
// whoever comes without.
type quotaKey struct {
	principal principalID
	session   string
}

func (srv *Server) quotaKeyFor(principal principalID, s *httpSession) quotaKey {
	if s != nil && !srv.access.Load().multiPrincipal() {
		return quotaKey{session: s.key}
	}
	return quotaKey{principal: principal}
}

// A bodyLease is one that has been posted. Whoever has to do with it holds it; the first is who
// reads it.
type bodyLease struct {
	quota *bodyQuota
	key   quotaKey

	// Guarded by bodies.mu.
	size int64
	refs int
}

func (in *bodyQuota) newLease(h quotaKey) *bodyLease { return &bodyLease{quota: in, key: h, refs: 1} }

var errBodyQuota = errors.New("too much is arriving")

// grow notes that n bytes of a body have come. If they are too many it fails.
func (b *bodyLease) grow(n int) error {
	in := b.quota
	in.mu.Lock()
	defer in.mu.Unlock()
	b.size += int64(n)
	in.total += int64(n)
	in.byKey[b.key] += int64(n)
	if b.size > smallBody && in.byKey[b.key] > in.limit-in.total {
		return errBodyQuota
	}
	return nil
}

// retain is one more who holds a body.
func (b *bodyLease) retain() {
	b.quota.mu.Lock()
	defer b.quota.mu.Unlock()
	b.refs++
}

// release takes back one hold, of whoever had it. After the last the body does not count.
func (b *bodyLease) release() {
	in := b.quota
	in.mu.Lock()
	defer in.mu.Unlock()
	if b.refs--; b.refs == 0 {
		in.uncountLocked(b)
	}
}

// discard has a body that is refused count no more, before anybody is told that it is.
func (b *bodyLease) discard() {
	in := b.quota
	in.mu.Lock()
	defer in.mu.Unlock()
	in.uncountLocked(b)
}

func (in *bodyQuota) uncountLocked(b *bodyLease) {
	in.total -= b.size
	if in.byKey[b.key] -= b.size; in.byKey[b.key] == 0 {
		delete(in.byKey, b.key)
	}
	b.size = 0
}

// An countingReader body counts while it is read.
type countingReader struct {
	*bodyLease
	from io.Reader
}

func (a countingReader) Read(b []byte) (int, error) {
	n, err := a.from.Read(b)
	if full := a.grow(n); full != nil {
		return n, full
	}
	return n, err
}

// releaseLease is for when a stream owes nothing any more of what stands in its body.
func (st *sseStream) releaseLease() {
	if st.lease != nil {
		st.lease.release()
		st.lease = nil
	}
}

// retainLeaseLocked has a body be held until a request that stands in it is answered.
func (s *httpSession) retainLeaseLocked(id wire.ID, b *bodyLease) {
	if s.leases == nil {
		s.leases = make(map[wire.ID]*bodyLease)
	}
	if s.leases[id] == nil { // or it is refused
		b.retain()
		s.leases[id] = b
	}
}

// releaseLeaseLocked is the end of holdLocked.
func (s *httpSession) releaseLeaseLocked(id wire.ID) {
	if b := s.leases[id]; b != nil {
		delete(s.leases, id)
		b.release()
	}
}
