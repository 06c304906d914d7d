package transport

import (
	"fmt"
	"sync/atomic"
)

// A ReceiveQuota bounds the bytes of incomplete messages, which are still being received. A message
// that would exceed the quota is dropped: the request that the message answers fails, and the
// connection stays open. All methods may be called concurrently. A nil ReceiveQuota has no bound.
type ReceiveQuota struct {
	limit  int64
	parent *ReceiveQuota // also counts the bytes of this quota; nil = none
	inUse  atomic.Int64
}

// NewReceiveQuota returns a ReceiveQuota of limit bytes. parent also counts these bytes; nil = no
// parent.
func NewReceiveQuota(limit int64, parent *ReceiveQuota) *ReceiveQuota {
	return &ReceiveQuota{limit: limit, parent: parent}
}

// InUse returns the number of bytes in use.
func (q *ReceiveQuota) InUse() int64 { return q.inUse.Load() }

// acquire adds n bytes to the bytes in use. It fails, and adds nothing, if the sum exceeds q or a
// parent of q.
func (q *ReceiveQuota) acquire(n int64) error {
	if q == nil {
		return nil
	}
	if q.inUse.Add(n) > q.limit {
		q.inUse.Add(-n)
		of := "all backends"
		if q.parent != nil {
			of = "this backend"
		}
		return &UnreadableError{fmt.Sprintf(
			"incomplete messages from %s may have at most %d bytes together: try again later",
			of, q.limit)}
	}
	err := q.parent.acquire(n)
	if err != nil {
		q.inUse.Add(-n)
	}
	return err
}

func (q *ReceiveQuota) release(n int64) {
	for ; q != nil; q = q.parent {
		q.inUse.Add(-n)
	}
}

// maxUncounted is the maximum size of messages that are not counted, in bytes, so that short
// messages are always received.
const maxUncounted = 16 << 10

// IsCounted reports whether a [ReceiveLease] counts a message of n bytes.
func IsCounted(n int) bool { return n > maxUncounted }

// Lease returns an empty lease of q, which may be nil.
func (q *ReceiveQuota) Lease() ReceiveLease { return ReceiveLease{quota: q} }

// A ReceiveLease is the share of a ReceiveQuota that one reader uses.
type ReceiveLease struct {
	quota *ReceiveQuota
	bytes int64
}

// Resize sets the size of the lease; a size of at most maxUncounted counts as 0. It fails, and
// changes nothing, if the quota is exhausted. On a nil lease it does nothing.
func (l *ReceiveLease) Resize(bytes int) error {
	n := int64(bytes)
	if n <= maxUncounted {
		n = 0
	}
	switch {
	case l == nil || l.quota == nil || n == l.bytes:
		return nil
	case n < l.bytes:
		l.quota.release(l.bytes - n)
	default:
		if err := l.quota.acquire(n - l.bytes); err != nil {
			return err
		}
	}
	l.bytes = n
	return nil
}

// Bytes returns the size of the lease.
func (l *ReceiveLease) Bytes() int64 { return l.bytes }

// Release sets the size of the lease to 0.
func (l *ReceiveLease) Release() { _ = l.Resize(0) }
