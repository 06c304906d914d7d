package gateway_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"mcpgateway/internal/wire"
)

// clientMessages returns the messages to the clients in all conversations, without errors that
// backends have sent. The elements of batches are separate messages.
func clientMessages(t *testing.T) []string {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	var all []string
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		relayed := make(map[string]bool)
		for _, f := range a.Files {
			for line := range strings.Lines(string(f.Data)) {
				line, cancelled := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "← ")
				switch m, err := wire.Parse([]byte(line)); {
				case !cancelled:
				case f.Name != "client":
					relayed[string(m.Part(wire.PartError))] = true
				case m.Kind() == wire.Batch:
					for _, e := range m.Elements() {
						got = append(got, string(e))
					}
				case err != nil:
					t.Errorf("%s: a client got %s: %v", path, line, err)
				default:
					got = append(got, line)
				}
			}
		}
		for _, line := range got {
			if m, _ := wire.Parse([]byte(line)); m.Part(wire.PartError) == nil ||
				!relayed[string(m.Part(wire.PartError))] {
				all = append(all, line)
			}
		}
	}
	return all
}

func TestMission_D_EveryMessageHasJSONRPCVersion(t *testing.T) {
	for _, line := range clientMessages(t) {
		m, err := wire.Parse([]byte(line)) // rejects an unsupported or missing version
		if err != nil || m.Kind() == wire.Invalid {
			t.Errorf("a client got %s: %v", line, err)
		}
	}
}

// Errors of the gateway use the five standard codes and one additional code, which is outside the
// range that MCP reserves.
func TestMission_B_GatewayErrorCodes(t *testing.T) {
	ours := []int{wire.CodeParseError, wire.CodeInvalidRequest, wire.CodeMethodNotFound,
		wire.CodeInvalidParams, wire.CodeInternalError, wire.CodeNotInitialized}
	if want := []int{-32700, -32600, -32601, -32602, -32603, -32002}; !slices.Equal(ours, want) {
		t.Errorf("the codes are %v, want %v", ours, want)
	}
	seen := make(map[int]bool)
	for _, line := range clientMessages(t) {
		m, _ := wire.Parse([]byte(line))
		failure := m.Part(wire.PartError)
		if failure == nil {
			continue
		}
		code := wire.ReadError(failure).Code
		seen[code] = true
		if !slices.Contains(ours, code) {
			t.Errorf("the gateway sent %s", line)
		}
	}
	for _, code := range ours {
		if !seen[code] {
			t.Errorf("no conversation contains %d", code)
		}
	}
}
