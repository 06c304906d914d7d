package peer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A sendAgainHandler handles a response or error by the function again, until again returns false;
// then the embedded handler gets it.
type sendAgainHandler struct {
	recordingHandler
	again func() bool
}

func (h *sendAgainHandler) OnResponse(m wire.Message, err error) {
	if !h.again() {
		h.recordingHandler.OnResponse(m, err)
	}
}

// A call may be sent again by its handler, and then completes again.
func TestACallIsSentAgainByItsHandler(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		tries := 0
		h := &sendAgainHandler{}
		call := &peer.Call{Handler: h, Timeout: time.Minute}
		h.again = func() bool {
			if tries++; tries == 3 {
				return false
			}
			time.AfterFunc(50*time.Second, func() {
				if err := k.TrySend(request("1", ""), call); err != nil {
					t.Error(err)
				}
			})
			return true
		}
		k.Send(request("1", ""), call)
		k.remote.SendError("1", `{"code":-32020,"message":"no"}`)
		time.Sleep(time.Minute) // the timeout starts again with each try
		k.remote.FailRead(&transport.CallLostError{ID: "2", Err: errors.New("503")})
		time.Sleep(51 * time.Second)
		h.wantOpen(t)
		if call.ID() != "3" {
			t.Errorf("its id is %s", call.ID())
		}
		if n := call.Reconnects(); n != 2 {
			t.Errorf("%d reconnects after two further sendings", n)
		}
		k.NoteReconnect("3")
		k.NoteReconnect("2")
		k.NoteReconnect("99")
		if n := call.Reconnects(); n != 3 {
			t.Errorf("%d reconnects after one at the transport", n)
		}
		k.remote.SendResult("3", "{}")
		if m, err := h.wantOutcome(t); err != nil || m.Part(wire.PartResult) == nil {
			t.Errorf("it ended with %s, %v", m.Raw(), err)
		}
	})
}

// The error tells whether the call may be sent again over the same connection: only the end of the
// connection wraps transport.ErrClosed, and a cancellation and a timeout have errors of their own.
func TestErrorsTellWhyACallEnded(t *testing.T) {
	lost := func(err error) bool {
		_, is := errors.AsType[*transport.CallLostError](err)
		return is
	}
	for name, test := range map[string]struct {
		end  func(k *testPeer, c *peer.Call)
		want func(error) bool
	}{
		"timeout": {func(*testPeer, *peer.Call) { time.Sleep(time.Minute) },
			func(err error) bool { return err == peer.ErrTimeout }},
		"cancel": {func(_ *testPeer, c *peer.Call) { c.Cancel(nil) },
			func(err error) bool { return err == peer.ErrCancelled }},
		"lost": {func(k *testPeer, _ *peer.Call) {
			k.remote.FailRead(&transport.CallLostError{ID: "1", Err: errors.New("503")})
		}, func(err error) bool { return lost(err) && !errors.Is(err, transport.ErrClosed) }},
		"disconnect": {func(k *testPeer, _ *peer.Call) { k.remote.Exit("exit 1", "") },
			func(err error) bool {
				return lost(err) && errors.Is(err, transport.ErrClosed) && err.Error() == "exit 1"
			}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
				c, call := k.send(request("1", ""), &peer.Call{Timeout: time.Minute})
				test.end(k, call)
				if _, err := c.wantOutcome(t); !test.want(err) {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

// A call that was cancelled between two tries is not sent again.
func TestACancelledCallIsNotSentAgain(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		h := &sendAgainHandler{again: func() bool { return true }}
		call := &peer.Call{Handler: h}
		k.Send(request("1", ""), call)
		k.remote.WantRequest("tools/call")
		k.remote.SendError("1", `{"code":-32020,"message":"no"}`)
		synctest.Wait()
		if call.IsCancelled() {
			t.Error("cancelled already")
		}
		call.Cancel(nil)
		if err := k.TrySend(request("1", ""), call); !errors.Is(err, peer.ErrCancelled) ||
			!call.IsCancelled() {
			t.Errorf("TrySend: %v", err)
		}
		k.remote.WantNothing()
		h.wantOpen(t) // the handler has taken the response
		other := &peer.Call{}
		other.Cancel(nil)
		d, _ := k.send(request("1", ""), other)
		if _, err := d.wantOutcome(t); !errors.Is(err, peer.ErrCancelled) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.WantNothing()
	})
}
