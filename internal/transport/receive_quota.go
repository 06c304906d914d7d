package transport

import (
	"fmt"
	"sync/atomic"
)

// An ReceiveQuota counts the bytes of messages that are being received and are not complete. Beyond its
// bound the message that needs more room is given up: its request fails, and the conversation goes
// on. All methods may be called concurrently; a nil ReceiveQuota has no bound.
type ReceiveQuota struct {
	limit  int64
	parent *ReceiveQuota // also counts what this one counts; may be nil
	inUse  atomic.Int64
}

// NewReceiveQuota returns an ReceiveQuota of so many bytes that is part of whole, unless that is nil.
func NewReceiveQuota(bound int64, whole *ReceiveQuota) *ReceiveQuota {
	return &ReceiveQuota{limit: bound, parent: whole}
}

// InUse returns the bytes that are counted.
func (q *ReceiveQuota) InUse() int64 { return q.inUse.Load() }

// acquire counts n more bytes. It fails, and counts nothing, if that is too much.
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
		return &UnreadableError{fmt.Sprintf("messages from %s that are not complete may have %d bytes together: try again later", of, q.limit)}
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

// maxUncounted is how many bytes of each message are not counted: short ones always come through.
const maxUncounted = 16 << 10

// IsCounted reports whether a [ReceiveLease] counts a message of n bytes: short ones it does not.
func IsCounted(n int) bool { return n > maxUncounted }

// Lease returns an empty lease of q, which may be nil.
func (q *ReceiveQuota) Lease() ReceiveLease { return ReceiveLease{quota: q} }

// A ReceiveLease is the part of an ReceiveQuota that one reader holds.
type ReceiveLease struct {
	quota *ReceiveQuota
	bytes int64
}

// Resize changes the number of bytes that the lease counts. It fails if the quota has no room for them.
// A nil lease counts nothing.
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

// Bytes returns the number of bytes that are counted.
func (l *ReceiveLease) Bytes() int64 { return l.bytes }

// Release holds nothing any more.
func (l *ReceiveLease) Release() { _ = l.Resize(0) }
