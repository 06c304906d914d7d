package peer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// ids are different ids of requests, in forms that clients use.
var ids = []wire.ID{
	"0", "-1", "1", `"1"`, `""`, "null", `"null"`, "9007199254740993", "9223372036854775808", "1.0",
	"1e0",
	`"init-1"`, `"ü"`, `"\u00fc"`, `"a\"b\\"`, `" "`,
}

func TestMission_B_AResponseCarriesTheIDOfItsRequest(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		for i, id := range ids {
			k.remote.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"m"}`, id)
			r := <-k.requests
			if r.RemoteID() != id {
				t.Errorf("the id %s became %s", id, r.RemoteID())
			}
			var want string
			switch i % 3 {
			case 0:
				r.Reply([]byte(`{"a":1}`))
				want = `{"jsonrpc":"2.0","id":%s,"result":{"a":1}}`
			case 1:
				r.Fail(wire.Errorf(-32601, "no <m>"))
				want = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no <m>"}}`
			case 2:
				r.Forward(
					message(`{"result" : {"n":1.10,"id":7},"id":4211, "jsonrpc":"2.0","x":null}`))
				want = `{"result" : {"n":1.10,"id":7},"id":%s, "jsonrpc":"2.0","x":null}`
			}
			k.remote.Want(fmt.Sprintf(want, id))
		}
	})
}

// Similar ids are different ids and may be in flight at the same time.
func TestID_05_IDsOfDifferentTypesDiffer(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		for _, id := range ids {
			k.remote.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"m"}`, id)
		}
		open := make(map[wire.ID]*peer.Request)
		for range ids {
			r := <-k.requests
			open[r.RemoteID()] = r
		}
		if len(open) != len(ids) {
			t.Fatalf("%d requests are open, want %d", len(open), len(ids))
		}
		for _, id := range ids {
			open[id].Reply(wire.Quote(string(id)))
			k.remote.Want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id,
				wire.Quote(string(id))))
		}
	})
}

func TestMission_A_IDNullIsARequest(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":null,"method":"ping"}`)
		k.remote.Want(`{"jsonrpc":"2.0","id":null,"result":{}}`)
		k.remote.Send(`{"jsonrpc":"2.0","method":"ping"}`) // without an id it is a notification
		k.remote.WantNothing()
	})
}

func TestARequestIsAnsweredOnce(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		r := <-k.requests
		if !r.Reply([]byte("{}")) {
			t.Error("the first response was rejected")
		}
		if r.Reply([]byte("{}")) || r.Fail(wire.Errorf(1, "x")) ||
			r.Forward(message(`{"jsonrpc":"2.0","id":1,"result":1}`)) {
			t.Error("a second response was accepted")
		}
		r.Notify(message(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		k.remote.WantNothing()
	})
}

// The response to a request does not end a later request with the same id.
func TestAResponseEndsOnlyOneRequest(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		first := <-k.requests
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		second := <-k.requests
		if first.Reply([]byte(`"late"`)) || !second.Reply([]byte(`"right"`)) {
			t.Error("a response ended the wrong request")
		}
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":"right"}`)
		k.remote.WantNothing()
	})
}

func TestADuplicateIDInFlightIsRejected(t *testing.T) {
	var refused []string
	o := peer.Options{OnRejected: func(m wire.Message, err *wire.Error) {
		refused = append(refused, fmt.Sprintf("%s %d", m.Raw(), err.Code))
	}}
	inBubble(t, o, func(t *testing.T, k *testPeer) {
		const line = `{"jsonrpc":"2.0","id":"d","method":"m"}`
		k.remote.Send(line)
		r := <-k.requests
		k.remote.Send(line)
		k.remote.Send(`{"jsonrpc":"2.0","id":"d","method":"ping"}`)
		for range 2 {
			k.remote.Want(
				`{"jsonrpc":"2.0","id":"d","error":{"code":-32600,"message":"Invalid request: a request with this id is in flight"}}`)
		}
		if !r.Reply([]byte("1")) {
			t.Error("the first request is no longer open")
		}
		k.remote.Want(`{"jsonrpc":"2.0","id":"d","result":1}`)
		k.remote.Send(line) // the id may be used again
		(<-k.requests).Reply([]byte("2"))
		k.remote.Want(`{"jsonrpc":"2.0","id":"d","result":2}`)
		if len(refused) != 2 || refused[0] != line+" -32600" {
			t.Errorf("rejected %q", refused)
		}
	})
}

func TestRequestsBeyondMaxInFlightAreRejectedExceptPings(t *testing.T) {
	inBubble(t, peer.Options{MaxInFlight: 2}, func(t *testing.T, k *testPeer) {
		for i := range 3 {
			k.remote.Sendf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)
		}
		k.remote.Want(
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Too many requests in flight: at most 2 are allowed; wait for answers"}}`)
		k.remote.Send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		k.remote.Want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		(<-k.requests).Reply([]byte("{}"))
		k.remote.Next()
		k.remote.Send(`{"jsonrpc":"2.0","id":4,"method":"m"}`)
		synctest.Wait()
		if len(k.requests) != 2 {
			t.Errorf("%d requests are open, want 2", len(k.requests))
		}
		k.remote.WantNothing()
	})
}

func TestMission_A_PingIsAnsweredWhileBusy(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.send(request("1", ""), &peer.Call{}) // the remote side has received a call
		k.remote.Next()
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`) // this side has a request
		r := <-k.requests
		k.remote.Send(`{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{}}}`)
		k.remote.Want(`{"jsonrpc":"2.0","id":"p","result":{}}`)
		result := make(chan string, 1)
		k.remote.ReceivePings()
		go func() { // in the other direction
			text, err := k.Call(t.Context(), "ping", nil)
			result <- fmt.Sprintf("%s, %v", text, err)
		}()
		k.remote.Want(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		k.remote.SendResult("2", "{}")
		if got := <-result; got != "{}, <nil>" {
			t.Errorf("the response to our ping is %s", got)
		}
		r.Reply([]byte("{}"))
		k.remote.Next()
		if len(k.requests) != 0 {
			t.Error("the ping was passed to the Handler")
		}
	})
}

func TestNotificationsAreNeverAnswered(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		lines := []string{
			`{"jsonrpc":"2.0","method":"window/logMessage","params":[1,"x"]}`,
			`{"jsonrpc":"2.0","method":"codex/event","params":"odd"}`,
			`{"jsonrpc":"2.0","method":"","params":null}`,
			`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t"}}`,
		}
		for _, line := range lines {
			k.remote.Send(line)
		}
		for _, line := range lines {
			if m := <-k.notifications; string(m.Raw()) != line {
				t.Errorf("notified of %s, want %s", m.Raw(), line)
			}
		}
		k.remote.WantNothing()
	})
}

func TestMalformedInputIsAnsweredUnlessHandled(t *testing.T) {
	lines := []string{"not JSON", `{"jsonrpc":"1.0","id":7,"method":"m"}`,
		`{"jsonrpc":"2.0","id":8}`, `42`}
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		for i, want := range []string{`"id":null,"error":{"code":-32700,`,
			`"id":7,"error":{"code":-32600,`, `"id":8,"error":{"code":-32600,`,
			`"id":null,"error":{"code":-32600,`} {
			k.remote.Send(lines[i])
			if got := k.remote.Next(); !strings.Contains(got, want) {
				t.Errorf("%s was answered with %s", lines[i], got)
			}
		}
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	n := 0
	inBubble(t, peer.Options{OnMalformed: func(*transport.MalformedError) { n++ }},
		func(t *testing.T, k *testPeer) {
			for _, line := range lines {
				k.remote.Send(line)
			}
			k.remote.WantNothing()
		})
	if n != len(lines) {
		t.Errorf("OnMalformed was called %d times, want %d", n, len(lines))
	}
}

// A cancelRecorder is a CancelHandler that records its calls.
type cancelRecorder struct {
	mu            sync.Mutex
	cancellations []string
}

// HandleCancel implements peer.CancelHandler.
func (o *cancelRecorder) HandleCancel(params []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancellations = append(o.cancellations, string(params))
}

// recorded waits until all goroutines are idle and returns the recorded params.
func (o *cancelRecorder) recorded() []string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cancellations
}

func TestNOTIF_13_NoResponseAfterACancellation(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":"1","method":"m"}`)
		r := <-k.requests
		var o cancelRecorder
		if !r.OnCancel(&o) {
			t.Fatal("the request is no longer open")
		}
		// another id
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1","reason":"<x>"}}`)
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`)
		synctest.Wait()
		r.Notify(message(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
		if r.Reply([]byte("{}")) || r.Fail(wire.Errorf(0, "Request cancelled")) ||
			r.Forward(message(`{"jsonrpc":"2.0","id":1,"result":1}`)) {
			t.Error("a response was accepted")
		}
		k.remote.WantNothing()
		if cancellations := o.recorded(); len(cancellations) != 1 ||
			cancellations[0] != `{"requestId":"1","reason":"<x>"}` {
			t.Errorf("the handler got %q", cancellations)
		}
		if r.OnCancel(&o) {
			t.Error("OnCancel still succeeds")
		}
	})
}

func TestNOTIF_14_UnknownCancellationsAreIgnored(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		(<-k.requests).Reply([]byte("{}"))
		k.remote.Next()
		for _, params := range []string{`{"requestId":1}`, `{"requestId":99}`, `{"requestId":null}`,
			`{"requestId":[1]}`, `{}`, `[]`, `null`} {
			k.remote.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}`,
				params)
		}
		k.remote.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		k.remote.WantNothing()
		if len(k.notifications) != 0 {
			t.Errorf("%d of them were passed to the Handler", len(k.notifications))
		}
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// A request may be cancelled while OnCancel sets its handler: either OnCancel fails or the
// handler is called.
func TestACancelHandlerIsRejectedOrCalled(t *testing.T) {
	refused, cancellations := 0, 0
	for range 300 {
		inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
			const n = 8
			for i := range n {
				k.remote.Sendf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)
			}
			synctest.Wait()
			var handlers [n]cancelRecorder
			var owned [n]bool
			for i := range n {
				r := <-k.requests
				go func() {
					time.Sleep(time.Second)
					owned[i] = r.OnCancel(&handlers[i])
				}()
			}
			time.Sleep(time.Second)
			k.Close()
			synctest.Wait()
			for i := range n {
				switch {
				case !owned[i] && len(handlers[i].recorded()) == 0:
					refused++
				case owned[i] && len(handlers[i].recorded()) == 1:
					cancellations++
				default:
					t.Fatalf("OnCancel: %v, handler called %d times", owned[i],
						len(handlers[i].recorded()))
				}
			}
		})
	}
	t.Logf("%d rejected, %d called", refused, cancellations)
}

func TestARemoteSideThatDoesNotReadIsDisconnected(t *testing.T) {
	log, logger := mcptest.NewLog()
	synctest.Test(t, func(t *testing.T) {
		conn, remote := mcptest.NewPausedPeer(t, "paused")
		k := &testPeer{requests: make(chan *peer.Request, 200)}
		p := peer.New(conn, k, peer.Options{Log: func() *slog.Logger { return logger }})
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		call := &recordingHandler{}
		p.Send(request("1", ""), &peer.Call{Handler: call})
		for i := range 100 {
			remote.Sendf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)
		}
		large := wire.Quote(strings.Repeat("x", 1<<20))
		n := 0
		for ; len(ended) == 0 && n < 100; n++ {
			(<-k.requests).Reply(large)
			synctest.Wait()
		}
		if err := <-ended; !errors.Is(err, transport.ErrFull) {
			t.Errorf("Run: %v, want %v", err, transport.ErrFull)
		}
		if n < 64 || n > 66 {
			t.Errorf("disconnected after %d MiB, want 64", n)
		}
		if _, err := call.wantOutcome(t); !errors.Is(err, transport.ErrFull) {
			t.Errorf("a call in flight ended with %v", err)
		}
		p.Close()
		remote.StartReading()
		if loud := log.Warnings(); len(loud) != 1 {
			t.Errorf("logged %q, want one warning", loud)
		}
	})
}

func TestDrainRequestsWaitsForOpenRequests(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.DrainRequests(t.Context()) // no request is open
		for i := range 3 {
			k.remote.Sendf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)
		}
		synctest.Wait()
		drained := make(chan time.Duration, 2)
		began := time.Now()
		for range 2 {
			go func() {
				k.DrainRequests(t.Context())
				drained <- time.Since(began)
			}()
		}
		time.Sleep(time.Second)
		(<-k.requests).Reply([]byte("{}"))
		(<-k.requests).Fail(wire.Errorf(0, "x"))
		time.Sleep(time.Second)
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		for range 2 {
			if took := <-drained; took != 2*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}

// DrainRequests waits for a response that is being written, so that a following Close does not
// truncate the response.
func TestDrainRequestsWaitsForResponsesBeingWritten(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		r := <-k.requests
		go r.ReplyAfter(func() { time.Sleep(time.Second) }, []byte("{}"))
		synctest.Wait()
		k.DrainRequests(t.Context())
		_ = k.Close()
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// DrainRequests also waits for the responses of a batch, even if the batch is not read completely.
func TestDrainRequestsWaitsForBatchesBeingWritten(t *testing.T) {
	inBubble(t, peer.Options{
		AllowBatches: func() bool { return true },
		OnRejected:   func(wire.Message, *wire.Error) { time.Sleep(time.Second) },
	}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`[{"jsonrpc":"2.0","id":1,"method":"ping"},7]`)
		synctest.Wait() // the second element is being processed
		k.DrainRequests(t.Context())
		_ = k.Close()
		if got := k.remote.Next(); !strings.Contains(got, `{"jsonrpc":"2.0","id":1,"result":{}}`) {
			t.Errorf("got %s", got)
		}
	})
}

func TestDrainRequestsEndsWithItsContext(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		r := <-k.requests
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		k.DrainRequests(ctx)
		if !r.Reply([]byte("{}")) {
			t.Error("DrainRequests ended the request")
		}
		k.DrainRequests(t.Context())
	})
}

// Requests that arrived before the end of the input are answered.
func TestRequestsOutliveTheEndOfInput(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		k.remote.CloseSend()
		if err := <-k.runErr; err != nil {
			t.Errorf("Run: %v", err)
		}
		(<-k.requests).Reply([]byte("{}"))
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestCloseCancelsOpenRequests(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		var o cancelRecorder
		k.remote.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		r := <-k.requests
		r.OnCancel(&o)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if err := k.Close(); err != nil {
			t.Errorf("again: %v", err)
		}
		if cancellations := o.recorded(); len(cancellations) != 1 || cancellations[0] != "" {
			t.Errorf("the handler got %q", cancellations)
		}
		if r.Reply([]byte("{}")) {
			t.Error("a response was accepted")
		}
		if err := <-k.runErr; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		k.remote.WantNothing()
		if !k.remote.Disconnected() {
			t.Error("the remote side was not disconnected")
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		c, _ := k.send(request("1", ""), &peer.Call{})
		k.cancel()
		if err := <-k.runErr; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if _, err := c.wantOutcome(t); err == nil {
			t.Error("the call was answered")
		}
		if !k.remote.Disconnected() {
			t.Error("the remote side was not disconnected")
		}
	})
}
