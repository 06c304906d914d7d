// Package quota counts items that are limited in total and per key, for example per principal or
// per session, so that one key cannot use the whole limit.
package quota

import (
	"sync"
	"sync/atomic"
)

// Half returns half of limit, rounded up. It is the usual limit of one key.
func Half(limit int) int { return (limit + 1) / 2 }

// An Excess identifies the limit that is reached.
type Excess int

const (
	None   Excess = iota // no limit is reached
	Total                // the total limit is reached
	PerKey               // the limit of the key is reached
)

// A Counter counts items in total and per key. The zero value is empty. Its methods may be called
// concurrently; none of them blocks.
type Counter[K comparable] struct {
	mu     sync.Mutex
	total  int
	perKey map[K]int // contains no zeros
}

// Acquire counts one more item of key and returns None. If a limit is reached, it counts nothing
// and returns the limit: total is the limit of all items, and perKey the limit of the items of key.
func (c *Counter[K]) Acquire(key K, total, perKey int) Excess {
	c.mu.Lock()
	defer c.mu.Unlock()
	excess := c.checkLocked(key, total, perKey)
	if excess != None {
		return excess
	}
	if c.perKey == nil {
		c.perKey = make(map[K]int)
	}
	c.total++
	c.perKey[key]++
	return None
}

// Check returns the result that Acquire would return, and counts nothing.
func (c *Counter[K]) Check(key K, total, perKey int) Excess {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkLocked(key, total, perKey)
}

func (c *Counter[K]) checkLocked(key K, total, perKey int) Excess {
	switch {
	case c.total >= total:
		return Total
	case c.perKey[key] >= perKey:
		return PerKey
	}
	return None
}

// Release undoes one Acquire.
func (c *Counter[K]) Release(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.perKey[key]--; c.perKey[key] == 0 {
		delete(c.perKey, key)
	}
}

// Total returns the number of items.
func (c *Counter[K]) Total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Of returns the number of items of a key.
func (c *Counter[K]) Of(key K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.perKey[key]
}

// Keys returns the number of keys that have items.
func (c *Counter[K]) Keys() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.perKey)
}

// Bytes counts bytes in use. The zero value has none in use. Its methods may be called
// concurrently; none of them blocks.
type Bytes struct{ used atomic.Int64 }

// Acquire adds n bytes and returns true, unless the sum exceeds limit.
func (b *Bytes) Acquire(n, limit int) bool {
	for {
		used := b.used.Load()
		if used+int64(n) > int64(limit) {
			return false
		}
		if b.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

// Release subtracts n bytes.
func (b *Bytes) Release(n int) { b.used.Add(-int64(n)) }

// Used returns the number of bytes in use.
func (b *Bytes) Used() int { return int(b.used.Load()) }
