//go:build unix

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A filter that a reload brings holds for calls that wait, without a restart of the server.
func TestReloadForbidsAQueuedCall_F_SEC_1_F_CLI_5(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, weather("wind", "1"))
	s.edit(func(doc map[string]any) { backendIn(doc, "wind")["max_in_flight"] = 1 })
	gw := s.start()
	log := gw.journal()
	gw.greet("2025-11-25")
	poll(patience, func() bool { return len(listTools(t, gw)) == 2 })
	release := filepath.Join(s.dir, "release")
	gw.ask(`"a"`, "tools/call", `{"name":"wind_wait","arguments":{"path":"`+release+`"}}`)
	gw.ask(`"b"`, "tools/call", `{"name":"wind_who"}`)
	gw.call("ping", `{}`)
	s.edit(func(doc map[string]any) {
		backendIn(doc, "wind")["tools"] = map[string]any{"deny": []string{"wind_who"}}
	})
	if line := log.await(loadedAnew); !strings.Contains(line, `changed="wind (tools.deny)"`) {
		t.Errorf("logged %s", line)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ran := gw.await("the call that runs", patience, func(m message) bool { return string(m.ID) == `"a"` })
	refused := gw.await("the call that waits", patience, func(m message) bool { return string(m.ID) == `"b"` })
	const unknown = `{"code":-32602,"message":"Unknown tool: wind_who"}`
	if string(refused.Error) != unknown {
		t.Errorf("the queued call ended with %s %s", refused.Result, refused.Error)
	}
	if again := callTool(gw, "wind_wait", `{"path":"`+release+`"}`); string(again.Result) != string(ran.Result) {
		t.Errorf("another process answers: %s, before %s", again.Result, ran.Result)
	}
	if list := listTools(t, gw); len(list) != 1 {
		t.Errorf("listed %v", names(list))
	}
	if again := callTool(gw, "wind_who", `{}`); string(again.Error) != unknown {
		t.Errorf("the forbidden tool: %s %s", again.Result, again.Error)
	}
}
