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

// A call whose response or error is intercepted may be sent again, and completes once.
func TestAnInterceptedCallIsRetried(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		tries := 0
		call := &peer.Call{Timeout: time.Minute}
		call.InterceptResponse = func(m wire.Message, err error) bool {
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
		c, _ := k.send(request("1", ""), call)
		k.remote.SendError("1", `{"code":-32020,"message":"no"}`)
		time.Sleep(time.Minute) // the timeout starts again with each try
		k.remote.FailRead(&transport.CallLostError{ID: "2", Err: errors.New("503")})
		time.Sleep(51 * time.Second)
		c.wantOpen(t)
		if call.ID() != "3" {
			t.Errorf("its id is %s", call.ID())
		}
		k.remote.SendResult("3", "{}")
		if m, err := c.wantOutcome(t); err != nil || m.Part(wire.PartResult) == nil {
			t.Errorf("it ended with %s, %v", m.Raw(), err)
		}
	})
}

// A timeout, a cancellation and a disconnect complete the call.
func TestTimeoutCancelAndDisconnectAreNotIntercepted(t *testing.T) {
	for name, end := range map[string]func(k *testPeer, c *peer.Call){
		"timeout":    func(*testPeer, *peer.Call) { time.Sleep(time.Minute) },
		"cancel":     func(_ *testPeer, c *peer.Call) { c.Cancel(nil) },
		"disconnect": func(k *testPeer, _ *peer.Call) { k.remote.Exit("exit 1", "") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
				call := &peer.Call{Timeout: time.Minute,
					InterceptResponse: func(wire.Message, error) bool {
						t.Error("InterceptResponse was called")
						return true
					}}
				c, _ := k.send(request("1", ""), call)
				end(k, call)
				if _, err := c.wantOutcome(t); err == nil {
					t.Error("it did not fail")
				}
			})
		})
	}
}

// A call that was cancelled between two tries is not sent again.
func TestACancelledCallIsNotRetried(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		call := &peer.Call{InterceptResponse: func(wire.Message, error) bool { return true }}
		c, _ := k.send(request("1", ""), call)
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
		c.wantOpen(t) // InterceptResponse has to complete the call
		other := &peer.Call{}
		other.Cancel(nil)
		d, _ := k.send(request("1", ""), other)
		if _, err := d.wantOutcome(t); !errors.Is(err, peer.ErrCancelled) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.WantNothing()
	})
}
