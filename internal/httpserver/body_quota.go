package httpserver

import (
	"errors"
	"io"
	"sync"

	"mcpgateway/internal/wire"
)

// A bodyQuota limits the posted bytes of unanswered requests. A client may post more only while its
// share is smaller than the free part of the quota. Therefore one client gets at most half of the
// quota, two clients get a third each, and a part is always free for a new client. Small bodies are
// counted but never refused, because they may cancel a call, and because other limits bound their
// number.
type bodyQuota struct {
	limit int64

	mu    sync.Mutex
	total int64
	byKey map[quotaKey]int64
}

const smallBody = 4 << 10 // bytes

// A quotaKey identifies the sender of a body. If there are several principals, it is the principal.
// Otherwise it is the session, and all senders without a session have one common key.
type quotaKey struct {
	principal principalID
	session   string
}

func (r *accessPolicy) quotaKeyFor(principal principalID, s *httpSession) quotaKey {
	if s != nil && !r.multiPrincipal() {
		return quotaKey{session: s.key}
	}
	return quotaKey{principal: principal}
}

// A bodyLease counts the bytes of one posted body while the body is in use. The reader of the body
// has the first reference.
type bodyLease struct {
	quota *bodyQuota
	key   quotaKey

	// Guarded by bodyQuota.mu.
	size int64
	refs int
}

func (q *bodyQuota) newLease(key quotaKey) *bodyLease {
	return &bodyLease{quota: q, key: key, refs: 1}
}

var errBodyQuota = errors.New("quota of posted bytes exceeded")

// grow adds n received bytes. It fails if the quota is exceeded and the body is longer than
// smallBody. The bytes are counted even if grow fails.
func (b *bodyLease) grow(n int) error {
	q := b.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	b.size += int64(n)
	q.total += int64(n)
	q.byKey[b.key] += int64(n)
	if b.size > smallBody && q.byKey[b.key] > q.limit-q.total {
		return errBodyQuota
	}
	return nil
}

// retain adds a reference.
func (b *bodyLease) retain() {
	b.quota.mu.Lock()
	defer b.quota.mu.Unlock()
	b.refs++
}

// release drops a reference. Dropping the last reference frees the bytes.
func (b *bodyLease) release() {
	q := b.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.refs--; b.refs == 0 {
		q.uncountLocked(b)
	}
}

// discard frees the bytes of a rejected body, before the error is sent.
func (b *bodyLease) discard() {
	q := b.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uncountLocked(b)
}

func (q *bodyQuota) uncountLocked(b *bodyLease) {
	q.total -= b.size
	if q.byKey[b.key] -= b.size; q.byKey[b.key] == 0 {
		delete(q.byKey, b.key)
	}
	b.size = 0
}

// A leaseReader adds the bytes read to a lease.
type leaseReader struct {
	*bodyLease
	from io.Reader
}

func (a leaseReader) Read(b []byte) (int, error) {
	n, err := a.from.Read(b)
	if quotaErr := a.grow(n); quotaErr != nil {
		return n, quotaErr
	}
	return n, err
}

// releaseLease releases the lease for the body of the requests of st, at most once.
func (st *sseStream) releaseLease() {
	if st.lease != nil {
		st.lease.release()
		st.lease = nil
	}
}

// retainLeaseLocked retains b until the request id is answered.
func (s *httpSession) retainLeaseLocked(id wire.ID, b *bodyLease) {
	if s.leases == nil {
		s.leases = make(map[wire.ID]*bodyLease)
	}
	if s.leases[id] == nil { // otherwise the id is in use and the request will be rejected
		b.retain()
		s.leases[id] = b
	}
}

// releaseLeaseLocked releases the lease of an answered request.
func (s *httpSession) releaseLeaseLocked(id wire.ID) {
	if b := s.leases[id]; b != nil {
		delete(s.leases, id)
		b.release()
	}
}
