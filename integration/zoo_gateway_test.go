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

// A zoo is one gateway with all kinds of backends: three real ones over stdio, one over HTTP whose tools all collide,
// one that reads and never answers, one that prints a banner and dies.
type zoo struct {
	*setup
	files string // the filesystem server's directory
	port  string // the HTTP server's
	wait  time.Duration
	tools []string
}

// newZoo lays out a zoo with this catalog.wait.
func newZoo(t testing.TB, wait func([]backend) time.Duration) *zoo {
	t.Helper()
	z := &zoo{files: t.TempDir()}
	if err := os.WriteFile(filepath.Join(z.files, "hello.txt"), []byte("hello from a file"), 0o644); err != nil {
		t.Fatal(err)
	}
	web := everythingHTTP(t)
	z.port = web.port
	stdio := []backend{
		stdioBackend(t, "everything", "everything", nil),
		stdioBackend(t, "files", "filesystem", nil, z.files),
		stdioBackend(t, "memory", "memory", map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}),
	}
	z.wait = wait(stdio)
	z.setup = newSetup(t, map[string]any{"catalog": map[string]any{"wait": z.wait.String()}},
		append(stdio, backend{Name: "web", URL: web.url}, actor("mute", "mute", ""), actor("banner", "banner", ""))...)
	everything := []string{"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference",
		"get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource", "toggle-simulated-logging",
		"toggle-subscriber-updates", "trigger-long-running-operation", "simulate-research-query"}
	z.tools = append(z.tools, everything...)
	z.tools = append(z.tools, "read_file", "read_text_file", "read_media_file", "read_multiple_files", "write_file", "edit_file",
		"create_directory", "list_directory", "list_directory_with_sizes", "directory_tree", "move_file", "search_files",
		"get_file_info", "list_allowed_directories",
		"create_entities", "create_relations", "add_observations", "delete_entities", "delete_observations", "delete_relations",
		"read_graph", "search_nodes", "open_nodes")
	for _, name := range everything {
		z.tools = append(z.tools, "web__"+name)
	}
	slices.Sort(z.tools)
	return z
}

// defaultWait is catalog.wait as it is if nobody sets it. Claude Code's mcp list gives tools/list 5 s.
func defaultWait([]backend) time.Duration { return 3 * time.Second }

// ampleWait is the same, unless this machine is so busy that the servers need much of that even without a gateway.
func ampleWait(t testing.TB) func([]backend) time.Duration {
	return func(backends []backend) time.Duration { return max(defaultWait(nil), 4*startTime(t, backends)) }
}

// startTime is how long these servers take, side by side, until all have listed their tools to a client of their own.
func startTime(t testing.TB, backends []backend) time.Duration {
	t.Helper()
	began := time.Now()
	var clients []*rawClient
	for _, b := range backends {
		cmd := exec.Command(b.Command, b.Args...)
		clients = append(clients, startRaw(t, cmd))
	}
	for _, c := range clients {
		c.greet("2025-11-25")
		listTools(t, c)
	}
	took := time.Since(began)
	for _, c := range clients {
		c.cmd.Process.Kill()
	}
	return took
}

// prime runs the gateway until it has seen all healthy backends. Later ones list from the catalogs that this one left on
// disk, however long the backends take to start on a busy machine.
func (z *zoo) prime() {
	z.t.Helper()
	gw := z.start()
	gw.greet("2025-11-25")
	var got []string
	if !poll(patience, func() bool {
		got = names(listTools(z.t, gw))
		slices.Sort(got)
		return slices.Equal(got, z.tools)
	}) {
		z.t.Fatalf("tools: %q\nwant: %q", got, z.tools)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		z.t.Errorf("exit code %d", code)
	}
}

// forAnyClient leaves out the tools that server-everything lists only to clients that can be asked: on stdin and stdout
// a backend is told what the one client can do.
func forAnyClient(tools []string) []string {
	return slices.DeleteFunc(tools, func(name string) bool {
		own := strings.TrimPrefix(name, "web__")
		return own == "get-roots-list" || own == "trigger-elicitation-request" || own == "trigger-url-elicitation" || own == "trigger-sampling-request"
	})
}

// argv is the gateway's command line.
func (z *zoo) argv() []string { return []string{gateway(z.t), "-c", z.config} }

// Not parallel: it is about time.
func TestSTART_01_NOTIF_10_FirstListWaitsForHealthyBackendsAtMostCatalogWait(t *testing.T) {
	z := newZoo(t, ampleWait(t))
	gw := z.start()
	gw.call("ping", `{}`) // the process is up
	began := time.Now()
	gw.greet("2025-11-25")
	greeted := time.Since(began)
	tools := names(listTools(t, gw))
	listed := time.Since(began)
	t.Logf("initialize %v, tools/list %v", greeted, listed)
	if greeted > 100*time.Millisecond {
		t.Errorf("initialize took %v, want at most 100 ms", greeted)
	}
	if listed > z.wait+z.wait/3 {
		t.Errorf("the first tools/list took %v, catalog.wait is %v", listed, z.wait)
	}
	slices.Sort(tools)
	if !slices.Equal(tools, z.tools) {
		t.Errorf("tools: %q\nwant: %q", tools, z.tools)
	}
	// Those that are missing are named, with what is known of them.
	logs := gw.logs()
	for _, word := range []string{"mute", "banner", "license file not found", "Welcome to the banner server"} {
		if !strings.Contains(logs, word) {
			t.Errorf("the log does not mention %q", word)
		}
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
}

// Not parallel: it is about time, too.
func TestInspectorListsAndCallsEachHealthyBackend(t *testing.T) {
	z := newZoo(t, ampleWait(t))
	tools, took := inspectTools(t, z.mark, z.argv())
	t.Logf("tools/list through the Inspector: %v", took)
	tools = forAnyClient(tools)
	slices.Sort(tools)
	if !slices.Equal(tools, z.tools) {
		t.Errorf("tools: %q\nwant: %q", tools, z.tools)
	}
	// Node and the Inspector take their time to start, the gateway to end its children.
	if limit := z.wait + 10*time.Second; took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
	for _, call := range []struct{ tool, arguments, want string }{
		{"echo", `{"message":"bare"}`, `Echo: bare`},
		{"web__echo", `{"message":"prefixed"}`, `Echo: prefixed`},
		{"web__get-env", `{}`, `\"PORT\": \"` + z.port + `\"`},
		{"read_text_file", `{"path":"` + filepath.Join(z.files, "hello.txt") + `"}`, `hello from a file`},
		{"open_nodes", `{"names":["nobody"]}`, `"entities":[]`},
	} {
		if got := inspectCall(t, z.mark, z.argv(), call.tool, call.arguments); !strings.Contains(got, call.want) {
			t.Errorf("%s: %s", call.tool, got)
		}
	}
	var audited []string
	for _, r := range z.records() {
		r.checkComplete(t)
		audited = append(audited, r.Tool+" = "+r.Backend+"/"+r.BackendTool+" "+r.Outcome)
	}
	want := []string{"echo = everything/echo ok", "web__echo = web/echo ok", "web__get-env = web/get-env ok",
		"read_text_file = files/read_text_file ok", "open_nodes = memory/open_nodes ok"}
	if !slices.Equal(audited, want) {
		t.Errorf("audit: %q\nwant: %q", audited, want)
	}
}

func TestClaudeCodeListsTheGatewayAsConnected(t *testing.T) {
	t.Parallel()
	z := newZoo(t, defaultWait)
	z.prime()
	c := newClaude(t, z.mark)
	c.run(append([]string{"mcp", "add", "-s", "user", "gw", "--"}, z.argv()...)...)
	out, took := c.run("mcp", "list")
	t.Logf("mcp list: %v", took)
	if !strings.Contains(out, "✔ Connected") && !strings.Contains(out, "✓ Connected") {
		t.Errorf("mcp list says %q\n%s", out, c.mcpLogs())
	}
	if out, _ := c.run("mcp", "get", "gw"); !strings.Contains(out, "Connected") {
		t.Errorf("mcp get says %q", out)
	}
}

func TestNAME_01_ClaudeCodeCallsBareAndPrefixedTools(t *testing.T) {
	t.Parallel()
	z := newZoo(t, defaultWait)
	z.prime()
	model := startModel(t)
	c := newClaude(t, z.mark, "ANTHROPIC_BASE_URL="+model.url)
	// Claude Code speaks 2026-07-28 to the gateway, and can be asked for its roots in mid-call only. The filesystem server asks
	// when it starts, and so serves what it was started with.
	hello := filepath.Join(z.files, "hello.txt")
	out, took := c.run(c.script(z.argv(),
		`mcp__gw__echo {"message":"bare"}`,
		`mcp__gw__web__get-env {}`,
		`mcp__gw__read_text_file {"path":"`+hello+`"}`,
		`mcp__gw__get-sum {"a":"one"}`,
		`mcp__gw__web__get-sum {"a":19,"b":23}`)...)
	t.Logf("claude -p: %v", took)

	offered, results := model.record()
	var ours []string
	for _, name := range offered {
		if own, ok := strings.CutPrefix(name, "mcp__gw__"); ok {
			ours = append(ours, own)
		}
	}
	ours = forAnyClient(ours)
	slices.Sort(ours)
	if !slices.Equal(ours, z.tools) {
		t.Errorf("offered to the model: %q\nwant: %q", ours, z.tools)
	}
	want := []struct {
		tool, text string
		isError    bool
	}{
		{"mcp__gw__echo", "Echo: bare", false},
		{"mcp__gw__web__get-env", `"PORT": "` + z.port + `"`, false},
		{"mcp__gw__read_text_file", "hello from a file", false},
		{"mcp__gw__get-sum", "expected number, received string", true},
		{"mcp__gw__web__get-sum", "The sum of 19 and 23 is 42.", false},
	}
	if len(results) != len(want) {
		t.Fatalf("%d results: %+v\n%s", len(results), results, c.mcpLogs())
	}
	for i, w := range want {
		if r := results[i]; r.tool != w.tool || !strings.Contains(r.text, w.text) || r.isError != w.isError {
			t.Errorf("result %d: %+v, want %+v", i, r, w)
		}
	}
	if !strings.Contains(out, "The sum of 19 and 23 is 42.") {
		t.Errorf("claude -p prints %q", out)
	}

	// Each call left one record that joins the three ids: the session's, the client's, the backend's.
	records := z.records()
	var audited []string
	ids := map[string]bool{}
	for _, r := range records {
		r.checkComplete(t)
		audited = append(audited, r.Tool+" = "+r.Backend+"/"+r.BackendTool+" "+r.Outcome)
		if r.Session != records[0].Session {
			t.Errorf("session %q beside %q", r.Session, records[0].Session)
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
	wantAudit := []string{"echo = everything/echo ok", "web__get-env = web/get-env ok", "read_text_file = files/read_text_file ok",
		"get-sum = everything/get-sum tool_error", "web__get-sum = web/get-sum ok"}
	if !slices.Equal(audited, wantAudit) {
		t.Errorf("audit: %q\nwant: %q", audited, wantAudit)
	}
}

// `claude mcp add gateway -- gateway` works before anything is written.
func TestClaudeCodeCallsTheDemoWithoutAnyConfig(t *testing.T) {
	t.Parallel()
	m := newSetup(t, nil).mark
	model := startModel(t)
	c := newClaude(t, m, "ANTHROPIC_BASE_URL="+model.url)
	c.run("mcp", "add", "-s", "user", "gateway", "--", gateway(t))
	if out, _ := c.run("mcp", "list"); !strings.Contains(out, "Connected") {
		t.Errorf("mcp list says %q\n%s", out, c.mcpLogs())
	}
	out, _ := c.run("-p", "please\nCALL mcp__gateway__add {\"a\":19,\"b\":23}", "--allowedTools", "mcp__gateway", "--output-format", "text")
	if _, results := model.record(); len(results) != 1 || results[0].isError || !strings.Contains(results[0].text, "42") {
		t.Errorf("results: %+v; claude -p prints %q\n%s", results, out, c.mcpLogs())
	}
}
