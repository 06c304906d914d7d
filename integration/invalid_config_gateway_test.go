//go:build unix

package integration

import (
	"os"
	"strings"
	"testing"
)

// The client receives the error of an invalid configuration as the response to its first
// requests, and the exit code is the usual one.
func TestInvalidConfig_ErrorResponseToInitialize(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil)
	if err := os.WriteFile(s.config,
		[]byte("log:\n  level: info\naudit:\n  file: \"${NOT_SET_ANYWHERE}\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	gw := s.start()
	gw.sendRequest(`"probe"`, "server/discover", "")
	gw.awaitResponse(`"probe"`, waitTimeout)
	gw.sendRequest("1", "initialize", initializeParams("2025-11-25"))
	m := gw.awaitResponse("1", waitTimeout)
	if !strings.Contains(string(m.Error), "NOT_SET_ANYWHERE") ||
		!strings.Contains(string(m.Error), "gateway.yaml:4") {
		t.Errorf("response %s", m.Raw)
	}
	if code := gw.exitCode(waitTimeout); code != 2 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
	if text := gw.logs(); !strings.HasPrefix(text, "gateway: ") ||
		!strings.Contains(text, "NOT_SET_ANYWHERE") {
		t.Errorf("stderr: %s", text)
	}
}
