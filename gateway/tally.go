package gateway

import "sync"

// share returns how many of most places a principal may take: half, rounded up, so that one
// leaves room for the others. All of them where nobody checks who the clients are, and they
// are one ("").
func share(principal string, most int) int {
	if principal == "" {
		return most
	}
	return (most + 1) / 2
}

// A tally counts what there is of something, in all and of each principal. The zero value
// has counted nothing. All methods may be called concurrently.
type tally struct {
	mu  sync.Mutex
	all int
	per map[string]int // principal → how many
}

// enter counts one more, unless there are as many as there may be: most in all, and of the
// principal its share.
func (t *tally) enter(principal string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= most || t.per[principal] >= share(principal, most) {
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
