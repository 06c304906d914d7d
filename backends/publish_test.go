package backends

import (
	"log/slog"
	"testing"
)

// Of many that have news at the same time, those that were looked at in the meantime cost no merge.
func TestNewsThatIsKnownIsNotPublishedAgain(t *testing.T) {
	s := New(Options{Log: slog.New(slog.DiscardHandler)})
	v := s.View()
	s.published = s.changes.Load() + 1 // somebody has looked since, behind the next one's back
	if s.publish(); s.View() != v {
		t.Error("what was known was merged again")
	}
	if s.publish(); s.View() == v {
		t.Error("what was not known was not merged")
	}
}
