package gateway

import (
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// What is kept of how tasks ended is bounded, and given back with the tasks.
func TestOutcomesAreKeptWithinABound(t *testing.T) {
	var k store
	var all tasks
	const size = maxStored / 4
	keep := func(id string) bool {
		if !k.keep(size) {
			return false
		}
		all.pursue(&pursuit{ref: ref{"a", id}, done: make([]byte, size), store: &k})
		return true
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		if !all.book() || !keep(id) {
			t.Fatal("no room")
		}
	}
	if keep("5") {
		t.Error("there is room for more than the bound")
	}
	all.end("a", "1")
	all.mu.Lock()
	all.forgetLocked()
	all.mu.Unlock()
	if !all.book() || !keep("5") {
		t.Error("there is no room where a task was forgotten")
	}
	all.endAll()
	if !all.book() || !keep("6") { // the session is over: it is given back at once
		t.Error("there is no room after the end")
	}
	if k.used != 0 {
		t.Errorf("%d bytes are left", k.used)
	}
}

// A question is put to the client once, unless it was taken back; and of one task there
// are not more than so many.
func TestQuestionsOfOneTaskAreBounded(t *testing.T) {
	var p pursuit
	for i := range maxAsked {
		fresh, full := p.take([]protocol.InputRequest{{Key: "a"}, {Key: string(wire.Quote(string(rune('b' + i))))}})
		if full != (i == maxAsked-1) {
			t.Fatalf("%d: full %v", i, full)
		}
		if want := min(2, 2-min(i, 1)); !full && len(fresh) != want {
			t.Fatalf("%d: %d are to be asked", i, len(fresh))
		}
	}
	p.giveBack([]protocol.InputRequest{{Key: "a"}})
	if fresh, full := p.take([]protocol.InputRequest{{Key: "a"}}); full || len(fresh) != 1 {
		t.Error("what was taken back is not asked again")
	}
}
