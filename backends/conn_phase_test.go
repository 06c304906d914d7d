package backends

import (
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
