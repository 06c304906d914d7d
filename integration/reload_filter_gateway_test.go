//go:build unix

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A filter changed by a reload applies to queued calls, without a restart of the server.
func TestReload_FilterAppliesToQueuedCall_F_SEC_1_F_CLI_5(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, weather("wind", "1"))
	s.editConfig(func(doc map[string]any) { backendEntry(doc, "wind")["max_in_flight"] = 1 })
	gw := s.start()
	log := gw.logReader()
	gw.initialize("2025-11-25")
	poll(waitTimeout, func() bool { return len(listTools(t, gw)) == 2 })
	release := filepath.Join(s.dir, "release")
	gw.sendRequest(`"a"`, "tools/call", `{"name":"wind_wait","arguments":{"path":"`+release+`"}}`)
	gw.sendRequest(`"b"`, "tools/call", `{"name":"wind_who"}`)
	gw.call("ping", `{}`)
	s.editConfig(func(doc map[string]any) {
		backendEntry(doc, "wind")["tools"] = map[string]any{"deny": []string{"wind_who"}}
	})
	if line := log.await(logReloaded); !strings.Contains(line, `changed="wind (tools.deny)"`) {
		t.Errorf("logged %s", line)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ran := gw.await("the running call", waitTimeout,
		func(m message) bool { return string(m.ID) == `"a"` })
	rejected := gw.await("the queued call", waitTimeout,
		func(m message) bool { return string(m.ID) == `"b"` })
	const unknown = `{"code":-32602,"message":"Unknown tool: wind_who"}`
	if string(rejected.Error) != unknown {
		t.Errorf("the queued call ended with %s %s", rejected.Result, rejected.Error)
	}
	if again := callTool(gw, "wind_wait",
		`{"path":"`+release+`"}`); string(again.Result) != string(ran.Result) {
		t.Errorf("another process responds: %s, before %s", again.Result, ran.Result)
	}
	if list := listTools(t, gw); len(list) != 1 {
		t.Errorf("listed %v", names(list))
	}
	if again := callTool(gw, "wind_who", `{}`); string(again.Error) != unknown {
		t.Errorf("the denied tool: %s %s", again.Result, again.Error)
	}
}
