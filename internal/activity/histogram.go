package activity

import (
	"math"
	"math/bits"
)

// A Histogram counts values, such as microseconds or bytes, in buckets with fixed bounds: four for
// each power of two from 16 to 2³². The zero value is empty. It has memory only for the range of
// buckets that are used, at most 1 KB.
type Histogram struct {
	Count, Sum uint64
	first      int // index of the bucket that counts[0] belongs to
	counts     []uint64
}

const (
	firstExponent = 4  // values below 2^firstExponent are in the first bucket
	lastExponent  = 32 // values from 2^lastExponent are in the last bucket
	numBuckets    = (lastExponent-firstExponent)*4 + 2
)

// bucketOf returns the index of the bucket of a value.
func bucketOf(value uint64) int {
	exponent := bits.Len64(value) - 1
	switch {
	case exponent < firstExponent:
		return 0
	case exponent >= lastExponent:
		return numBuckets - 1
	}
	return (exponent-firstExponent)*4 + int(value>>(exponent-2)&3) + 1
}

// lowerBound returns the smallest value of a bucket. The bound of numBuckets is infinite.
func lowerBound(bucket int) float64 {
	switch {
	case bucket <= 0:
		return 0
	case bucket >= numBuckets:
		return math.Inf(1)
	}
	quarter := bucket - 1
	return math.Ldexp(1+float64(quarter%4)/4, firstExponent+quarter/4)
}

// Add counts a value.
func (h *Histogram) Add(value uint64) {
	h.Count++
	h.Sum += value
	h.add(bucketOf(value), 1)
}

func (h *Histogram) add(bucket int, n uint64) {
	switch {
	case len(h.counts) == 0:
		h.first, h.counts = bucket, make([]uint64, 1, 4)
	case bucket < h.first:
		grown := make([]uint64, len(h.counts)+h.first-bucket)
		copy(grown[h.first-bucket:], h.counts)
		h.first, h.counts = bucket, grown
	}
	for bucket-h.first >= len(h.counts) {
		h.counts = append(h.counts, 0)
	}
	h.counts[bucket-h.first] += n
}

// merge adds the counts of other.
func (h *Histogram) merge(other *Histogram) {
	h.Count += other.Count
	h.Sum += other.Sum
	for i, n := range other.counts {
		if n > 0 {
			h.add(other.first+i, n)
		}
	}
}

// clone returns a copy that shares no memory with h.
func (h *Histogram) clone() Histogram {
	c := *h
	c.counts = append([]uint64(nil), h.counts...)
	return c
}

// Quantile returns a value that differs by at most 12 % from a value of rank q, 0 to 1, if that
// value is between 16 and 2³². It returns 0 if the histogram is empty.
func (h *Histogram) Quantile(q float64) uint64 {
	rank := uint64(math.Ceil(q * float64(h.Count)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= max(rank, 1) {
			bucket := h.first + i
			low, high := lowerBound(bucket), lowerBound(bucket+1)
			switch {
			case bucket == 0:
				return uint64(high / 2)
			case math.IsInf(high, 1):
				return uint64(low)
			}
			return uint64(math.Sqrt(low * high))
		}
	}
	return 0
}

// CountBelow returns the number of values below a bound. The bound must be the lower bound of a
// bucket, such as a power of two from 16 on.
func (h *Histogram) CountBelow(bound uint64) (n uint64) {
	end := bucketOf(bound) - h.first
	for _, c := range h.counts[:max(0, min(end, len(h.counts)))] {
		n += c
	}
	return n
}
