//go:build unix

package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A step is one call that is made twice, directly and through the gateway.
type step struct{ tool, arguments string }

// volatile matches the parts of a server's responses that differ from call to call. Everything
// else is compared byte for byte.
var volatile = map[string]*regexp.Regexp{
	// The time of creation.
	"get-resource-reference": regexp.MustCompile(`\d{1,2}:\d\d:\d\d[^"\\:]*`),
	// The id of the session.
	"toggle-simulated-logging": regexp.MustCompile(
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|undefined`),
	"toggle-subscriber-updates": regexp.MustCompile(
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|undefined`),
}

var everythingSteps = []step{
	{tool: "echo", arguments: `{"message":"<a>&</a> \u00fc ü 🙂 \" \\ \u2028 9007199254740993"}`},
	{tool: "echo", arguments: `{"message":  "spaces around",   "unasked":1e400}`},
	{tool: "echo", arguments: `{}`},
	{tool: "echo"},
	{tool: "get-annotated-message", arguments: `{"messageType":"error","includeImage":true}`},
	{tool: "get-annotated-message", arguments: `{"messageType":"debug"}`},
	{tool: "get-resource-links", arguments: `{"count":4}`},
	{tool: "get-resource-reference", arguments: `{"resourceType":"Text","resourceId":3}`},
	{tool: "get-resource-reference", arguments: `{"resourceType":"Text","resourceId":-1}`},
	{tool: "get-structured-content", arguments: `{"location":"Chicago"}`},
	{tool: "get-structured-content", arguments: `{"location":"Atlantis"}`},
	{tool: "get-sum", arguments: `{"a":0.1,"b":2e-7}`},
	{tool: "get-sum", arguments: `{"a":"one","b":2}`},
	{tool: "get-tiny-image", arguments: `{}`},
	{tool: "gzip-file-as-resource",
		arguments: `{"name":"a.gz","data":"data:text/plain,hello","outputType":"resource"}`},
	{tool: "gzip-file-as-resource",
		arguments: `{"name":"b.gz","data":"data:text/plain,hello","outputType":"resourceLink"}`},
	{tool: "gzip-file-as-resource", arguments: `{"name":"c.gz","data":"ftp://127.0.0.1/x"}`},
	{tool: "toggle-simulated-logging", arguments: `{}`}, // on
	{tool: "toggle-simulated-logging", arguments: `{}`}, // off
	{tool: "toggle-subscriber-updates", arguments: `{}`},
	{tool: "toggle-subscriber-updates", arguments: `{}`},
	{tool: "trigger-long-running-operation", arguments: `{"duration":0.2,"steps":2}`},
	// The tool requires task mode: an error.
	{tool: "simulate-research-query", arguments: `{"topic":"gateways"}`},
	// get-env has a test of its own.
}

// filesystemSteps returns the steps for a server whose only directory is dir. Each step starts
// with the files of writeFixture.
func filesystemSteps(dir string) []step {
	in := func(name string) string {
		b, _ := json.Marshal(filepath.Join(dir, name))
		return string(b)
	}
	return []step{
		{tool: "get_file_info", arguments: `{"path":` + in("unread.txt") + `}`},
		{tool: "read_file", arguments: `{"path":` + in("notes.txt") + `}`},
		{tool: "read_text_file", arguments: `{"path":` + in("notes.txt") + `,"head":2}`},
		{tool: "read_text_file", arguments: `{"path":` + in("notes.txt") + `,"tail":1}`},
		{tool: "read_text_file", arguments: `{"path":` + in("missing.txt") + `}`},
		{tool: "read_text_file", arguments: `{"path":"/etc/passwd"}`}, // not allowed
		{tool: "read_text_file", arguments: `{"path":` + in("big.txt") + `}`},
		{tool: "read_media_file", arguments: `{"path":` + in("pixel.png") + `}`},
		{tool: "read_multiple_files", arguments: `{"paths":[` + in("notes.txt") + `,` +
			in("missing.txt") + `,` + in("sub/deep.md") + `]}`},
		{tool: "write_file", arguments: `{"path":` + in("new.txt") +
			`,"content":"<new> & \u0000 ü\n"}`},
		{tool: "edit_file", arguments: `{"path":` + in("notes.txt") +
			`,"edits":[{"oldText":"second","newText":"2nd <line>"}],"dryRun":true}`},
		{tool: "edit_file", arguments: `{"path":` + in("notes.txt") +
			`,"edits":[{"oldText":"second","newText":"2nd"}]}`},
		{tool: "create_directory", arguments: `{"path":` + in("made/deep") + `}`},
		{tool: "list_directory", arguments: `{"path":` + in("") + `}`},
		{tool: "list_directory_with_sizes", arguments: `{"path":` + in("") + `,"sortBy":"size"}`},
		{tool: "directory_tree", arguments: `{"path":` + in("") + `}`},
		{tool: "move_file", arguments: `{"source":` + in("notes.txt") + `,"destination":` +
			in("moved.txt") + `}`},
		{tool: "search_files", arguments: `{"path":` + in("") + `,"pattern":"**/*.md"}`},
		{tool: "list_allowed_directories", arguments: `{}`},
	}
}

// writeFixture restores in dir the files that filesystemSteps expects.
func writeFixture(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "unread.txt" { // the times of unread.txt are part of a response
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	pixel, err := base64.StdEncoding.DecodeString(
		"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"unread.txt":  "not read",
		"notes.txt":   "first\nsecond\n<third> & \u00fc\n",
		"big.txt":     strings.Repeat("0123456789abcde\n", 1<<16), // 1 MiB
		"sub/deep.md": "# deep\n",
		"pixel.png":   string(pixel),
	} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// memorySteps build on each other; each side has a file of its own.
var memorySteps = []step{
	{tool: "read_graph", arguments: `{}`},
	{tool: "create_entities",
		arguments: `{"entities":[{"name":"Ada","entityType":"person","observations":["<writes> & ü"]},{"name":"Engine","entityType":"machine","observations":[]}]}`},
	{tool: "create_relations",
		arguments: `{"relations":[{"from":"Ada","to":"Engine","relationType":"programs"}]}`},
	{tool: "add_observations",
		arguments: `{"observations":[{"entityName":"Engine","contents":["has gears","never finished"]}]}`},
	{tool: "add_observations",
		arguments: `{"observations":[{"entityName":"Nobody","contents":["x"]}]}`},
	{tool: "search_nodes", arguments: `{"query":"gears"}`},
	{tool: "open_nodes", arguments: `{"names":["Ada","Engine"]}`},
	{tool: "delete_observations",
		arguments: `{"deletions":[{"entityName":"Engine","observations":["never finished"]}]}`},
	{tool: "delete_relations",
		arguments: `{"relations":[{"from":"Ada","to":"Engine","relationType":"programs"}]}`},
	{tool: "delete_entities", arguments: `{"entityNames":["Ada"]}`},
	{tool: "read_graph", arguments: `{}`},
}

var thinkingSteps = []step{
	{tool: "sequentialthinking",
		arguments: `{"thought":"<one> & two","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":2}`},
	{tool: "sequentialthinking",
		arguments: `{"thought":"branch","nextThoughtNeeded":false,"thoughtNumber":3,"totalThoughts":2,"branchFromThought":1,"branchId":"b"}`},
	{tool: "sequentialthinking", arguments: `{"thought":"no numbers"}`},
}

// TestDifferential checks that the gateway is transparent: for every tool of the real servers,
// the entry in tools/list and the results of calls are, byte for byte, the same as on a direct
// connection, except for the name.
func TestDifferential(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	writeFixture(t, files)
	url := everythingHTTP(t).url
	memory := func() map[string]string {
		return map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}
	}

	backends := []backend{
		stdioBackend(t, "everything", "everything", nil),
		stdioBackend(t, "files", "filesystem", nil, files),
		stdioBackend(t, "memory", "memory", memory()),
		stdioBackend(t, "thinking", "sequential-thinking", nil),
		{Name: "web", URL: url},
	}
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		slices.Clone(backends)...)
	gw := s.start()
	gw.initialize("2025-11-25")
	listed := map[string]tool{}
	for _, tool := range listTools(t, gw) {
		if _, twice := listed[tool.name]; twice {
			t.Errorf("%s is listed twice", tool.name)
		}
		listed[tool.name] = tool
	}

	total, bare := 0, map[string]bool{}
	for i, b := range backends {
		var direct caller
		var steps []step
		between := func() {}
		switch b.Name {
		case "everything", "web":
			steps = everythingSteps
		case "files":
			steps = filesystemSteps(files)
			between = func() { writeFixture(t, files) }
		case "memory":
			steps, backends[i].Env = memorySteps, memory()
		case "thinking":
			steps = thinkingSteps
		}
		if b.URL != "" {
			direct = dialHTTP(t, b.URL, "2025-11-25")
		} else {
			direct = connectDirect(t, backends[i])
		}

		tools := listTools(t, direct)
		total += len(tools)
		exposed := map[string]string{} // the backend's name → exposed name
		for _, tool := range tools {
			exposed[tool.name] = tool.name
			if bare[tool.name] {
				exposed[tool.name] = b.Name + "__" + tool.name
			}
			bare[tool.name] = true
		}

		t.Run("list/"+b.Name, func(t *testing.T) {
			for _, tool := range tools {
				through, ok := listed[exposed[tool.name]]
				if !ok {
					t.Errorf("%s is not listed", exposed[tool.name])
					continue
				}
				checkSame(t, tool.name+" in tools/list", renamed(t, tool, exposed[tool.name]),
					through.raw)
			}
		})
		t.Run("call/"+b.Name, func(t *testing.T) {
			called := map[string]bool{"get-env": true}
			for _, step := range steps {
				called[step.tool] = true
				between()
				want := callTool(direct, step.tool, step.arguments)
				between()
				got := callTool(gw, exposed[step.tool], step.arguments)
				what := step.tool + " " + step.arguments
				checkSame(t, what+": error", maskVolatile(step.tool, want.Error),
					maskVolatile(step.tool, got.Error))
				checkSame(t, what+": result", maskVolatile(step.tool, want.Result),
					maskVolatile(step.tool, got.Result))
			}
			for _, tool := range tools {
				if !called[tool.name] {
					t.Errorf("no step calls %s", tool.name)
				}
			}
		})
	}
	if len(listed) != total {
		t.Errorf("%d tools listed, the servers have %d", len(listed), total)
	}

	// get-env returns the environment that the gateway gave the child. The direct server gets
	// the same environment, so its response must be the same.
	t.Run("call/get-env", func(t *testing.T) {
		got := callTool(gw, "get-env", `{}`)
		env := envOf(t, got)
		for _, v := range env {
			if name, _, _ := strings.Cut(v, "="); name == "SECRET_X" {
				t.Error("the child inherited SECRET_X")
			}
		}
		cmd := exec.Command(backends[0].Command, backends[0].Args...)
		cmd.Env = env
		direct := startRaw(t, cmd)
		defer direct.cmd.Process.Kill()
		direct.initialize("2025-11-25")
		checkSame(t, "result", callTool(direct, "get-env", `{}`).Result, got.Result)
	})
	// Over HTTP the same process responds to both.
	t.Run("call/web get-env", func(t *testing.T) {
		direct := dialHTTP(t, url, "2025-11-25")
		checkSame(t, "result", callTool(direct, "get-env", `{}`).Result,
			callTool(gw, "web__get-env", `{}`).Result)
	})

	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
}

// renamed returns the bytes of the entry under another name.
func renamed(t testing.TB, entry tool, name string) []byte {
	t.Helper()
	prefix := []byte(`{"name":"` + entry.name + `"`)
	rest, ok := bytes.CutPrefix(entry.raw, prefix)
	if !ok {
		t.Fatalf("the entry does not begin with the name: %s", entry.raw)
	}
	return slices.Concat([]byte(`{"name":"`+name+`"`), rest)
}

// maskVolatile replaces the volatile parts of a tool's response.
func maskVolatile(tool string, response []byte) []byte {
	if re := volatile[tool]; re != nil {
		return re.ReplaceAll(response, []byte("…"))
	}
	return response
}

// envOf returns the environment in a response of get-env, in its order.
func envOf(t testing.TB, m message) []string {
	t.Helper()
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("get-env: %v: %s", err, m.Raw)
	}
	dec := json.NewDecoder(strings.NewReader(result.Content[0].Text))
	var env []string
	for dec.More() {
		key, err := dec.Token()
		if key == json.Delim('{') {
			continue
		}
		value, err2 := dec.Token()
		if err != nil || err2 != nil {
			t.Fatalf("get-env: %v, %v: %s", err, err2, m.Raw)
		}
		env = append(env, key.(string)+"="+value.(string))
	}
	return env
}

// checkSame compares bytes and prints the first difference.
func checkSame(t testing.TB, what string, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	from := max(0, at-60)
	t.Errorf("%s differs at byte %d (%d and %d bytes):\ndirect:  …%.200s\ngateway: …%.200s", what,
		at, len(want), len(got), want[min(from, len(want)):], got[min(from, len(got)):])
}
