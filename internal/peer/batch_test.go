package peer_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

var batchOptions = peer.Options{AllowBatches: func() bool { return true }}

func TestMission_B_ABatchIsAnsweredInOrder(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(
			` [ {"jsonrpc":"2.0","id":1,"method":"m"}, {"jsonrpc":"2.0","method":"n"} , {"jsonrpc":"2.0","id":"2","method":"ping"},` +
				`{"jsonrpc":"2.0","id":null,"method":"m"},{"jsonrpc":"2.0","id":4,"method":"m"}]`)
		first, second, third := <-k.requests, <-k.requests, <-k.requests
		if m := <-k.notifications; m.Method() != "n" {
			t.Errorf("notified of %s", m.Raw())
		}
		third.Fail(wire.Errorf(-32601, "no"))
		second.Forward(message(`{"result":"<&>","jsonrpc":"2.0","id":9}`))
		k.remote.WantNothing() // the batch is not complete
		first.Reply([]byte(`"one"`))
		k.remote.Want(
			`[{"jsonrpc":"2.0","id":1,"result":"one"},{"jsonrpc":"2.0","id":"2","result":{}},` +
				`{"result":"<&>","jsonrpc":"2.0","id":null},{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no"}}]`)
		k.remote.WantNothing()
	})
}

func TestABatchOfOneIsAnsweredWithAnArray(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`)
		k.remote.Want(`[{"jsonrpc":"2.0","id":1,"result":{}}]`)
	})
}

func TestMission_B_ABatchOfNotificationsGetsNothing(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b","params":[]}]`)
		k.remote.WantNothing()
		if len(k.notifications) != 2 {
			t.Errorf("notified of %d notifications, want 2", len(k.notifications))
		}
	})
}

// JSON-RPC 2.0 §7: an array without a valid element.
func TestAnEmptyBatchIsOneInvalidRequest(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(`[ ]`)
		k.remote.Want(
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: the batch is empty"}}`)
		k.remote.WantNothing()
	})
}

func TestInvalidElementsOfABatchAreAnsweredInOrder(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(
			`[1,{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"1.0","id":"x","method":"m"},[],{"jsonrpc":"2.0","id":1,"method":"ping"},{}]`)
		k.remote.Want(
			`[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a message is an object"}},` +
				`{"jsonrpc":"2.0","id":1,"result":{}},` +
				`{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"Invalid request: \"jsonrpc\" must be \"2.0\""}},` +
				`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a batch in a batch"}},` +
				`{"jsonrpc":"2.0","id":1,"result":{}},` +
				`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: \"jsonrpc\" must be \"2.0\""}}]`)
	})
}

// A server prints arrays that are not meant as JSON-RPC. Elements that are not valid messages get
// no response, except requests that are ambiguous. An array without a valid request gets no array,
// because an array might crash the server. Valid requests are answered.
func TestArraysInServerOutputAreMalformed(t *testing.T) {
	for sent, want := range map[string]string{
		`[]`:               "",
		`[1,2,3]`:          "",
		`["a",{"b":1},[]]`: "",
		`[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]`:                     "",
		`[{"jsonrpc":"2.0","method":"m","Method":"n","id":1}]`:             `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: \"Method\" differs from a known member only in case"}}`,
		`[1,{"jsonrpc":"2.0","id":1,"method":"ping"},{"level":"info"},[]]`: `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
	} {
		n := 0
		opts := batchOptions
		opts.OnMalformed = func(*transport.MalformedError) { n++ }
		inBubble(t, opts, func(t *testing.T, k *testPeer) {
			k.remote.Send(sent)
			if want != "" {
				k.remote.Want(want)
			}
			k.remote.WantNothing()
		})
		if n == 0 {
			t.Errorf("%s: OnMalformed was not called", sent)
		}
	}
}

func TestADuplicateIDWithinABatchIsRejected(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(
			`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":1,"method":"m"}]`)
		synctest.Wait() // both requests of the batch are read while the first one is in flight
		(<-k.requests).Reply([]byte("{}"))
		k.remote.Want(`[{"jsonrpc":"2.0","id":1,"result":{}},` +
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: a request with this id is in flight"}}]`)
		k.remote.WantNothing()
	})
}

func TestACancelledElementOfABatchGetsNoResponse(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(
			`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`)
		first, second := <-k.requests, <-k.requests
		var o cancelRecorder
		first.OnCancel(&o)
		second.Reply([]byte("2"))
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		k.remote.Want(`[{"jsonrpc":"2.0","id":2,"result":2}]`)
		if cancellations := o.recorded(); first.Reply([]byte("1")) || len(cancellations) != 1 {
			t.Errorf("the handler got %q, or a response was accepted", cancellations)
		}
		k.remote.WantNothing()
	})
}

func TestACompletelyCancelledBatchGetsNoResponse(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		k.remote.Send(`[{"jsonrpc":"2.0","id":1,"method":"m"},` +
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`)
		r := <-k.requests
		k.remote.WantNothing()
		if r.Reply([]byte("1")) {
			t.Error("a response was accepted")
		}
	})
}

func TestResponsesInABatchFindTheirCalls(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		one, _ := k.send(request("1", ""), &peer.Call{})
		two, _ := k.send(request("2", ""), &peer.Call{})
		k.remote.TakeAll()
		k.remote.Send(
			`[{"jsonrpc":"2.0","id":2,"result":{"n":2}},{"jsonrpc":"2.0","id":1,"result":{"n":1}}]`)
		for i, c := range []*recordingHandler{one, two} {
			if m, err := c.wantOutcome(t); err != nil ||
				string(m.Part(wire.PartResult)) != []string{`{"n":1}`, `{"n":2}`}[i] {
				t.Errorf("call %d: %s, %v", i, m.Raw(), err)
			}
		}
		k.remote.WantNothing()
	})
}

func TestMission_D_BatchesAreRejectedUnlessAllowed(t *testing.T) {
	for name, o := range map[string]peer.Options{
		"never": {}, "not allowed": {AllowBatches: func() bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, o, func(t *testing.T, k *testPeer) {
				for _, batch := range []string{`[]`, `[{"jsonrpc":"2.0","id":1,"method":"m"}]`,
					`[{"jsonrpc":"2.0","method":"n"}]`} {
					k.remote.Send(batch)
					k.remote.Want(
						`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Batch requests not supported"}}`)
				}
				synctest.Wait()
				if len(k.requests)+len(k.notifications) != 0 {
					t.Error("a part of the batch was processed")
				}
			})
		})
	}
}

// RejectInBatch rejects a request of a batch: the error has the position of the request, and
// OnRejected is called. The other requests are processed.
func TestRejectInBatch(t *testing.T) {
	var refused []string
	options := batchOptions
	options.RejectInBatch = func(m wire.Message) *wire.Error {
		if m.Name() != "alone" {
			return nil
		}
		return wire.Errorf(wire.CodeInvalidRequest, "alone")
	}
	options.OnRejected = func(m wire.Message, err *wire.Error) {
		refused = append(refused,
			string(m.ID())+" "+err.Message)
	}
	inBubble(t, options, func(t *testing.T, k *testPeer) {
		const alone = `"params":{"name":"alone"}}`
		const no = `"error":{"code":-32600,"message":"alone"}}`
		k.remote.Send(`[{"jsonrpc":"2.0","id":1,"method":"m",` + alone +
			`,{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","method":"n",` + alone +
			`,{"jsonrpc":"2.0","id":3,"method":"ping",` + alone +
			`,{"jsonrpc":"2.0","id":2,"method":"m",` + alone + `]`)
		if m := <-k.notifications; m.Method() != "n" {
			t.Errorf("notified of %s", m.Raw())
		}
		r := <-k.requests
		k.remote.WantNothing()
		r.Reply([]byte(`{}`))
		k.remote.Want(`[{"jsonrpc":"2.0","id":1,` + no +
			`,{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":3,` + no +
			`,{"jsonrpc":"2.0","id":2,` + no + `]`)
		k.remote.Send(`[{"jsonrpc":"2.0","id":1,"method":"m",` + alone + `]`)
		k.remote.Want(`[{"jsonrpc":"2.0","id":1,` + no + `]`)
		if got := fmt.Sprint(refused); got != "[1 alone 3 alone 2 alone 1 alone]" {
			t.Errorf("rejected %s", got)
		}
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m",` + alone)
		(<-k.requests).Reply([]byte(`{}`))
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// A message of a batch may be stored for long, such as an unread notification. It does not keep the
// other messages of the batch in memory.
func TestMessageOfABatchKeepsOnlyItsText(t *testing.T) {
	inBubble(t, batchOptions, func(t *testing.T, k *testPeer) {
		var stored []wire.Message
		longer := strings.Repeat("x", 128<<10)
		const messages = 50
		before := mcptest.LiveHeap()
		for range messages {
			k.remote.Send(`[{"jsonrpc":"2.0","method":"short"},` +
				`{"jsonrpc":"2.0","method":"long","params":{"x":"` + longer + `"}}]`)
			synctest.Wait()
			stored = append(stored, <-k.notifications)
			<-k.notifications
		}
		if kept := mcptest.LiveHeap() - before; kept > messages*int64(len(longer))/5 {
			t.Errorf("%d bytes are kept", kept)
		}
		runtime.KeepAlive(stored)
	})
}
