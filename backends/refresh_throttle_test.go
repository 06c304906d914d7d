package backends

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A changingServer is a server that announces changed tools whenever it is listed.
type changingServer struct {
	peer  *peer.Peer
	lists *atomic.Int64
}

func (r *changingServer) HandleNotification(wire.Message, peer.Origin) {}

func (r *changingServer) HandleRequest(q *peer.Request) {
	if q.Method() == "initialize" {
		q.Reply(
			[]byte(
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"r","version":"1"}}`))
		return
	}
	r.lists.Add(1)
	q.Reply([]byte(`{"tools":[]}`))
	_ = r.peer.Notify("notifications/tools/list_changed", nil)
}

func TestPARTIAL06_EndlessChangesAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		s := New(Options{
			Backends:   []config.Backend{{Name: "r", Embedded: "demo", Enabled: true}},
			MaxMessage: 1 << 20,
			Log:        slog.New(slog.DiscardHandler),
			Dial: func(config.Backend) (transport.Conn, error) {
				ours, theirs := transport.Pipe()
				r := &changingServer{lists: &lists}
				r.peer = peer.New(theirs, r, peer.Options{})
				// ends with the connection; the bubble waits for it
				go r.peer.Run(context.Background())
				return ours, nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, nil) }()
		s.Start()
		time.Sleep(time.Second)
		if n := lists.Load(); n < undelayedRefreshes {
			t.Errorf("%d lists in the first second", n)
		}
		before := lists.Load()
		time.Sleep(10 * time.Minute)
		if n := lists.Load() - before; n > 80 || n < 50 {
			t.Errorf("%d lists in ten minutes", n)
		}
		cancel()
		<-done
	})
}
