package backends

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A call that could not be sent, because the connection has ended, keeps the text of its request
// for the next connection.
func TestUnsentCallKeepsText(t *testing.T) {
	one := config.Backend{Name: "a", Command: "a", Enabled: true}
	s := New(Options{Backends: []config.Backend{one}, Log: slog.New(slog.DiscardHandler)})
	q := newCall(s, "a", contract.BackendRequest{
		Message: wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)),
	}, make(ResponseChan, 1))
	conn, _ := mcptest.NewPeer(t, "a")
	l := newLink(s.current().byName["a"].shared)
	l.peer = peer.New(conn, nil, peer.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.peer.Run(ctx)
	err := l.trySend(q)
	if !errors.Is(err, transport.ErrClosed) || !HoldsRequest(q) {
		t.Errorf("after %v it holds the text: %v", err, HoldsRequest(q))
	}
}
