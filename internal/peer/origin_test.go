package peer_test

import (
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// originHandler is a Handler that records the origins of messages.
type originHandler chan peer.Origin

func (h originHandler) HandleRequest(
	r *peer.Request) {
	h <- r.Origin()
	r.Reply([]byte("{}"))
}
func (h originHandler) HandleNotification(_ wire.Message, on peer.Origin) { h <- on }

// A message on the stream of a call that has ended, for any reason, has CallEnded.
func TestOriginOfACallThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, remote := mcptest.NewPeer(t, "remote side")
		h := make(originHandler, 10)
		p := peer.New(conn, h, peer.Options{})
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		defer func() { remote.Close(); <-ended }()
		want := func(on wire.ID, want peer.Origin) {
			t.Helper()
			for _, line := range []string{`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`,
				`{"jsonrpc":"2.0","method":"n"}`} {
				remote.SendOnStream(on, line)
				if got := <-h; got != want {
					t.Errorf("on %q: %+v, want %+v", on, got, want)
				}
			}
		}
		over := peer.Origin{CallEnded: true}
		want("", peer.Origin{})
		answered, cancelled := &peer.Call{Handler: &recordingHandler{}},
			&peer.Call{Handler: &recordingHandler{}}
		p.Send(request("1", ""), answered)
		p.Send(request("2", ""), cancelled)
		want(answered.ID(), peer.Origin{Call: answered})
		want(cancelled.ID(), peer.Origin{Call: cancelled})
		cancelled.Cancel(nil)
		want(cancelled.ID(), over)
		remote.SendResult(answered.ID(), `{}`)
		want(answered.ID(), over)
		want("", peer.Origin{})
	})
}
