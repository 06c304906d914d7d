package backends

import (
	"sync"
	"time"

	"mcpgateway/backends/internal/lockrank"
)

// startup is the start of the backends of a Set, and the wait for their first lists.
type startup struct {
	cachesLoaded sync.Once
	once         sync.Once
	requested    chan struct{} // closed by Set.Start

	// held while the table of backends is replaced, so that each backend is started once
	mu lockrank.Mutex[startupRank]
	at time.Time // when the backends were started; zero = not yet
	// runs from the start for backendTable.catalogWait; nil = not started
	waitTimer *time.Timer
}

// launched reports whether the backends were started.
func (st *startup) launched() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.at.IsZero()
}

// setWaitLocked changes the wait for the first lists, unless it is over.
func (st *startup) setWaitLocked(wait time.Duration) {
	if st.waitTimer != nil && st.waitTimer.Stop() {
		st.waitTimer.Reset(wait - time.Since(st.at))
	}
}
