//go:build unix

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A mixedSetup is one gateway with all kinds of backends: three real ones over stdio, one over
// HTTP whose tool names all collide, one that reads and never responds, one that prints a banner
// and dies.
type mixedSetup struct {
	*setup
	files string // directory of the filesystem server
	port  string // port of the HTTP server
	wait  time.Duration
	tools []string
}

// newMixedSetup writes the configuration with this catalog.wait.
func newMixedSetup(t testing.TB, wait func([]backend) time.Duration) *mixedSetup {
	t.Helper()
	mx := &mixedSetup{files: t.TempDir()}
	if err := os.WriteFile(filepath.Join(mx.files, "hello.txt"), []byte("hello from a file"),
		0o644); err != nil {
		t.Fatal(err)
	}
	web := everythingHTTP(t)
	mx.port = web.port
	stdio := []backend{
		stdioBackend(t, "everything", "everything", nil),
		stdioBackend(t, "files", "filesystem", nil, mx.files),
		stdioBackend(t, "memory", "memory",
			map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}),
	}
	mx.wait = wait(stdio)
	mx.setup = newSetup(t, map[string]any{"catalog": map[string]any{"wait": mx.wait.String()}},
		append(stdio, backend{Name: "web", URL: web.url},
			helperBackend("unresponsive", "unresponsive", ""),
			helperBackend("banner", "banner", ""))...)
	everything := []string{"echo", "get-annotated-message", "get-env", "get-resource-links",
		"get-resource-reference",
		"get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource",
		"toggle-simulated-logging",
		"toggle-subscriber-updates", "trigger-long-running-operation", "simulate-research-query"}
	mx.tools = append(mx.tools, everything...)
	mx.tools = append(mx.tools, "read_file", "read_text_file", "read_media_file",
		"read_multiple_files", "write_file", "edit_file",
		"create_directory", "list_directory", "list_directory_with_sizes", "directory_tree",
		"move_file", "search_files",
		"get_file_info", "list_allowed_directories",
		"create_entities", "create_relations", "add_observations", "delete_entities",
		"delete_observations", "delete_relations",
		"read_graph", "search_nodes", "open_nodes")
	for _, name := range everything {
		mx.tools = append(mx.tools, "web__"+name)
	}
	slices.Sort(mx.tools)
	return mx
}

// defaultWait is the default of catalog.wait. Claude Code's mcp list gives tools/list 5 s.
func defaultWait([]backend) time.Duration { return 3 * time.Second }

// scaledWait is defaultWait, or more if this machine is so busy that the servers need a large
// part of it even without a gateway.
func scaledWait(t testing.TB) func([]backend) time.Duration {
	return func(backends []backend) time.Duration {
		return max(defaultWait(nil), 4*startTime(t, backends))
	}
}

// startTime measures how long these servers take, in parallel, until all of them have listed
// their tools to a direct client.
func startTime(t testing.TB, backends []backend) time.Duration {
	t.Helper()
	began := time.Now()
	var clients []*rawClient
	for _, b := range backends {
		cmd := exec.Command(b.Command, b.Args...)
		clients = append(clients, startRaw(t, cmd))
	}
	for _, c := range clients {
		c.initialize("2025-11-25")
		listTools(t, c)
	}
	took := time.Since(began)
	for _, c := range clients {
		c.cmd.Process.Kill()
	}
	return took
}

// fillCache runs the gateway until it has listed all healthy backends. Later gateways list from
// the catalog cache that this one leaves on disk, however long the backends take to start on a
// busy machine.
func (mx *mixedSetup) fillCache() {
	mx.t.Helper()
	gw := mx.start()
	gw.initialize("2025-11-25")
	var got []string
	if !poll(waitTimeout, func() bool {
		got = names(listTools(mx.t, gw))
		slices.Sort(got)
		return slices.Equal(got, mx.tools)
	}) {
		mx.t.Fatalf("tools: %q\nwant: %q", got, mx.tools)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		mx.t.Errorf("exit code %d", code)
	}
}

// withoutClientTools leaves out the tools that server-everything lists only to clients that
// support its requests: on stdio a backend gets the capabilities of the one client.
func withoutClientTools(tools []string) []string {
	return slices.DeleteFunc(tools, func(name string) bool {
		name = strings.TrimPrefix(name, "web__")
		return name == "get-roots-list" || name == "trigger-elicitation-request" ||
			name == "trigger-url-elicitation" || name == "trigger-sampling-request"
	})
}

// argv returns the gateway's command line.
func (mx *mixedSetup) argv() []string { return []string{gateway(mx.t), "-c", mx.config} }

// Not parallel: it measures time.
func TestSTART_01_NOTIF_10_FirstListWaitsAtMostCatalogWait(t *testing.T) {
	mx := newMixedSetup(t, scaledWait(t))
	gw := mx.start()
	gw.call("ping", `{}`) // the process is ready
	began := time.Now()
	gw.initialize("2025-11-25")
	initialized := time.Since(began)
	tools := names(listTools(t, gw))
	listed := time.Since(began)
	t.Logf("initialize %v, tools/list %v", initialized, listed)
	if initialized > 100*time.Millisecond {
		t.Errorf("initialize took %v, want at most 100 ms", initialized)
	}
	if listed > mx.wait+mx.wait/3 {
		t.Errorf("the first tools/list took %v, catalog.wait is %v", listed, mx.wait)
	}
	slices.Sort(tools)
	if !slices.Equal(tools, mx.tools) {
		t.Errorf("tools: %q\nwant: %q", tools, mx.tools)
	}
	// The missing backends are logged, with the reasons.
	logs := gw.logs()
	for _, word := range []string{"unresponsive", "banner", "license file not found",
		"Welcome to the banner server"} {
		if !strings.Contains(logs, word) {
			t.Errorf("the log does not contain %q", word)
		}
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
}

// Not parallel to other tests: it measures the time of tools/list.
func TestInspector_ListsAndCallsHealthyBackends(t *testing.T) {
	mx := newMixedSetup(t, scaledWait(t))
	tools, took := inspectTools(t, mx.marker, mx.argv())
	t.Logf("tools/list through the Inspector: %v", took)
	tools = withoutClientTools(tools)
	slices.Sort(tools)
	if !slices.Equal(tools, mx.tools) {
		t.Errorf("tools: %q\nwant: %q", tools, mx.tools)
	}
	// Node and the Inspector need time to start, and the gateway needs time to stop its
	// children.
	if limit := mx.wait + 10*time.Second; took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
	// The catalogs are cached from now on: no list has to wait for the backends without tools.
	mx.editConfig(func(doc map[string]any) { doc["catalog"] = map[string]any{"wait": "100ms"} })
	calls := []struct{ tool, arguments, want string }{
		{"echo", `{"message":"bare"}`, `Echo: bare`},
		{"web__echo", `{"message":"prefixed"}`, `Echo: prefixed`},
		{"web__get-env", `{}`, `\"PORT\": \"` + mx.port + `\"`},
		{"read_text_file", `{"path":"` + filepath.Join(mx.files, "hello.txt") + `"}`,
			`hello from a file`},
		{"open_nodes", `{"names":["nobody"]}`, `"entities":[]`},
	}
	t.Run("calls", func(t *testing.T) { // ends when its parallel subtests have ended
		for _, call := range calls {
			t.Run(call.tool, func(t *testing.T) {
				t.Parallel()
				if got := inspectCall(t, mx.marker, mx.argv(), call.tool,
					call.arguments); !strings.Contains(got, call.want) {
					t.Error(got)
				}
			})
		}
	})
	var audited []string
	for _, r := range mx.records() {
		r.checkComplete(t)
		audited = append(audited, r.Tool+" = "+r.Backend+"/"+r.BackendTool+" "+r.Outcome)
	}
	want := []string{"echo = everything/echo ok", "web__echo = web/echo ok",
		"web__get-env = web/get-env ok",
		"read_text_file = files/read_text_file ok", "open_nodes = memory/open_nodes ok"}
	slices.Sort(audited)
	slices.Sort(want)
	if !slices.Equal(audited, want) {
		t.Errorf("audit: %q\nwant: %q", audited, want)
	}
}

func TestClaudeCode_ReportsConnected(t *testing.T) {
	t.Parallel()
	mx := newMixedSetup(t, defaultWait)
	mx.fillCache()
	c := newClaude(t, mx.marker)
	c.run(append([]string{"mcp", "add", "-s", "user", "gw", "--"}, mx.argv()...)...)
	out, took := c.run("mcp", "list")
	t.Logf("mcp list: %v", took)
	if !strings.Contains(out, "✔ Connected") && !strings.Contains(out, "✓ Connected") {
		t.Errorf("mcp list prints %q\n%s", out, c.mcpLogs())
	}
	if out, _ := c.run("mcp", "get", "gw"); !strings.Contains(out, "Connected") {
		t.Errorf("mcp get prints %q", out)
	}
}

func TestNAME_01_ClaudeCodeCallsBareAndPrefixedTools(t *testing.T) {
	t.Parallel()
	mx := newMixedSetup(t, scaledWait(t))
	mx.fillCache()
	model := startModel(t)
	c := newClaude(t, mx.marker, "ANTHROPIC_BASE_URL="+model.url)
	// Claude Code speaks 2026-07-28 to the gateway, so that its roots can be requested only
	// during a call. The filesystem server requests them when it starts, and so keeps the
	// directory of its command line.
	hello := filepath.Join(mx.files, "hello.txt")
	out, took := c.run(c.script(mx.argv(),
		`mcp__gw__echo {"message":"bare"}`,
		`mcp__gw__web__get-env {}`,
		`mcp__gw__read_text_file {"path":"`+hello+`"}`,
		`mcp__gw__get-sum {"a":"one"}`,
		`mcp__gw__web__get-sum {"a":19,"b":23}`)...)
	t.Logf("claude -p: %v", took)

	offered, results := model.record()
	var offeredTools []string
	for _, name := range offered {
		if name, ok := strings.CutPrefix(name, "mcp__gw__"); ok {
			offeredTools = append(offeredTools, name)
		}
	}
	offeredTools = withoutClientTools(offeredTools)
	slices.Sort(offeredTools)
	if !slices.Equal(offeredTools, mx.tools) {
		t.Errorf("offered to the model: %q\nwant: %q", offeredTools, mx.tools)
	}
	want := []struct {
		tool, text string
		isError    bool
	}{
		{"mcp__gw__echo", "Echo: bare", false},
		{"mcp__gw__web__get-env", `"PORT": "` + mx.port + `"`, false},
		{"mcp__gw__read_text_file", "hello from a file", false},
		{"mcp__gw__get-sum", "expected number, received string", true},
		{"mcp__gw__web__get-sum", "The sum of 19 and 23 is 42.", false},
	}
	if len(results) != len(want) {
		t.Fatalf("%d results: %+v\n%s", len(results), results, c.mcpLogs())
	}
	for i, w := range want {
		if r := results[i]; r.tool != w.tool || !strings.Contains(r.text, w.text) ||
			r.isError != w.isError {
			t.Errorf("result %d: %+v, want %+v", i, r, w)
		}
	}
	if !strings.Contains(out, "The sum of 19 and 23 is 42.") {
		t.Errorf("claude -p prints %q", out)
	}

	// Each call has one record that connects the three ids: the session's, the client's, the
	// backend's.
	records := mx.records()
	var audited []string
	ids := map[string]bool{}
	for _, r := range records {
		r.checkComplete(t)
		audited = append(audited, r.Tool+" = "+r.Backend+"/"+r.BackendTool+" "+r.Outcome)
		if r.Session != records[0].Session {
			t.Errorf("session %q, want %q", r.Session, records[0].Session)
		}
		if !strings.HasPrefix(r.Client, "claude-code/2.1.332") {
			t.Errorf("client %q", r.Client)
		}
		var id json.Number
		if json.Unmarshal(r.ID, &id) != nil || ids[string(r.ID)] {
			t.Errorf("id %s: Claude Code counts its requests", r.ID)
		}
		ids[string(r.ID)] = true
	}
	wantAudit := []string{"echo = everything/echo ok", "web__get-env = web/get-env ok",
		"read_text_file = files/read_text_file ok",
		"get-sum = everything/get-sum tool_error", "web__get-sum = web/get-sum ok"}
	if !slices.Equal(audited, wantAudit) {
		t.Errorf("audit: %q\nwant: %q", audited, wantAudit)
	}
}

// `claude mcp add gateway -- gateway` works without any configuration.
func TestClaudeCode_DemoWithoutConfig(t *testing.T) {
	t.Parallel()
	m := newSetup(t, nil).marker
	model := startModel(t)
	c := newClaude(t, m, "ANTHROPIC_BASE_URL="+model.url)
	c.run("mcp", "add", "-s", "user", "gateway", "--", gateway(t))
	if out, _ := c.run("mcp", "list"); !strings.Contains(out, "Connected") {
		t.Errorf("mcp list prints %q\n%s", out, c.mcpLogs())
	}
	out, _ := c.run("-p", "please\nCALL mcp__gateway__add {\"a\":19,\"b\":23}", "--allowedTools",
		"mcp__gateway", "--output-format", "text")
	if _, results := model.record(); len(results) != 1 || results[0].isError ||
		!strings.Contains(results[0].text, "42") {
		t.Errorf("results: %+v; claude -p prints %q\n%s", results, out, c.mcpLogs())
	}
}
