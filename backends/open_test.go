package backends

import (
	"log/slog"
	"slices"
	"testing"

	"mcpgateway/config"
)

// A call that comes to a backend at the moment in which it is retired may want a line of its own
// for its session. That must not take along what the session is subscribed to: it is passed on.
func TestALineThatIsOpenedTooLateTakesNothingAlong(t *testing.T) {
	one := config.Backend{Name: "a", URL: "http://a", Era: "legacy", Enabled: true}
	s := New(Options{Backends: []config.Backend{one}, Log: slog.New(slog.DiscardHandler)})
	s.Open("one", nil, false)
	b := s.now().byName["a"]
	b.shared.inherit("one", []string{"x:y"})
	b.retired = true // as the first step of retire
	if l := b.open("one"); !l.retired {
		t.Error("the line is not retired")
	}
	_, subscribed := b.shared.retire() // as the next
	if !slices.Equal(subscribed["one"], []string{"x:y"}) {
		t.Errorf("%v is passed on", subscribed)
	}
}
