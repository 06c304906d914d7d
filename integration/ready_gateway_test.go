//go:build unix

package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// /readyz stays 503 after a list without a backend that is still starting, until that backend
// has been listed or has failed.
func TestReadyWaitsForEveryBackend_F_PROC_3(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "10ms"}},
		backend{Name: "demo", Embedded: "demo"},
		// It fails, so that nothing waits for it.
		backend{Name: "absent", Command: "/nowhere/at/all"},
		backend{Name: "late", Command: "sh",
			Args: []string{"-c", `while ! [ -e "$0" ]; do sleep 0.01; done; exit 3`, gate}})
	url := s.serveURL()
	ready := func() int {
		res, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	// on a busy machine, demo may need longer than catalog.wait
	var tools []string
	if !poll(time.Minute, func() bool {
		tools = names(listTools(t, dialHTTP(t, url, "2025-11-25")))
		return len(tools) == 3
	}) {
		t.Errorf("tools: %q", tools)
	}
	if got := ready(); got != http.StatusServiceUnavailable {
		t.Errorf("while a backend is starting: %d", got)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, url)
}
