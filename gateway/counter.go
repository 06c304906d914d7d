package gateway

import "sync"

// perPrincipalLimit returns how many of most places a principal may take: half, rounded up, so that one
// leaves room for the others. All of them where nobody checks who the clients are, and they
// are one ("").
func perPrincipalLimit(principal string, limit int) int {
	if principal == "" {
		return limit
	}
	return (limit + 1) / 2
}

// A counter counts what there is of something, in all and of each principal. The zero value
// has counted nothing. All methods may be called concurrently.
type counter struct {
	mu           sync.Mutex
	total        int
	perPrincipal map[string]int // principal → how many
}

// acquire counts one more, unless there are as many as there may be: most in all, and of the
// principal its share.
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

// release takes back an enter.
func (t *counter) release(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.perPrincipal[principal]--; t.perPrincipal[principal] == 0 {
		delete(t.perPrincipal, principal)
	}
}
