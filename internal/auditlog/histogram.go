package auditlog

import (
	"math"
	"math/bits"
	"time"
)

// A durationHistogram counts durations in microseconds, in buckets of 1/32 of a power of two: a
// quantile differs from the exact one by at most 1.6 %, and is exact below 64 microseconds. It has
// memory for the range of buckets that are used, at most 5 KB.
type durationHistogram struct {
	count  uint64
	first  int // index of the bucket that counts[0] belongs to
	counts []uint32
}

const (
	subBits = 5 // 2^subBits buckets for each power of two
	// longer durations are in the last bucket
	longestDuration = 1 << 20 * time.Second
)

func bucketOf(us uint64) int {
	exponent := bits.Len64(us) - 1
	if exponent <= subBits {
		return int(us)
	}
	return (exponent-subBits)<<subBits + int(us>>(exponent-subBits))
}

// middle returns the middle of a bucket.
func middle(bucket int) uint64 {
	exponent := bucket>>subBits - 1
	if exponent <= 0 {
		return uint64(bucket)
	}
	low := uint64(bucket&(1<<subBits-1)|1<<subBits) << exponent
	return low + 1<<(exponent-1)
}

func (h *durationHistogram) add(d time.Duration) {
	bucket := bucketOf(uint64(max(0, min(d, longestDuration)).Microseconds()))
	h.count++
	switch {
	case len(h.counts) == 0:
		h.first = bucket
	case bucket < h.first:
		grown := make([]uint32, len(h.counts)+h.first-bucket)
		copy(grown[h.first-bucket:], h.counts)
		h.first, h.counts = bucket, grown
	}
	for bucket-h.first >= len(h.counts) {
		h.counts = append(h.counts, 0)
	}
	h.counts[bucket-h.first]++
}

// quantile returns the value of rank q, 0 to 1; 0 if the histogram is empty.
func (h *durationHistogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.count)))
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); n > 0 && seen >= rank {
			return time.Duration(middle(h.first+i)) * time.Microsecond
		}
	}
	return 0
}
