package gateway

import "sync"

// A tally counts what there is of something, in all and of each principal, so that one of
// them leaves room for the others. The zero value has counted nothing. All clients are one
// principal where nobody checks who they are. All methods may be called concurrently.
type tally struct {
	mu  sync.Mutex
	all int
	per map[string]int // principal → how many
}

// enter counts one more, unless there are as many as there may be: most in all, or
// mostPer of the principal.
func (t *tally) enter(principal string, most, mostPer int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= most || t.per[principal] >= mostPer {
		return false
	}
	if t.per == nil {
		t.per = make(map[string]int)
	}
	t.all++
	t.per[principal]++
	return true
}

// leave takes back an enter.
func (t *tally) leave(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.per[principal]--; t.per[principal] == 0 {
		delete(t.per, principal)
	}
}
