package gateway

import (
	"fmt"
	"strings"
	"testing"
)

func TestRecentIDs_ForgetsOldest(t *testing.T) {
	var r recentIDs
	r.add("gh", strings.Repeat("x", maxIDSize+1))
	r.add("gh", "")
	for i := range maxRecentIDs + 1 {
		r.add("gh", fmt.Sprint(i))
		r.add("gh", fmt.Sprint(i)) // already stored
	}
	if len(r.ids) != maxRecentIDs || r.has("gh", "0") || !r.has("gh", "1") ||
		!r.has("gh", fmt.Sprint(maxRecentIDs)) {
		t.Errorf("%d ids are stored, beginning with %v", len(r.ids), r.ids[0])
	}
	if r.has("docs", "1") || len(r.backends("1")) != 1 || r.backends("0") != nil {
		t.Error("the backends of an id are wrong")
	}
}

// Tasks with colliding ids get different client ids, and each client id maps to the task's
// backend.
func TestSessionTasks_UniqueClientIDs(t *testing.T) {
	var all sessionTasks
	seen := make(map[string]bool)
	for _, own := range []scopedID{{"a", "t"}, {"b", "t"}, {"b", "b:t"}, {"c", "b:t"}, {"c", "t"},
		{"c", "c:t"}, {"c:t", "t"}, {"c", "c:c:t"}, {"d", "c:t~2"}, {"c:c", "t"}} {
		if !all.reserve() {
			t.Fatal("rejected")
		}
		clientID := all.add(own.backend, own.id, func() {})
		if at, ok := all.toBackend(clientID); !ok || at != own || seen[clientID] {
			t.Errorf("task %v has the client id %s, which maps to %v", own, clientID, at)
		}
		if got, ok := all.toClient(own.backend, own.id); !ok || got != clientID {
			t.Errorf("task %v has the client ids %s and %s", own, clientID, got)
		}
		seen[clientID] = true
	}
	all.reserve()
	if got := all.add("b", "t", func() {}); got != "b:t" || len(all.all) != len(seen) ||
		all.reserved != 0 {
		t.Errorf("a task that was created again has the client id %s", got)
	}
}

// The tables contain no data of an evicted task.
func TestSessionTasks_EvictedTaskLeavesNothing(t *testing.T) {
	var all sessionTasks
	for i := range maxTasks {
		all.reserve()
		all.add("a", fmt.Sprint(i/2), func() {})
		all.end("a", fmt.Sprint(i/2))
	}
	all.reserve()
	all.add("b", "0", func() {}) // backend "a" has had a task with this id
	all.end("b", "0")
	for i := range 2 * maxTasks {
		if !all.reserve() {
			t.Fatal("rejected")
		}
		all.add("c", fmt.Sprint(i), func() {})
		all.end("c", fmt.Sprint(i))
	}
	if len(all.all) != maxTasks || len(all.byClientID) != maxTasks ||
		len(all.byBackendID) != maxTasks || all.renamed.Load() != 0 || len(all.backends()) != 1 {
		t.Errorf("%d, %d, %d tasks, %d renamed, of %v", len(all.all), len(all.byClientID),
			len(all.byBackendID), all.renamed.Load(), all.backends())
	}
}
