package peer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestCancelNotifiesTheRemoteSideOnce(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.send(request("1", ""), &peer.Call{})
		c, pending := k.send(request(`"c"`, ""), &peer.Call{})
		k.remote.Next()
		k.remote.Next()
		pending.Cancel([]byte(`{"reason":"\u003cuser>", "requestId":"c","_meta":{"x":1}}`))
		pending.Cancel(nil)
		k.remote.Want(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"\u003cuser>", "requestId":2,"_meta":{"x":1}}}`)
		if _, err := c.wantOutcome(t); !errors.Is(err, peer.ErrCancelled) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.SendResult("2", "{}")
		k.remote.SendError("2", `{"code":0,"message":"Request cancelled"}`)
		c.wantOutcome(t)
		k.remote.WantNothing()
	})
}

func TestCancelOfACallNotInFlightDoesNothing(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		never := &peer.Call{Handler: &recordingHandler{}}
		never.Cancel(nil)
		if never.ID() != "" {
			t.Errorf("a call that was not sent has the id %s", never.ID())
		}
		c, pending := k.send(request("1", ""), &peer.Call{})
		k.remote.Next()
		k.remote.SendResult("1", "{}")
		c.wantOutcome(t)
		pending.Cancel(nil)
		c.wantOutcome(t)
		k.remote.WantNothing()
	})
}

// "The initialize request MUST NOT be cancelled by clients."
func TestInitializeIsNotCancelled(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Call(ctx, "initialize", []byte("{}")); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.WantRequest("initialize")
		k.remote.WantNothing()
	})
}

// relatedToConn records the relatedTo of each message.
type relatedToConn struct {
	transport.Conn
	mu  sync.Mutex
	all []string
}

func (a *relatedToConn) Write(m wire.Message, about wire.ID) error {
	a.mu.Lock()
	a.all = append(a.all, m.Method()+" "+string(about))
	a.mu.Unlock()
	return a.Conn.Write(m, about)
}

// A cancellation is sent on the stream of the request to which the call is related, or, if there is
// none, on the stream of the call.
func TestACancellationTravelsOnTheStreamOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := mcptest.NewPeer(t, "remote side")
		noted := &relatedToConn{Conn: conn}
		p := peer.New(noted, &testPeer{}, peer.Options{})
		for _, about := range []wire.ID{"", `"theirs"`} {
			c := &peer.Call{Handler: &recordingHandler{}, RelatedTo: about}
			p.Send(request("1", ""), c)
			c.Cancel(nil)
		}
		want := []string{"tools/call ", "notifications/cancelled 1", `tools/call "theirs"`,
			`notifications/cancelled "theirs"`}
		if !slices.Equal(noted.all, want) {
			t.Errorf("wrote %q, want %q", noted.all, want)
		}
	})
}

// The remote side can end a call by notifications/cancelled only if the call allows it, as a
// subscriptions/listen does.
func TestTheRemoteSideCancelsACall(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		for _, id := range []string{"1", `"2"`} {
			c, _ := k.send(request("7", ""), &peer.Call{RemoteCancels: true})
			k.remote.Next()
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
			synctest.Wait()
			if _, err := c.wantOutcome(t); err != peer.ErrCancelled {
				t.Errorf("it ended with %v", err)
			}
		}
		c, _ := k.send(request("7", ""), &peer.Call{})
		k.remote.Next()
		for _, id := range []string{"3", "4", "null", "{}"} {
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
		}
		k.remote.WantNothing()
		c.wantOpen(t)
		k.remote.SendResult("3", "{}")
		c.wantOutcome(t)
	})
}
