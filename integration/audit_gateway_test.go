//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// Calls are made, and then found by each filter of gateway audit, while the gateway runs.
func TestAudit_CallsAreFound(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""),
		backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")

	follow := exec.CommandContext(t.Context(), gateway(t), "-c", s.config, "audit", "-f", "--json",
		"--outcome", "tool_error,rpc_error,rejected")
	follow.Env, follow.Dir = s.env(), s.dir
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	gw.sendRequest("1", "tools/call", `{"name":"echo","arguments":{"text":"one"}}`)
	gw.awaitResponse("1", waitTimeout)
	gw.sendRequest(`"two"`, "tools/call", `{"name":"echo","arguments":{"text":"two"}}`)
	gw.awaitResponse(`"two"`, waitTimeout)
	gw.sendRequest("3", "tools/call", `{"name":"nosuch"}`)
	gw.awaitResponse("3", waitTimeout)

	// --follow prints the record of the call that was rejected
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"tool":"nosuch"`) {
		t.Errorf("followed: %q, %v", lines.Text(), lines.Err())
	}
	_ = follow.Process.Kill()
	_ = follow.Wait()

	audit := func(args ...string) string {
		t.Helper()
		r := s.run(append([]string{"audit"}, args...)...)
		if r.code != 0 {
			t.Errorf("gateway audit %s: exit code %d: %s", strings.Join(args, " "), r.code, r.err)
		}
		return r.out
	}
	var first struct{ Call, Session string }
	line := audit("--json", "--id", "1")
	if err := json.Unmarshal([]byte(line), &first); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	for _, c := range []struct {
		args string
		want int
	}{
		{"", 3}, {"--since 1h", 3}, {"--until yesterday", 0}, {"--client integration", 3},
		{"--session " + first.Session[:8], 3}, {"--tool echo", 2}, {"--tool e*", 2},
		{"--backend demo", 2}, {"--backend demo --outcome ok", 2}, {"--outcome failed", 1},
		{"--id two", 1}, {"--id " + first.Call, 1}, {"--slower 1h", 0}, {"--method tools/call", 3},
		{"--method prompts/get", 0}, {"-n 1", 1}, {"--slowest -n 2", 2}, {"--principal nobody", 0},
	} {
		got := strings.Count(audit(append(strings.Fields(c.args), "--json")...), "\n")
		if got != c.want {
			t.Errorf("gateway audit %s: %d records, want %d", c.args, got, c.want)
		}
	}
	if got := audit("show", first.Call); !strings.Contains(got, `arguments    {"text":"one"}`) ||
		!strings.Contains(got, "backend      demo (as echo)") {
		t.Errorf("show:\n%s", got)
	}
	// the gateway still runs, and has the lines about its backends in memory
	if got := audit("show", first.Call); !strings.Contains(got, "log of backend demo at that time:") {
		t.Errorf("show without the log:\n%s", got)
	}
	if got := audit("--stats", "--by", "backend"); !strings.Contains(got, "demo") ||
		len(strings.Split(got, "\n")) != 4 {
		t.Errorf("stats:\n%s", got)
	}
	gw.finish(waitTimeout)
}
