package peer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestResponsesFindTheirCalls(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		var all []*recordingHandler
		for i := range 5 {
			c, _ := k.send(request(`"same"`, fmt.Sprintf(`,"n":%d`, i)), &peer.Call{})
			all = append(all, c)
		}
		for i := range 5 {
			k.remote.Want(
				fmt.Sprintf(
					`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","n":%d}}`,
					i+1, i))
		}
		for _, i := range []int{4, 0, 2, 1, 3} {
			k.remote.SendResult(wire.ID(fmt.Sprint(i+1)), fmt.Sprintf(`{"n":%d}`, i))
		}
		for i, c := range all {
			m, err := c.wantOutcome(t)
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`, i+1,
				i); err != nil || string(m.Raw()) != want {
				t.Errorf("call %d: got %s, %v\nwant %s", i, m.Raw(), err, want)
			}
		}
	})
}

func TestOnlyIDTokenAndNameOfACallAreReplaced(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		m := message(
			`{ "x":1, "params":{"arguments":{"id":5,"name":"t","id":5,"progressToken":1e400},"_meta":{"vendor":"\u003c","progressToken":"p"},` +
				`"name":"gh__t"} ,"method":"tools/call","id":"c" ,"jsonrpc":"2.0"}`)
		k.send(m, &peer.Call{Name: []byte(`"own/t"`), Token: `"p"`})
		k.remote.Want(
			`{ "x":1, "params":{"arguments":{"id":5,"name":"t","id":5,"progressToken":1e400},"_meta":{"vendor":"\u003c","progressToken":1},` +
				`"name":"own/t"} ,"method":"tools/call","id":1 ,"jsonrpc":"2.0"}`)
	})
}

func TestErrorResponsesAreForwardedUnchanged(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		c, _ := k.send(request("1", ""), &peer.Call{})
		k.remote.Send(
			`{"error": {"code":-32042,"message":"\u00e9","data":{"x":1.0},"odd":[]}, "id":1,"jsonrpc":"2.0"}`)
		m, err := c.wantOutcome(t)
		if want := `{"error": {"code":-32042,"message":"\u00e9","data":{"x":1.0},"odd":[]}, "id":1,"jsonrpc":"2.0"}`; err != nil || string(m.Raw()) != want {
			t.Errorf("got %s, %v\nwant %s", m.Raw(), err, want)
		}
	})
}

func TestID_02_AStringIDIsAcceptedWithOneWarning(t *testing.T) {
	log, logger := mcptest.NewLog()
	inBubble(t, peer.Options{Log: func() *slog.Logger { return logger }},
		func(t *testing.T, k *testPeer) {
			for i := 1; i <= 3; i++ {
				c, _ := k.send(request("1", ""), &peer.Call{})
				k.remote.SendResult(wire.ID(fmt.Sprintf(`"%d"`, i)), "{}")
				if m, err := c.wantOutcome(t); err != nil || m.Part(wire.PartResult) == nil {
					t.Errorf("call %d: %s, %v", i, m.Raw(), err)
				}
			}
			if warnings := log.Warnings(); len(warnings) != 1 ||
				!strings.Contains(warnings[0], "string in place of") {
				t.Errorf("logged %q, want one warning", warnings)
			}
		})
}

// A string that does not contain a number is not taken for the id of a call, so that there is no
// warning.
func TestOtherStringsAreNotAcceptedAsIDs(t *testing.T) {
	log, logger := mcptest.NewLog()
	inBubble(t, peer.Options{Log: func() *slog.Logger { return logger }},
		func(t *testing.T, k *testPeer) {
			k.remote.Send(`{"jsonrpc":"1.0","id":"init-1","method":"ping"}`)
			k.remote.Next()
			if lines := log.Lines("string in place of"); len(lines) != 0 {
				t.Errorf("logged %q", lines)
			}
		})
}

func TestNOTIF_15_UnknownResponsesAreDropped(t *testing.T) {
	log, logger := mcptest.NewLog()
	inBubble(t, peer.Options{Log: func() *slog.Logger { return logger }},
		func(t *testing.T, k *testPeer) {
			c, _ := k.send(request("1", ""), &peer.Call{})
			k.remote.Next()
			for _, id := range []wire.ID{"999999", "null", "0", "-1", "2", `""`, `"x"`, "1.0",
				"1e0",
				"99999999999999999999"} {
				k.remote.SendResult(id, "{}")
				k.remote.SendError(id, `{"code":-1,"message":"x"}`)
			}
			k.remote.WantNothing()
			c.wantOpen(t)
			k.remote.SendResult("1", "{}")
			if _, err := c.wantOutcome(t); err != nil {
				t.Error(err)
			}
			if warnings := log.Warnings(); len(warnings) != 1 {
				t.Errorf("logged %q, want one warning", warnings)
			}
		})
}

func TestNOTIF_04_ProgressArrivesInOrderBeforeTheResult(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		c, _ := k.send(request("1", `,"_meta":{"progressToken":"p"}`), &peer.Call{Token: `"p"`})
		k.remote.Next()
		for i := range 3 {
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d,"progressToken":1}}`, i)
		}
		k.remote.SendResult("1", "{}")
		// too late
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":9,"progressToken":1}}`)
		c.wantOutcome(t)
		want := make([]string, 3)
		for i := range want {
			want[i] = fmt.Sprintf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d,"progressToken":"p"}}, 0 answers`, i)
		}
		if !slices.Equal(c.progress, want) {
			t.Errorf("got %q\nwant %q", c.progress, want)
		}
	})
}

func TestProgressIsForwardedOnlyToCallsWithAToken(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		withoutToken, _ := k.send(request("1", ""), &peer.Call{})
		warnings, _ := k.send(request("2", `,"_meta":{"progressToken":0}`), &peer.Call{Token: "0"})
		for _, token := range []string{"1", "2", "0", `"p"`, "null", "{}", "77"} {
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":%s}}`, token)
		}
		for _, params := range []string{`{}`, `[]`, `{"progressToken":[2]}`, `{"progress":"x"}`} {
			k.remote.Sendf(`{"jsonrpc":"2.0","method":"notifications/progress","params":%s}`,
				params)
		}
		k.remote.Send(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
		withoutToken.wantOpen(t)
		warnings.wantOpen(t)
		if len(withoutToken.progress) != 0 || len(warnings.progress) != 1 {
			t.Errorf("progress: %q, %q, want none and one", withoutToken.progress,
				warnings.progress)
		}
		if len(k.notifications) != 0 {
			t.Errorf("%d of them were passed to the Handler", len(k.notifications))
		}
	})
}

func TestMalformedInputWithAnIDFailsThatCall(t *testing.T) {
	inBubble(t, peer.Options{OnMalformed: func(*transport.MalformedError) {}},
		func(t *testing.T, k *testPeer) {
			other, _ := k.send(request("1", ""), &peer.Call{})
			c, _ := k.send(request("2", ""), &peer.Call{})
			k.remote.TakeAll()
			k.remote.Send(`{"jsonrpc":"2.0","id":2}`)
			_, err := c.wantOutcome(t)
			if _, ok := errors.AsType[*peer.BadResponseError](err); !ok {
				t.Errorf("it ended with %v", err)
			}
			k.remote.Send(`✓ server ready`)
			k.remote.WantNothing()
			other.wantOpen(t)
		})
}

func TestCallWaitsForTheResult(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		results := make(chan string, 2)
		call := func(ctx context.Context) {
			result, err := k.Call(ctx, "tools/list", []byte(`{"cursor":"x"}`))
			results <- fmt.Sprintf("%s, %v", result, err)
		}
		go call(t.Context())
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`)
		k.remote.SendResult("1", `{"tools":[]}`)
		if got := <-results; got != `{"tools":[]}, <nil>` {
			t.Error(got)
		}
		go call(t.Context())
		k.remote.Next()
		k.remote.SendError("2", `{"code":-32601,"message":"no such"}`)
		if got := <-results; got != `, no such` {
			t.Error(got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go call(ctx)
		k.remote.Next()
		if got := <-results; got != `, context deadline exceeded` {
			t.Error(got)
		}
		k.remote.Want(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"context deadline exceeded","requestId":3}}`)
	})
}

// A response, a cancellation, a timeout, the end of the connection, and progress occur at the same
// time.
func TestEachCallCompletesOnce(t *testing.T) {
	outcomes := make(map[string]int)
	for round := range 150 {
		inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
			const n = 16
			var all []*recordingHandler
			var pending []*peer.Call
			for i := range n {
				o := &peer.Call{Token: "0"}
				if (i+round)%3 != 0 {
					o.Timeout = time.Second
				}
				c, p := k.send(request("1", `,"_meta":{"progressToken":0}`), o)
				all, pending = append(all, c), append(pending, p)
			}
			at := func(do func(i int)) {
				go func() {
					time.Sleep(time.Second)
					for i := range n {
						do((i*7 + round) % n)
					}
				}()
			}
			at(func(i int) { k.remote.SendResult(wire.ID(fmt.Sprint(i+1)), "{}") })
			at(func(i int) { pending[i].Cancel(nil) })
			at(func(i int) {
				k.remote.Sendf(
					`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d}}`, i+1)
			})
			if round%2 == 0 {
				at(func(i int) {
					if i == round%n {
						k.remote.Exit("exit 1", "")
					}
				})
			}
			time.Sleep(time.Second)
			for _, c := range all {
				_, err := c.wantOutcome(t)
				switch {
				case err == nil:
					outcomes["answered"]++
				case errors.Is(err, peer.ErrTimeout):
					outcomes["timeout"]++
				case errors.Is(err, peer.ErrCancelled):
					outcomes["cancelled"]++
				default:
					outcomes["lost"]++
				}
			}
		})
	}
	t.Log(outcomes)
	if len(outcomes) < 3 {
		t.Errorf("not every outcome has occurred: %v", outcomes)
	}
}
