package backends

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"mcpgateway/internal/config"
)

// A call that comes to a backend at the moment in which it is retired may want a line of its own
// for its session. That must not take along what the session is subscribed to: it is passed on.
func TestALineThatIsOpenedTooLateTakesNothingAlong(t *testing.T) {
	one := config.Backend{Name: "a", URL: "http://a", Generation: "legacy", Enabled: true}
	s := New(Options{Backends: []config.Backend{one}, Log: slog.New(slog.DiscardHandler)})
	s.OpenSession("one", nil, false)
	b := s.current().byName["a"]
	b.shared.addSubscriptions("one", []string{"x:y"})
	b.draining = true // as the first step of retire
	if bc := b.openSessionConn("one"); !bc.draining {
		t.Error("the line is not retired")
	}
	_, subscribed := b.shared.startDraining() // as the next
	if !slices.Equal(subscribed["one"], []string{"x:y"}) {
		t.Errorf("%v is passed on", subscribed)
	}
}

// A circuit that was open and is pardoned bars the sessions' own lines no more, even if the next
// try fails.
func TestAPardonedCircuitBarsNobody(t *testing.T) {
	b := newBackend(New(Options{Log: slog.New(slog.DiscardHandler)}), config.Backend{Name: "a"})
	circuit := breaker{failures: breakerThreshold, reason: errors.New("no")}
	b.noteConnEnded(b.shared, false, circuit)
	if _, reason := b.sessionBreaker.allowStart(time.Now(), 0); reason == nil {
		t.Error("nobody is barred")
	}
	b.noteConnEnded(b.shared, false, breaker{failures: 1, reason: errors.New("no")})
	if _, reason := b.sessionBreaker.allowStart(time.Now(), 0); reason != nil {
		t.Errorf("barred: %v", reason)
	}
}
