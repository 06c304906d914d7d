package gateway

import (
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
