package peer_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

var batches = peer.Options{AllowBatches: func() bool { return true }}

func TestMission_B_ABatchIsAnsweredInItsOrder(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(` [ {"jsonrpc":"2.0","id":1,"method":"m"}, {"jsonrpc":"2.0","method":"n"} , {"jsonrpc":"2.0","id":"2","method":"ping"},` +
			`{"jsonrpc":"2.0","id":null,"method":"m"},{"jsonrpc":"2.0","id":4,"method":"m"}]`)
		first, second, third := <-k.asked, <-k.asked, <-k.asked
		if m := <-k.told; m.Method() != "n" {
			t.Errorf("told of %s", m.Raw())
		}
		third.Fail(wire.Errorf(-32601, "no"))
		second.Forward(message(`{"result":"<&>","jsonrpc":"2.0","id":9}`))
		k.far.WantNothing() // it is not complete
		first.Reply([]byte(`"one"`))
		k.far.Want(`[{"jsonrpc":"2.0","id":1,"result":"one"},{"jsonrpc":"2.0","id":"2","result":{}},` +
			`{"result":"<&>","jsonrpc":"2.0","id":null},{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no"}}]`)
		k.far.WantNothing()
	})
}

func TestABatchOfOneIsAnsweredByAnArray(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`)
		k.far.Want(`[{"jsonrpc":"2.0","id":1,"result":{}}]`)
	})
}

func TestMission_B_ABatchOfNotificationsGetsNothing(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b","params":[]}]`)
		k.far.WantNothing()
		if len(k.told) != 2 {
			t.Errorf("told of %d notifications, want 2", len(k.told))
		}
	})
}

// JSON-RPC 2.0 §7: an array with nothing valid in it.
func TestAnEmptyBatchIsOneInvalidRequest(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[ ]`)
		k.far.Want(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: the batch is empty"}}`)
		k.far.WantNothing()
	})
}

func TestInvalidElementsOfABatchAreAnsweredInTheirPlaces(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[1,{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"1.0","id":"x","method":"m"},[],{"jsonrpc":"2.0","id":1,"method":"ping"},{}]`)
		k.far.Want(`[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a message is an object"}},` +
			`{"jsonrpc":"2.0","id":1,"result":{}},` +
			`{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"Invalid request: \"jsonrpc\" must be \"2.0\""}},` +
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a batch in a batch"}},` +
			`{"jsonrpc":"2.0","id":1,"result":{}},` +
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: \"jsonrpc\" must be \"2.0\""}}]`)
	})
}

// A server prints arrays to its output that are not meant as JSON-RPC. It gets no answer to them,
// least of all an array, at which it may end. Its requests are answered.
func TestArraysInTheOutputOfAServerAreNoise(t *testing.T) {
	for sent, want := range map[string]string{
		`[]`:               "",
		`[1,2,3]`:          "",
		`["a",{"b":1},[]]`: "",
		`[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]`:                     "",
		`[{"jsonrpc":"2.0","method":"m","Method":"n","id":1}]`:             `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: \"Method\" differs from a known member only in case"}}`,
		`[1,{"jsonrpc":"2.0","id":1,"method":"ping"},{"level":"info"},[]]`: `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
	} {
		n := 0
		opts := batches
		opts.OnMalformed = func(*transport.MalformedError) { n++ }
		inBubble(t, opts, func(t *testing.T, k *talk) {
			k.far.Send(sent)
			if want != "" {
				k.far.Want(want)
			}
			k.far.WantNothing()
		})
		if n == 0 {
			t.Errorf("%s: the owner saw no noise", sent)
		}
	}
}

func TestADuplicateIDWithinABatchIsRefused(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":1,"method":"m"}]`)
		synctest.Wait() // both are read while the first is open
		(<-k.asked).Reply([]byte("{}"))
		k.far.Want(`[{"jsonrpc":"2.0","id":1,"result":{}},` +
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: a request with this id is in flight"}}]`)
		k.far.WantNothing()
	})
}

func TestACancelledElementIsLeftOutOfTheAnswer(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`)
		first, second := <-k.asked, <-k.asked
		var o owner
		first.OnCancel(&o)
		second.Reply([]byte("2"))
		k.far.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		k.far.Want(`[{"jsonrpc":"2.0","id":2,"result":2}]`)
		if told := o.heard(); first.Reply([]byte("1")) || len(told) != 1 {
			t.Errorf("the owner was told %q, or an answer was taken", told)
		}
		k.far.WantNothing()
	})
}

func TestABatchThatIsCancelledWholeGetsNothing(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		k.far.Send(`[{"jsonrpc":"2.0","id":1,"method":"m"},` +
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`)
		r := <-k.asked
		k.far.WantNothing()
		if r.Reply([]byte("1")) {
			t.Error("an answer was taken")
		}
	})
}

func TestResponsesInABatchFindTheirCalls(t *testing.T) {
	inBubble(t, batches, func(t *testing.T, k *talk) {
		one, _ := k.send(request("1", ""), &peer.Call{})
		two, _ := k.send(request("2", ""), &peer.Call{})
		k.far.TakeAll()
		k.far.Send(`[{"jsonrpc":"2.0","id":2,"result":{"n":2}},{"jsonrpc":"2.0","id":1,"result":{"n":1}}]`)
		for i, c := range []*caller{one, two} {
			if m, err := c.end(t); err != nil || string(m.Part(wire.PartResult)) != []string{`{"n":1}`, `{"n":2}`}[i] {
				t.Errorf("call %d: %s, %v", i, m.Raw(), err)
			}
		}
		k.far.WantNothing()
	})
}

func TestMission_D_BatchesAreRefusedWhereThereAreNone(t *testing.T) {
	for name, o := range map[string]peer.Options{
		"never": {}, "not now": {AllowBatches: func() bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, o, func(t *testing.T, k *talk) {
				for _, batch := range []string{`[]`, `[{"jsonrpc":"2.0","id":1,"method":"m"}]`, `[{"jsonrpc":"2.0","method":"n"}]`} {
					k.far.Send(batch)
					k.far.Want(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Batch requests not supported"}}`)
				}
				synctest.Wait()
				if len(k.asked)+len(k.told) != 0 {
					t.Error("something of it came through")
				}
			})
		})
	}
}

// A request that may not stand in a batch is refused in its place, whatever it asks, and
// said to be refused; the others are served.
func TestARequestThatMayNotStandInABatch(t *testing.T) {
	var refused []string
	options := batches
	options.RejectInBatch = func(m wire.Message) *wire.Error {
		if m.Name() != "alone" {
			return nil
		}
		return wire.Errorf(wire.CodeInvalidRequest, "alone")
	}
	options.OnRejected = func(m wire.Message, err *wire.Error) { refused = append(refused, string(m.ID())+" "+err.Message) }
	inBubble(t, options, func(t *testing.T, k *talk) {
		const alone = `"params":{"name":"alone"}}`
		const no = `"error":{"code":-32600,"message":"alone"}}`
		k.far.Send(`[{"jsonrpc":"2.0","id":1,"method":"m",` + alone + `,{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","method":"n",` + alone +
			`,{"jsonrpc":"2.0","id":3,"method":"ping",` + alone + `,{"jsonrpc":"2.0","id":2,"method":"m",` + alone + `]`)
		if m := <-k.told; m.Method() != "n" {
			t.Errorf("told of %s", m.Raw())
		}
		r := <-k.asked
		k.far.WantNothing()
		r.Reply([]byte(`{}`))
		k.far.Want(`[{"jsonrpc":"2.0","id":1,` + no + `,{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":3,` + no + `,{"jsonrpc":"2.0","id":2,` + no + `]`)
		k.far.Send(`[{"jsonrpc":"2.0","id":1,"method":"m",` + alone + `]`)
		k.far.Want(`[{"jsonrpc":"2.0","id":1,` + no + `]`)
		if got := fmt.Sprint(refused); got != "[1 alone 3 alone 2 alone 1 alone]" {
			t.Errorf("refused %s", got)
		}
		k.far.Send(`{"jsonrpc":"2.0","id":1,"method":"m",` + alone)
		(<-k.asked).Reply([]byte(`{}`))
		k.far.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}
