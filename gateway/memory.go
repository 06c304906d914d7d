package gateway

import (
	"slices"
	"sync"
)

// A ref is an id together with the backend from which it came, or for which it
// was given: what another backend says of the same id is about something else.
type ref struct{ backend, id string }

const (
	// maxRecent bounds what a recent remembers. Beyond it the oldest is forgotten.
	maxRecent = 256
	// maxRef bounds an id that is remembered, in bytes. Longer ones are not.
	maxRef = 1 << 10
)

// recent remembers the latest of some ids. The zero value remembers none. All
// methods may be called concurrently.
type recent struct {
	mu   sync.Mutex
	refs []ref // the oldest first
}

func (r *recent) add(backend, id string) {
	if id == "" || len(id) > maxRef {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.refs, ref{backend, id}) {
		return
	}
	if len(r.refs) == maxRecent {
		r.refs = slices.Delete(r.refs, 0, 1)
	}
	r.refs = append(r.refs, ref{backend, id})
}

func (r *recent) has(backend, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.refs, ref{backend, id})
}

// of returns the backends for which an id is known.
func (r *recent) of(id string) (backends []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.refs {
		if known.id == id {
			backends = append(backends, known.backend)
		}
	}
	return backends
}
