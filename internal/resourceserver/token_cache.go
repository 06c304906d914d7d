package resourceserver

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxCachedTokens is the maximum number of verified tokens that are cached.
const maxCachedTokens = 10_000

// A tokenCache contains the results of verifications, by the hash of the token. At the limit it
// replaces a result that has expired, or any other.
type tokenCache struct {
	max int

	mu    sync.Mutex
	byKey map[[sha256.Size]byte]*cachedToken
}

// A cachedToken is the result of a verification.
type cachedToken struct {
	VerifiedToken
	audience []string
	err      *InvalidTokenError // nil = the token is valid
	until    time.Time          // the result may be used before this time
	key      *publicKey         // key that has verified the signature; nil = the token is not a JWT
}

// get returns the result for a token; nil, nil = not cached.
func (c *tokenCache) get(sum [sha256.Size]byte, now time.Time) (*cachedToken, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.byKey[sum]
	switch {
	case g == nil:
		return nil, nil
	case !g.isUsable(now):
		delete(c.byKey, sum)
		return nil, nil
	case g.err != nil:
		return nil, g.err
	}
	return g, nil
}

// isUsable reports whether the result is still correct: it has not expired, and the authorization
// server still publishes the key.
func (g *cachedToken) isUsable(now time.Time) bool {
	return now.Before(g.until) && (g.key == nil || !g.key.retired.Load())
}

// evictionSample is the number of results that are examined to find one to replace.
const evictionSample = 8

func (c *tokenCache) add(sum [sha256.Size]byte, g *cachedToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil {
		c.byKey = make(map[[sha256.Size]byte]*cachedToken)
	}
	if c.byKey[sum] == nil && len(c.byKey) >= c.max {
		c.evictLocked()
	}
	c.byKey[sum] = g
}

// evictLocked removes the expired results in a sample, or one result.
func (c *tokenCache) evictLocked() {
	now, examined := time.Now(), 0
	var last [sha256.Size]byte
	for sum, g := range c.byKey {
		if !g.isUsable(now) {
			delete(c.byKey, sum)
		}
		last = sum
		if examined++; examined == evictionSample {
			break
		}
	}
	if len(c.byKey) >= c.max {
		delete(c.byKey, last)
	}
}

func (c *tokenCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey)
}
