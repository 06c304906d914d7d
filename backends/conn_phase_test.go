package backends

import (
	"errors"
	"log/slog"
	"testing"

	"mcpgateway/internal/config"
)

// A connection that is merged stays merged, because its calls belong to the shared connection; one
// that is closed stays closed, because its session is over.
func TestConnPhases(t *testing.T) {
	b := newBackend(New(Options{Log: slog.New(slog.DiscardHandler)}), config.Backend{Name: "a"})
	drain := func(bc *backendConn) { bc.startDraining() }
	closeConn, merge := (*backendConn).close, (*backendConn).mergeIntoShared
	for name, tt := range map[string]struct {
		events []func(*backendConn)
		want   connPhase
	}{
		"drain":                {[]func(*backendConn){drain}, connDraining},
		"drain, then close":    {[]func(*backendConn){drain, closeConn}, connClosed},
		"drain, then merge":    {[]func(*backendConn){drain, merge}, connDraining},
		"merge, then close":    {[]func(*backendConn){merge, closeConn}, connMerged},
		"merge, then drain":    {[]func(*backendConn){merge, drain}, connMerged},
		"close, then drain":    {[]func(*backendConn){closeConn, drain}, connClosed},
		"close, then merge":    {[]func(*backendConn){closeConn, merge}, connClosed},
		"nothing has happened": {nil, connOpen},
	} {
		t.Run(name, func(t *testing.T) {
			bc := newBackendConn(b, "one")
			for _, event := range tt.events {
				event(bc)
			}
			if bc.phase != tt.want {
				t.Errorf("phase %d, want %d", bc.phase, tt.want)
			}
		})
	}
}

// If a link ends late, after the next link has become ready, the calls of the next link stay in
// their queues.
func TestLateEndOfLink_LeavesCallsOfNextLink(t *testing.T) {
	b := newBackend(New(Options{Log: slog.New(slog.DiscardHandler)}), config.Backend{Name: "a"})
	bc := newBackendConn(b, "")
	old, next := &link{conn: bc}, &link{conn: bc}
	bc.link = next
	bc.calls.retries = []*queuedCall{{}}
	old.disconnected(errors.New("late"))
	if bc.link != next || len(bc.calls.retries) != 1 || len(bc.calls.waiting) != 0 {
		t.Errorf("link replaced: %t, %d retries, %d waiting", bc.link != next,
			len(bc.calls.retries), len(bc.calls.waiting))
	}
	next.disconnected(errors.New("now"))
	if bc.link != nil || len(bc.calls.waiting) != 1 {
		t.Errorf("%d calls wait for the next link", len(bc.calls.waiting))
	}
}
