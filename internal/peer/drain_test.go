package peer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// drainCalls starts DrainCalls and returns a channel that is closed when DrainCalls has returned.
func (k *testPeer) drainCalls(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.DrainCalls(ctx)
	}()
	synctest.Wait()
	return done
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// DrainCalls waits for calls in flight and rejects new calls; requests of the remote side are still
// answered.
func TestDrainCalls(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		one, two := make(peer.ResponseChan, 1), make(peer.ResponseChan, 1)
		k.Send(request("1", ""), &peer.Call{Handler: one})
		second := &peer.Call{Handler: two}
		k.Send(request("2", ""), second)
		first := k.remote.WantRequest("tools/call")
		k.remote.WantRequest("tools/call")
		done := k.drainCalls(t.Context())
		if err := k.TrySend(request("3", ""),
			&peer.Call{Handler: make(peer.ResponseChan, 1)}); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("TrySend: %v", err)
		}
		k.remote.WantNothing()
		k.remote.Send(`{"jsonrpc":"2.0","id":"q","method":"ping"}`)
		k.remote.Want(`{"jsonrpc":"2.0","id":"q","result":{}}`)
		k.remote.SendResult(first.ID(), "{}")
		if a := <-one; a.Err != nil || isClosed(done) {
			t.Errorf("the first ended with %v; DrainCalls has returned: %v", a.Err, isClosed(done))
		}
		second.Cancel(nil)
		if a := <-two; !errors.Is(a.Err, peer.ErrCancelled) || !isClosed(done) {
			t.Errorf("the second ended with %v; DrainCalls has returned: %v", a.Err, isClosed(done))
		}
		k.remote.WantNotification("notifications/cancelled")
	})
}

func TestDrainCallsEndsWithItsContextAndWithTheConnection(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		w := make(peer.ResponseChan, 1)
		k.Send(request("1", ""), &peer.Call{Handler: w})
		ctx, cancel := context.WithCancel(t.Context())
		done, other := k.drainCalls(ctx), k.drainCalls(t.Context())
		cancel()
		if !isClosed(done) || isClosed(other) {
			t.Error("the wrong DrainCalls has returned")
		}
		k.remote.Close()
		if a := <-w; a.Err == nil || !isClosed(other) {
			t.Errorf("the call ended with %v; DrainCalls has returned: %v", a.Err, isClosed(other))
		}
	})
}

// The end of the last call wakes all callers of DrainCalls.
func TestDrainCallsMayBeCalledConcurrently(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		w := make(peer.ResponseChan, 1)
		k.Send(request("1", ""), &peer.Call{Handler: w})
		first, second := k.drainCalls(t.Context()), k.drainCalls(t.Context())
		k.remote.SendResult("1", "{}")
		if <-w; !isClosed(first) || !isClosed(second) {
			t.Errorf("DrainCalls has returned: %v, %v", isClosed(first), isClosed(second))
		}
		if !isClosed(k.drainCalls(t.Context())) {
			t.Error("DrainCalls waits without a call in flight")
		}
	})
}

// slowConn is a Conn that writes a cancellation slowly.
type slowConn struct{ transport.Conn }

func (s slowConn) Write(m wire.Message, relatedTo wire.ID) error {
	if m.Method() == "notifications/cancelled" {
		time.Sleep(time.Second)
	}
	return s.Conn.Write(m, relatedTo)
}

// After DrainCalls the connection may be closed: all cancellations have been written.
func TestDrainCallsWaitsForCancellations(t *testing.T) {
	for _, drainFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn, remote := mcptest.NewPeer(t, "remote side")
			p := peer.New(slowConn{conn}, &testPeer{}, peer.Options{})
			ended := make(chan error, 1)
			go func() { ended <- p.Run(t.Context()) }()
			c := &peer.Call{Handler: make(peer.ResponseChan, 1)}
			p.Send(request("1", ""), c)
			remote.WantRequest("tools/call")
			cancel := func() { c.Cancel(nil) }
			if drainFirst {
				time.AfterFunc(time.Second, cancel)
			} else {
				go cancel()
				synctest.Wait() // the cancellation is being written
			}
			p.DrainCalls(t.Context())
			p.Close()
			<-ended
			remote.WantNotification("notifications/cancelled")
		})
	}
}
