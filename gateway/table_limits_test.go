package gateway

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/quota"
	"mcpgateway/internal/wire"
)

func ofToken(name string) *principal.Principal {
	return principal.FromToken(principal.TokenIdentity{Name: name})
}

// The number of suspended calls is bounded. One principal gets half.
func TestSuspended_Limit(t *testing.T) {
	var p suspendedCalls
	add := func(id, name string) bool {
		return p.add(&resumableCall{id: id, client: &statelessClient{principal: ofToken(name)}})
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
		if !all.reserve(ofToken(fmt.Sprint(n / maxTasks))) {
			t.Fatalf("task %d was rejected", n)
		}
	}
	if all.reserve(ofToken("new")) {
		t.Error("accepted beyond the limit")
	}
	all.unreserve(ofToken("0"))
	if all.reserve(ofToken("1")) || !all.reserve(ofToken("new")) {
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

// Stored messages keep only their own bytes in memory, which count against a limit, even if they
// arrived as small parts of a longer text: in a batch, or in one read with other messages.
func TestStoredMessages_KeepOnlyTheirText(t *testing.T) {
	const update = `{"jsonrpc":"2.0","method":"notifications/resources/updated",` +
		`"params":{"uri":"x:%d"}}`
	const status = `{"jsonrpc":"2.0","method":"notifications/tasks/status",` +
		`"params":{"taskId":"%d","status":"working"}}`
	const result = `{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`
	const messages = 60
	longer := strings.Repeat("x", 128<<10)
	g := new(Gateway)
	var held heldNotifications
	var calls callTracker
	creator := &sessionCall{asksForTask: true}
	calls.add(creator)
	var suspended []*resumableCall
	var bridges []*legacyTaskBridge
	session := &Session{clientConn: clientConn{g: g}}
	for name, c := range map[string]struct {
		message string
		store   func(m wire.Message)
	}{
		"held notification": {update, func(m wire.Message) { held.put(m, &g.heldBytes) }},
		"early status": {status, func(m wire.Message) {
			calls.keepEarlyStatus("", contract.Attribution{}, m)
		}},
		"response to a suspended call": {result, func(m wire.Message) {
			rc := &resumableCall{client: &statelessClient{g: g}}
			rc.storeResponseLocked(contract.BackendResponse{Message: m})
			suspended = append(suspended, rc)
		}},
		"result of a task": {result, func(m wire.Message) {
			b := &legacyTaskBridge{task: &statelessTask{g: g}, changed: make(chan struct{})}
			b.result = &resultRequest{bridge: b, done: make(chan struct{})}
			b.result.OnResponse(contract.BackendResponse{Message: m})
			bridges = append(bridges, b)
		}},
		"result that becomes a task": {result, func(m wire.Message) {
			session.tasks.reserve()
			c := &sessionCall{clientCall: clientCall{conn: &session.clientConn, g: g}, s: session,
				taskReserved: true}
			c.toClientResponse(m)
		}},
	} {
		before := mcptest.LiveHeap()
		for n := range messages {
			line := fmt.Appendf(nil, `[`+c.message+`,{"jsonrpc":"2.0","method":"x",`+
				`"params":{"x":"%s"}}]`, n, longer)
			batch, err := wire.Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			m, err := wire.Parse(batch.Elements()[0])
			if err != nil {
				t.Fatal(err)
			}
			c.store(m)
		}
		if kept := mcptest.LiveHeap() - before; kept > messages*int64(len(longer))/6 {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
	}
	if len(held.byObject) != messages || len(calls.earlyStatuses) != messages ||
		suspended[0].storedBytes == 0 || bridges[0].result.storedBytes == 0 ||
		len(session.tasks.all) != messages {
		t.Error("some messages are not stored")
	}
	runtime.KeepAlive(creator)
}
