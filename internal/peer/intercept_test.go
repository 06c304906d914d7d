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

// A call whose answer is not its end is sent once more, and ends once; so it is with the
// reason why there is no answer.
func TestACallIsSentOnceMore(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *talk) {
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
		k.far.SendError("1", `{"code":-32020,"message":"no"}`)
		time.Sleep(time.Minute) // the clock begins anew
		k.far.FailRead(&transport.CallLostError{ID: "2", Err: errors.New("503")})
		time.Sleep(51 * time.Second)
		c.isOpen(t)
		if call.ID() != "3" {
			t.Errorf("its id is %s", call.ID())
		}
		k.far.SendResult("3", "{}")
		if m, err := c.end(t); err != nil || m.Part(wire.PartResult) == nil {
			t.Errorf("it ended with %s, %v", m.Raw(), err)
		}
	})
}

// A deadline, a cancellation and the end of the conversation are ends.
func TestWhatIsNoAnswerIsAnEnd(t *testing.T) {
	for name, end := range map[string]func(k *talk, c *peer.Call){
		"timeout": func(*talk, *peer.Call) { time.Sleep(time.Minute) },
		"cancel":  func(_ *talk, c *peer.Call) { c.Cancel(nil) },
		"death":   func(k *talk, _ *peer.Call) { k.far.Exit("exit 1", "") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, peer.Options{}, func(t *testing.T, k *talk) {
				call := &peer.Call{Timeout: time.Minute, InterceptResponse: func(wire.Message, error) bool {
					t.Error("it was asked whether the call goes on")
					return true
				}}
				c, _ := k.send(request("1", ""), call)
				end(k, call)
				if _, err := c.end(t); err == nil {
					t.Error("it did not fail")
				}
			})
		})
	}
}

// A call that was taken back between two tries is not sent again.
func TestACallThatWasTakenBackIsNotOffered(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *talk) {
		call := &peer.Call{InterceptResponse: func(wire.Message, error) bool { return true }}
		c, _ := k.send(request("1", ""), call)
		k.far.HandleRequest("tools/call")
		k.far.SendError("1", `{"code":-32020,"message":"no"}`)
		synctest.Wait()
		if call.IsCancelled() {
			t.Error("taken back already")
		}
		call.Cancel(nil)
		if err := k.TrySend(request("1", ""), call); !errors.Is(err, peer.ErrCancelled) || !call.IsCancelled() {
			t.Errorf("offered: %v", err)
		}
		k.far.WantNothing()
		c.isOpen(t) // it is whose Again it is who ends it
		other := &peer.Call{}
		other.Cancel(nil)
		d, _ := k.send(request("1", ""), other)
		if _, err := d.end(t); !errors.Is(err, peer.ErrCancelled) {
			t.Errorf("it ended with %v", err)
		}
		k.far.WantNothing()
	})
}
