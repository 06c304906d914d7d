package gateway

import "sync"

// perPrincipalLimit returns how much of limit one principal may use: half, rounded up, so that
// one principal leaves room for the others; everything without authentication, where all clients
// are the one principal "".
func perPrincipalLimit(principal string, limit int) int {
	if principal == "" {
		return limit
	}
	return (limit + 1) / 2
}

// A counter counts items in total and per principal. The zero value is empty. Its methods may be
// called concurrently.
type counter struct {
	mu           sync.Mutex
	total        int
	perPrincipal map[string]int // principal → count
}

// acquire counts one more unless the total limit or the principal's share is reached.
func (t *counter) acquire(principal string, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total >= limit || t.perPrincipal[principal] >= perPrincipalLimit(principal, limit) {
		return false
	}
	if t.perPrincipal == nil {
		t.perPrincipal = make(map[string]int)
	}
	t.total++
	t.perPrincipal[principal]++
	return true
}

// release undoes one acquire.
func (t *counter) release(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.perPrincipal[principal]--; t.perPrincipal[principal] == 0 {
		delete(t.perPrincipal, principal)
	}
}
