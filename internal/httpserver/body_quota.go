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
	principal string // its key
	session   string
}

func (r *accessPolicy) quotaKeyFor(from sender, s *httpSession) quotaKey {
	if s != nil && !r.multiPrincipal() {
		return quotaKey{session: s.key}
	}
	return quotaKey{principal: from.Key()}
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

// A leaseTable contains the leases for the bodies of unanswered requests, by id. nil = empty.
type leaseTable map[wire.ID]*bodyLease

// retain retains b until release is called for the request id.
func (t *leaseTable) retain(id wire.ID, b *bodyLease) {
	if *t == nil {
		*t = make(leaseTable)
	}
	if (*t)[id] == nil { // otherwise the id is in use and the request will be rejected
		b.retain()
		(*t)[id] = b
	}
}

// release releases the lease of an answered request.
func (t leaseTable) release(id wire.ID) {
	if b := t[id]; b != nil {
		delete(t, id)
		b.release()
	}
}

// noteResponse releases the leases of the requests to which m responds.
func (t leaseTable) noteResponse(m wire.Message) {
	if len(t) == 0 {
		return
	}
	switch m.Kind() {
	case wire.Response:
		t.release(m.ID())
	case wire.Batch:
		for _, text := range m.Elements() {
			response, _ := wire.Parse(text) // has an id even if it nests too deep for Parse
			t.release(response.ID())
		}
	}
}
