package gateway

import (
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/quota"
	"mcpgateway/internal/wire"
)

// The size of stored task results is bounded. A result is released with its task.
func TestStoredResultLimit(t *testing.T) {
	var k quota.Bytes
	var all sessionTasks
	const size = maxResultBytes / 4
	keep := func(id string) bool {
		if !k.Acquire(size, maxResultBytes) {
			return false
		}
		all.addPolled(&polledTask{scopedID: scopedID{"a", id}, result: make([]byte, size),
			budget: &k})
		return true
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		if !all.reserve() || !keep(id) {
			t.Fatal("rejected")
		}
	}
	if keep("5") {
		t.Error("accepted beyond the limit")
	}
	all.end("a", "1")
	all.mu.Lock()
	all.evictEndedLocked()
	all.mu.Unlock()
	if !all.reserve() || !keep("5") {
		t.Error("rejected although a task was evicted")
	}
	all.endAll()
	if !all.reserve() || !keep("6") { // the session has ended: the result is released at once
		t.Error("rejected after the end")
	}
	if k.Used() != 0 {
		t.Errorf("%d bytes are left", k.Used())
	}
}

// The stored states of ended tasks count against the same limit, until their tasks are removed.
func TestStoredStateLimit(t *testing.T) {
	g := &Gateway{}
	newBridge := func() *legacyTaskBridge {
		return &legacyTaskBridge{task: &statelessTask{g: g}, changed: make(chan struct{})}
	}
	cancelled := []byte(`{"status":"cancelled","x":"` + strings.Repeat("x", 1<<20) + `"}`)
	others := maxResultBytes - len(cancelled)*3/2 // results of other tasks
	g.resultBytes.Acquire(others, maxResultBytes)
	first, second := newBridge(), newBridge()
	first.keepFinal(cancelled)
	second.keepFinal(cancelled)
	if _, _, ok := first.finalState(); !ok || g.resultBytes.Used() != others+len(cancelled) {
		t.Errorf("stored: %v; %d bytes are used", ok, g.resultBytes.Used())
	}
	if _, _, ok := second.finalState(); ok {
		t.Error("stored beyond the limit")
	}
	first.close()
	first.keepFinal(cancelled) // the task is removed
	if n := g.resultBytes.Used(); n != others {
		t.Errorf("%d bytes are used, want %d", n, others)
	}
}

// Of a long state, only the short members that the gateway needs are stored.
func TestPolledTask_StoredStateLimit(t *testing.T) {
	p := polledTask{scopedID: scopedID{"a", "t"}}
	short := `{"taskId":"t","status":"working","x":1.0}`
	p.setStatus([]byte(short))
	if task, _ := p.last(); string(task) != short {
		t.Errorf("stored %s", task)
	}
	long := strings.Repeat("x", maxTaskSize)
	if !p.setStatus([]byte(`{"taskId":"` + long + `","status":"completed","statusMessage":"` + long +
		`","createdAt":"` + long + `","lastUpdatedAt":"2026","ttl":null}`)) {
		t.Error("the status has not changed")
	}
	const want = `{"taskId":"t","status":"completed","lastUpdatedAt":"2026","ttl":null}`
	if task, _ := p.last(); string(task) != want {
		t.Errorf("stored %s", task)
	}
}

// Each input request of a task is sent to the client once, unless it was cancelled. The number of
// input requests per task is bounded.
func TestPolledTask_InputLimit(t *testing.T) {
	var p polledTask
	for i := range maxTaskInputs {
		newInputs, full := p.claimInputs([]protocol.InputRequest{{Key: "a"},
			{Key: string(wire.Quote(string(rune('b' + i))))}})
		if full != (i == maxTaskInputs-1) {
			t.Fatalf("%d: full %v", i, full)
		}
		if want := min(2, 2-min(i, 1)); !full && len(newInputs) != want {
			t.Fatalf("%d: %d input requests", i, len(newInputs))
		}
	}
	p.unclaimInputs([]protocol.InputRequest{{Key: "a"}})
	if newInputs, full := p.claimInputs([]protocol.InputRequest{{Key: "a"}}); full ||
		len(newInputs) != 1 {
		t.Error("a cancelled input request is not sent again")
	}
}
