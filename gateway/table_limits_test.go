package gateway

import (
	"fmt"
	"testing"

	"mcpgateway/internal/wire"
)

// The number of suspended calls is bounded. One principal gets half.
func TestSuspended_Limit(t *testing.T) {
	var p suspendedCalls
	add := func(id, principal string) bool {
		return p.add(&resumableCall{id: id, client: &statelessClient{principal: principal}})
	}
	for n := range maxSuspended / 2 {
		if !add(fmt.Sprint(n), "crowd") {
			t.Fatalf("call %d was rejected", n)
		}
	}
	if add("more", "crowd") || !add("7", "crowd") {
		t.Error("accepted beyond the limit, or rejected one that is in the table")
	}
	for n := range maxSuspended / 2 {
		if !add(fmt.Sprint("other ", n), "other") {
			t.Fatalf("call %d of another principal was rejected", n)
		}
	}
	if add("own", "third") {
		t.Error("accepted beyond the limit")
	}
	p.remove(p.find("7"))
	if !add("own", "third") {
		t.Error("rejected although a slot is free")
	}
}

// The number of tasks of all stateless clients is bounded.
func TestStatelessTasks_Limit(t *testing.T) {
	var all statelessTasks
	for n := range maxStatelessTasks {
		if !all.reserve(fmt.Sprint(n / maxTasks)) {
			t.Fatalf("task %d was rejected", n)
		}
	}
	if all.reserve("new") {
		t.Error("accepted beyond the limit")
	}
	all.unreserve("0")
	if all.reserve("1") || !all.reserve("new") {
		t.Error("the free slot has the wrong owner")
	}
}

// The responses of a session client to the input requests of one result are bounded together.
func TestInputResponsesLimit(t *testing.T) {
	object := append([]byte("{}"), make([]byte, maxInputBytes/4)...)
	var answers []wire.Member
	for n := range 4 {
		answers = append(answers, wire.Member{Key: fmt.Sprint(n), Text: object[:2]})
	}
	if all, err := joinAnswers(answers); string(all) != `{"0":{},"1":{},"2":{},"3":{}}` {
		t.Errorf("got %s, %v", all, err)
	}
	for n := range answers {
		answers[n].Text = object // together 8 bytes more than the limit
	}
	if _, err := joinAnswers(answers); err == nil {
		t.Error("accepted beyond the limit")
	}
}
