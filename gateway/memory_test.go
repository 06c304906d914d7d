package gateway

import (
	"fmt"
	"strings"
	"testing"

	"mcpgateway/internal/peer"
)

func TestOnlyTheLatestIsRemembered(t *testing.T) {
	var r recent
	r.add("gh", strings.Repeat("x", maxRef+1))
	r.add("gh", "")
	for i := range maxRecent + 1 {
		r.add("gh", fmt.Sprint(i))
		r.add("gh", fmt.Sprint(i)) // is in it already
	}
	if len(r.refs) != maxRecent || r.has("gh", "0") || !r.has("gh", "1") || !r.has("gh", fmt.Sprint(maxRecent)) {
		t.Errorf("it remembers %d, from %v on", len(r.refs), r.refs[0])
	}
	if r.has("docs", "1") || len(r.of("1")) != 1 || r.of("0") != nil {
		t.Error("it does not know whose an id is")
	}
}

// However ids clash, no two tasks are one to the client, and each leads back to
// where it is.
func TestTasksHaveIDsOfTheirOwn(t *testing.T) {
	var all tasks
	seen := make(map[string]bool)
	for _, own := range []ref{{"a", "t"}, {"b", "t"}, {"b", "b:t"}, {"c", "b:t"}, {"c", "t"}, {"c", "c:t"}, {"c:t", "t"}, {"c", "c:c:t"}, {"d", "c:t~2"}, {"c:c", "t"}} {
		if !all.book() {
			t.Fatal("no room")
		}
		exposed := all.add(own.backend, own.id, &peer.ProgressRelay{})
		if at, ok := all.find(exposed); !ok || at != own || seen[exposed] {
			t.Errorf("%v is %s, which is %v", own, exposed, at)
		}
		if got, ok := all.expose(own.backend, own.id); !ok || got != exposed {
			t.Errorf("%v is %s, or %s", own, exposed, got)
		}
		seen[exposed] = true
	}
	all.book()
	if got := all.add("b", "t", &peer.ProgressRelay{}); got != "b:t" || len(all.all) != len(seen) || all.booked != 0 {
		t.Errorf("a task made anew is %s", got)
	}
}

// A task that has made room is gone altogether.
func TestAForgottenTaskLeavesNothing(t *testing.T) {
	var all tasks
	for i := range maxTasks {
		all.book()
		all.add("a", fmt.Sprint(i/2), &peer.ProgressRelay{})
		all.end("a", fmt.Sprint(i/2))
	}
	all.book()
	all.add("b", "0", &peer.ProgressRelay{}) // which a has
	all.end("b", "0")
	for i := range 2 * maxTasks {
		if !all.book() {
			t.Fatal("no room")
		}
		all.add("c", fmt.Sprint(i), &peer.ProgressRelay{})
		all.end("c", fmt.Sprint(i))
	}
	if len(all.all) != maxTasks || len(all.exposed) != maxTasks || len(all.own) != maxTasks || all.renamed.Load() != 0 || len(all.at()) != 1 {
		t.Errorf("%d, %d, %d tasks, %d renamed, of %v", len(all.all), len(all.exposed), len(all.own), all.renamed.Load(), all.at())
	}
}
