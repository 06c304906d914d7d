package gateway

import (
	"slices"
	"sync"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A scopedID is an id and the backend that issued the id, or for which the id was issued. Equal
// ids of two backends identify different objects.
type scopedID struct{ backend, id string }

const (
	// maxRecentIDs bounds the ids in a recentIDs. At the limit the oldest id is removed.
	maxRecentIDs = 256
	// maxIDSize bounds an id, in bytes. Longer ids are not stored.
	maxIDSize = 1 << 10
)

// recentIDs stores the latest ids. The zero value is empty. Its methods may be called
// concurrently.
type recentIDs struct {
	mu  sync.Mutex
	ids []scopedID // the oldest first
}

func (r *recentIDs) add(backend, id string) {
	if id == "" || len(id) > maxIDSize {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.ids, scopedID{backend, id}) {
		return
	}
	if len(r.ids) == maxRecentIDs {
		r.ids = slices.Delete(r.ids, 0, 1)
	}
	r.ids = append(r.ids, scopedID{backend, id})
}

func (r *recentIDs) has(backend, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.ids, scopedID{backend, id})
}

// backends returns the backends for which an id was added.
func (r *recentIDs) backends(id string) (backends []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.ids {
		if known.id == id {
			backends = append(backends, known.backend)
		}
	}
	return backends
}

// addElicitations adds the ids of the URL elicitations in an error.
func (r *recentIDs) addElicitations(backend string, failure []byte) {
	list, _ := protocol.URLElicitations(failure)
	n := 0
	wire.EachElement(list, func(one []byte) bool {
		id, _ := wire.Lookup(one, "elicitationId")
		r.add(backend, wire.Unquote(id))
		n++
		return n < maxRecentIDs
	})
}
