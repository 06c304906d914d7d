package gateway

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/quota"
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

// Notifications that cannot be sent yet are bounded in number and bytes, for one client and in
// total. The latest notification about each resource is stored.
func TestDelayedUpdates_Limits(t *testing.T) {
	var total quota.Bytes
	update := func(n, size int) wire.Message {
		return wire.NewNotification(protocol.NotificationResourceUpdated, wire.Encode(
			map[string]string{"uri": fmt.Sprint("x:", n), "x": strings.Repeat("x", size)}))
	}
	fill := func(updates []wire.Message) (*heldNotifications, int) {
		h := new(heldNotifications)
		for _, m := range updates {
			h.put(m, &total)
		}
		if h.size > maxDelayedBytes {
			t.Errorf("%d bytes are stored", h.size)
		}
		return h, len(h.byObject)
	}
	var short, long []wire.Message
	for n := range 2 * maxDelayedUpdates {
		short = append(short, update(n, 0))
	}
	for n := range 12 {
		long = append(long, update(n, maxDelayedBytes/9))
	}
	tooLong := update(0, maxDelayedBytes)
	small, n := fill(short)
	if n != maxDelayedUpdates {
		t.Errorf("updates of %d resources are stored", n)
	}
	small.put(update(0, 10), &total)
	all := small.takeAll(&total)
	if len(all) != n || len(all[0].Raw()) != len(update(0, 10).Raw()) {
		t.Errorf("%d updates, the first is %s", len(all), all[0].Raw())
	}

	one, n := fill(long)
	if n != 8 {
		t.Errorf("%d of the long updates are stored", n)
	}
	one.put(tooLong, &total)
	if one.size < maxDelayedBytes*8/9 || total.Used() != one.size {
		t.Errorf("%d bytes are stored, %d in total", one.size, total.Used())
	}
	others := maxAllDelayedBytes - maxDelayedBytes - maxDelayedBytes/2
	total.Acquire(others, maxAllDelayedBytes)
	two, n := fill(long)
	if n >= 8 || n < 4 || total.Used() > maxAllDelayedBytes {
		t.Errorf("%d updates are stored, %d bytes in total", n, total.Used())
	}
	one.takeAll(&total)
	two.takeAll(&total)
	total.Release(others)
	if used := total.Used(); used != 0 {
		t.Errorf("%d bytes are not released", used)
	}
}

// The bytes that held notifications keep in memory are bounded, also if they arrived in batches.
func TestHeldNotifications_KeepOnlyTheirText(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	var total quota.Bytes
	var h heldNotifications
	before := heap()
	for n := range 100 {
		line := fmt.Appendf(nil, `[{"jsonrpc":"2.0","method":"notifications/resources/updated",`+
			`"params":{"uri":"x:%d"}},{"jsonrpc":"2.0","method":"x","params":{"x":"%s"}}]`,
			n, strings.Repeat("x", 1<<20))
		batch, err := wire.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		m, err := wire.Parse(batch.Elements()[0])
		if err != nil {
			t.Fatal(err)
		}
		h.put(m, &total)
	}
	kept := heap() - before
	if kept > 10<<20 {
		t.Errorf("%d bytes are counted, %d are kept", total.Used(), kept)
	}
	runtime.KeepAlive(h)
}
