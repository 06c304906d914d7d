package gateway

import (
	"fmt"
	"testing"
)

// Calls that wait for their clients have a bound, of which one principal has half.
func TestParked_AreBounded(t *testing.T) {
	var p parked
	add := func(id, principal string) bool { return p.add(&errand{id: id, guest: &guest{principal: principal}}) }
	for n := range maxParked / 2 {
		if !add(fmt.Sprint(n), "crowd") {
			t.Fatalf("no room for call %d", n)
		}
	}
	if add("more", "crowd") || !add("7", "crowd") {
		t.Error("there is room beyond the bound, or none for one that waits already")
	}
	for n := range maxParked / 2 {
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

// Tasks of clients without sessions have a bound for all principals together.
func TestJobs_AreBounded(t *testing.T) {
	var all jobs
	for n := range maxJobs {
		if !all.book(fmt.Sprint(n / maxTasks)) {
			t.Fatalf("no room for task %d", n)
		}
	}
	if all.book("new") {
		t.Error("there is room beyond the bound")
	}
	all.unbook("0")
	if all.book("1") || !all.book("new") {
		t.Error("the place that is free is not for whom it should be")
	}
}
