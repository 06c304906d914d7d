package backends

import (
	"log/slog"
	"testing"
)

// If many backends have changes at the same time, changes that a concurrent merge has included
// cause no further merge.
func TestPublishCoalescesChanges(t *testing.T) {
	s := New(Options{Log: slog.New(slog.DiscardHandler)})
	v := s.View()
	s.publisher.published = s.publisher.changes.Load() + 1 // another merge has included the changes
	if s.publisher.publish(); s.View() != v {
		t.Error("a known change was merged again")
	}
	if s.publisher.publish(); s.View() == v {
		t.Error("a new change was not merged")
	}
}
