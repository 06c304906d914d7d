package transport

import "bytes"

// minUncopied is the minimum length, in bytes, of a slice that is queued without a copy.
const minUncopied = 4 << 10

// A byteQueue contains bytes that a stream has not accepted yet. It has no lock.
type byteQueue struct {
	parts      [][]byte // not taken
	lastIsCopy bool     // the last part is a copy that may be appended to
	size       int      // bytes in parts, and bytes that were taken and are not written
}

// push appends b. It keeps b itself if b is long, and copies short slices into one part, so that
// the queue takes no more memory than its bytes.
func (q *byteQueue) push(b []byte) {
	q.size += len(b)
	last := len(q.parts) - 1
	switch {
	case len(b) >= minUncopied:
		q.parts, q.lastIsCopy = append(q.parts, b), false
	case last >= 0 && q.lastIsCopy && len(q.parts[last])+len(b) <= chunkSize:
		q.parts[last] = append(q.parts[last], b...)
	default:
		q.parts, q.lastIsCopy = append(q.parts, bytes.Clone(b)), true
	}
}

// take removes all parts and returns them. Their bytes count in size until they are written.
func (q *byteQueue) take() [][]byte {
	parts := q.parts
	q.parts = nil
	return parts
}

// discard removes all parts, and forgets the bytes that were taken.
func (q *byteQueue) discard() { q.parts, q.size = nil, 0 }
