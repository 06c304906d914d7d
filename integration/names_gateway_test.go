//go:build unix

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readBackend returns a weather server with an additional tool, read, which other backends also
// have.
func readBackend(name string) backend {
	b := weather(name, "v1")
	b.Env["WEATHER_TOOL"] = "read"
	return b
}

// A server that is added before another one gets its bare names at the next start: the log and
// check report it.
func TestNames_ChangedBackendIsLogged_F_CLI_6(t *testing.T) {
	t.Parallel()
	const moved = "since the last run"
	s := newSetup(t, nil, readBackend("alpha"), readBackend("beta"))
	run := func() string {
		t.Helper()
		gw := s.start()
		gw.initialize("2025-11-25")
		listTools(t, gw)
		if code := gw.finish(waitTimeout); code != 0 {
			t.Errorf("exit code %d", code)
		}
		return gw.logs()
	}
	check := func() string {
		t.Helper()
		code, out := s.runVerb("check")
		if code != 0 {
			t.Errorf("check: exit code %d\n%s", code, out)
		}
		return out
	}
	const expected = "tool read: belongs to omega, and belonged to alpha in the last run"
	if out := check(); strings.Contains(out, "in the last run") {
		t.Errorf("check before a run:\n%s", out)
	}
	for range 2 {
		if logs := run(); strings.Contains(logs, moved) {
			t.Errorf("without a change:\n%s", logs)
		}
	}
	s.editConfig(func(doc map[string]any) {
		before := doc["backends"]
		doc["backends"] = []any{}
		s.addBackend(doc, readBackend("omega"))
		doc["backends"] = append(doc["backends"].([]any), before.([]any)...)
	})
	for range 2 { // check does not count as a run
		if out := check(); !strings.Contains(out, expected) ||
			!strings.Contains(out, "catalog.prefix") {
			t.Errorf("check:\n%s", out)
		}
	}
	logs := run()
	if !strings.Contains(logs, moved) ||
		!strings.Contains(logs, "tool=read backend=omega was=alpha") {
		t.Errorf("the log:\n%s", logs)
	}
	if out := check(); strings.Contains(out, "in the last run") { // the previous run has logged it
		t.Errorf("check after the run:\n%s", out)
	}
	if logs := run(); strings.Contains(logs, moved) {
		t.Errorf("logged again:\n%s", logs)
	}

	names := filepath.Join(s.dir, "state", "names")
	files, _ := filepath.Glob(filepath.Join(names, "*.json"))
	if len(files) != 1 {
		t.Fatalf("records: %q", files)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if logs := run(); !strings.Contains(logs, "level=WARN") ||
		!strings.Contains(logs, "cannot read which backend had each name") {
		t.Errorf("with a damaged record:\n%s", logs)
	}
	if text, err := os.ReadFile(files[0]); err != nil ||
		!strings.Contains(string(text), `"read":{"backend":"omega","own":"read"}`) {
		t.Errorf("the record: %s, %v", text, err)
	}

	if err := os.RemoveAll(names); err != nil {
		t.Fatal(err)
	}
	// Records can be neither read nor written.
	if err := os.WriteFile(names, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if logs := run(); !strings.Contains(logs, "cannot read which backend had each name") ||
		strings.Count(logs, "cannot store which backend has each name") != 1 {
		t.Errorf("without a directory for records:\n%s", logs)
	}
}
