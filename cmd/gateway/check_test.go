//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check stores the results of expensive probes for later runs of check and serve, but prints the
// current lists of the backends.
func TestCheckWritesCacheAndIgnoresIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A server that exits on server/discover, and lists the content of a file.
	script := `echo >> starts; read -r l; case $l in *server/discover*) exit 1;; esac
		printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n'
		read -r l; read -r l; printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[%s]}}\n' "$(cat tools)"; cat >/dev/null`
	config := fmt.Sprintf(
		"state: %s\nbackends: [{name: s, command: sh, args: [-c, %q], cwd: %s}]",
		filepath.Join(dir, "state"), strings.ReplaceAll(script, "$", "$$"), dir,
	)
	path := file(t, "gateway.yaml", config)
	put := func(names ...string) {
		t.Helper()
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
		}
		if err := os.WriteFile(filepath.Join(dir, "tools"), []byte(strings.Join(all, ",")),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	starts := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "starts"))
		return len(text)
	}
	prints := func(verb string, want ...string) {
		t.Helper()
		c := runPiped(t, nil, verb, "-c", path)
		code, out, stderr := c.output()
		for _, w := range want {
			if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
				t.Errorf("%s: exit code %d, not %q in\n%s%s", verb, code, w, out, stderr)
			}
		}
	}
	put("one", "two")
	prints("check", "s ok 2 0 0")
	if n := starts(); n != 2 {
		t.Errorf("started %d times", n)
	}
	put("one", "two", "three")
	prints("check", "s ok 3 0 0")
	put("other")
	prints("tools", "other s other")
	if n := starts(); n != 4 {
		t.Errorf("started %d times, although the generation of the server is stored", n)
	}
}
