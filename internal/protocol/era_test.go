package protocol_test

import (
	"testing"

	"mcpgateway/internal/protocol"
)

func TestIsStatelessDate(t *testing.T) {
	for date, want := range map[string]bool{
		"": false, "2024-10-07": false, "2025-11-25": false, "2026-01-01": false, "2026-07-27": false, "1": false,
		"2026-07-28": true, "2026-07-29": true, "2027-01-01": true, "v999.0.0": true, "latest": true,
	} {
		if got := protocol.IsModernRevision(date); got != want {
			t.Errorf("IsStatelessDate(%q) = %v", date, got)
		}
	}
}
