package gateway

import (
	"fmt"
	"testing"
)

// Suspended calls are bounded; one principal gets half.
func TestSuspended_Limit(t *testing.T) {
	var p suspendedCalls
	add := func(id, principal string) bool {
		return p.add(&resumableCall{id: id, client: &statelessClient{principal: principal}})
	}
	for n := range maxSuspended / 2 {
		if !add(fmt.Sprint(n), "crowd") {
			t.Fatalf("no room for call %d", n)
		}
	}
	if add("more", "crowd") || !add("7", "crowd") {
		t.Error("there is room beyond the bound, or none for one that waits already")
	}
	for n := range maxSuspended / 2 {
		if !add(fmt.Sprint("other ", n), "other") {
			t.Fatalf("no room for call %d of another principal", n)
		}
	}
	if add("own", "third") {
		t.Error("there is room beyond the bound")
	}
	p.remove(p.find("7"))
	if !add("own", "third") {
		t.Error("there is no room where one has gone")
	}
}

// Stateless clients' tasks are bounded for all principals together.
func TestStatelessTasks_Limit(t *testing.T) {
	var all statelessTasks
	for n := range maxStatelessTasks {
		if !all.reserve(fmt.Sprint(n / maxTasks)) {
			t.Fatalf("no room for task %d", n)
		}
	}
	if all.reserve("new") {
		t.Error("there is room beyond the bound")
	}
	all.unreserve("0")
	if all.reserve("1") || !all.reserve("new") {
		t.Error("the place that is free is not for whom it should be")
	}
}
