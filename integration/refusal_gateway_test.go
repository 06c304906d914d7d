//go:build unix

package integration

import (
	"os"
	"strings"
	"testing"
)

// A configuration that is wrong is what the client reads, as far as its first words are answered, and the exit code
// stays what it was.
func TestAWrongConfigurationIsAnswered(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil)
	if err := os.WriteFile(s.config, []byte("log:\n  level: info\naudit:\n  file: \"${NOT_SET_ANYWHERE}\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gw := s.start()
	gw.ask(`"probe"`, "server/discover", "")
	gw.answer(`"probe"`, patience)
	gw.ask("1", "initialize", initializeParams("2025-11-25"))
	m := gw.answer("1", patience)
	if !strings.Contains(string(m.Error), "NOT_SET_ANYWHERE") || !strings.Contains(string(m.Error), "gateway.yaml:4") {
		t.Errorf("answer %s", m.Raw)
	}
	if code := gw.exitCode(patience); code != 2 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
	if text := gw.logs(); !strings.HasPrefix(text, "gateway: ") || !strings.Contains(text, "NOT_SET_ANYWHERE") {
		t.Errorf("stderr: %s", text)
	}
}
