package backends

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/config"
)

// A call that arrives at a backend while the backend begins to drain may open a connection for the
// session. That connection must not take over the session's subscriptions, because the successor
// gets them.
func TestSessionConnectionOpenedDuringDrain(t *testing.T) {
	one := config.Backend{Name: "a", URL: "http://a", Generation: "legacy", Enabled: true}
	s := New(Options{Backends: []config.Backend{one}, Log: slog.New(slog.DiscardHandler)})
	s.OpenSession("one", nil, nil, false)
	b := s.current().byName["a"]
	b.shared.put("one", []string{"x:y"}, false)
	b.perSession.draining = true // as in the first step of drain
	if bc := b.perSession.open(b, "one"); bc.phase != connDraining {
		t.Error("the connection is not draining")
	}
	_, subscribed := b.shared.startDraining() // as in the next step
	if !slices.Equal(subscribed["one"], []string{"x:y"}) {
		t.Errorf("%v was redirected", subscribed)
	}
}

// After the open breaker of the shared connection was reset, it no longer blocks per-session
// connections, even if the next try fails.
func TestResetBreakerBlocksNoSession(t *testing.T) {
	b := newBackend(New(Options{Log: slog.New(slog.DiscardHandler)}), config.Backend{Name: "a"})
	var sup supervise.Supervisor
	for range supervise.BreakerThreshold {
		sup.Failed(time.Now(), errors.New("no"), 0)
		sup.Start(time.Now())
	}
	b.perSession.noteEnded(b.shared, false, sup.Breaker())
	if _, reason := b.perSession.allowStart(time.Now()); reason == nil {
		t.Error("no session is blocked")
	}
	sup = supervise.Supervisor{}
	sup.Failed(time.Now(), errors.New("no"), 0)
	b.perSession.noteEnded(b.shared, false, sup.Breaker())
	if _, reason := b.perSession.allowStart(time.Now()); reason != nil {
		t.Errorf("blocked: %v", reason)
	}
}
