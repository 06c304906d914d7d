package protocol_test

import (
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// parse parses a message or fails the test.
func parse(t testing.TB, text string) wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func TestMission_B_D_WhichRevisionsHaveBatches(t *testing.T) {
	for date, want := range map[string]bool{"2024-11-05": true, "2025-03-26": true,
		"2025-06-18": false, "2025-11-25": false, "2026-07-28": false} {
		if got, ok := protocol.FindRevision(date); !ok || got.Date != date || got.Batches != want {
			t.Errorf("FindRevision(%s) = %+v, %v", date, got, ok)
		}
	}
	for _, date := range []string{"", "2024-10-07", "2025-06-18 ", "2025-6-18", "latest"} {
		if got, ok := protocol.FindRevision(date); ok || got.Batches {
			t.Errorf("FindRevision(%q) = %+v, %v", date, got, ok)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18",
		"2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "1999-01-01": "2025-11-25", "": "2025-11-25",
	} {
		if got := protocol.Negotiate(asked).Date; got != want {
			t.Errorf("Negotiate(%q) = %s, want %s", asked, got, want)
		}
	}
	if protocol.Newest().Date != "2026-07-28" || protocol.NewestLegacy().Date != "2025-11-25" ||
		protocol.Oldest().Date != "2024-11-05" {
		t.Errorf("from %s to %s", protocol.Oldest().Date, protocol.Newest().Date)
	}
}

func TestIsModernRevision(t *testing.T) {
	for date, want := range map[string]bool{
		"": false, "2024-10-07": false, "2025-11-25": false, "2026-01-01": false,
		"2026-07-27": false, "1": false,
		"2026-07-28": true, "2026-07-29": true, "2027-01-01": true, "v999.0.0": true,
		"latest": true,
	} {
		if got := protocol.IsModernRevision(date); got != want {
			t.Errorf("IsModernRevision(%q) = %v", date, got)
		}
	}
}
