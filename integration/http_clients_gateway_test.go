//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Published clients and servers, with the gateway's HTTP server between them.

func TestInspectorOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		stdioBackend(t, "everything", "everything", nil))
	url := s.serveURL()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(inspectURL(t, s.marker, url, "--method", "tools/list"),
		&list); err != nil || len(list.Tools) != 13 {
		t.Errorf("tools: %v, %v", list, err)
	}
	if got := inspectURL(t, s.marker, url, "--method", "tools/call", "--tool-name", "get-sum",
		"--tool-args-json", `{"a":2,"b":3}`); !strings.Contains(string(got),
		"The sum of 2 and 3 is 5.") {
		t.Errorf("get-sum: %s", got)
	}
	for method, want := range map[string]string{"prompts/list": "completable-prompt",
		"resources/list":           "demo://resource",
		"resources/templates/list": "demo://resource/dynamic/"} {
		if got := inspectURL(t, s.marker, url, "--method", method); !strings.Contains(string(got),
			want) {
			t.Errorf("%s has no %s: %.300s", method, want, got)
		}
	}
}

func TestClaudeCodeOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		stdioBackend(t, "everything", "everything", nil),
		backend{Name: "web", URL: everythingHTTP(t).url})
	url := s.serveURL()
	awaitReady(t, url)
	model := startModel(t)
	c := newClaude(t, s.marker, "ANTHROPIC_BASE_URL="+model.url)
	c.run("mcp", "add", "-s", "user", "--transport", "http", "gw", url)
	if out, took := c.run("mcp", "list"); !strings.Contains(out, "✔ Connected") &&
		!strings.Contains(out, "✓ Connected") {
		t.Errorf("mcp list prints %q after %v\n%s", out, took, c.mcpLogs())
	}
	out, took := c.run(c.scriptFor(map[string]any{"type": "http", "url": url},
		`mcp__gw__echo {"message":"over HTTP"}`, `mcp__gw__web__get-sum {"a":19,"b":23}`)...)
	t.Logf("claude -p: %v", took)
	_, results := model.record()
	want := []toolResult{{"mcp__gw__echo", "Echo: over HTTP", false},
		{"mcp__gw__web__get-sum", "The sum of 19 and 23 is 42.", false}}
	if !slices.Equal(results, want) {
		t.Errorf("results: %+v; claude -p prints %q\n%s", results, out, c.mcpLogs())
	}
}

// Prompts, resources and completions also have the same bytes as on a direct connection. The
// server is the gateway's only one, so that all names are unchanged.
func TestDifferential_OverHTTP(t *testing.T) {
	t.Parallel()
	web := everythingHTTP(t)
	direct := dialHTTP(t, web.url, "2025-11-25")
	stdio := stdioBackend(t, "everything", "everything", nil)
	stdio.Sharing = "session"
	for _, b := range []backend{{Name: "web", URL: web.url}, stdio} {
		t.Run(b.Name, func(t *testing.T) {
			url := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
				b).serveURL()
			awaitReady(t, url)
			gw := dialHTTP(t, url, "2025-11-25")
			same := func(what, method, params string) {
				t.Helper()
				want, got := direct.call(method, params), gw.call(method, params)
				checkSame(t, what+": error", want.Error, got.Error)
				checkSame(t, what+": result", maskVolatile("get-resource-reference", want.Result),
					maskVolatile("get-resource-reference", got.Result))
			}
			for method, member := range map[string]string{
				"prompts/list": "prompts", "resources/list": "resources",
				"resources/templates/list": "resourceTemplates",
			} {
				want, got := elements(t, direct, method, member), elements(t, gw, method, member)
				if len(want) == 0 {
					t.Errorf("%s: the server lists nothing", method)
				}
				checkSame(t, method, []byte(strings.Join(want, "\n")),
					[]byte(strings.Join(got, "\n")))
			}
			for _, p := range []string{
				`{"name":"simple-prompt"}`,
				`{"name":"args-prompt","arguments":{"city":"<Zürich> & \u00fc","state":"ZH"}}`,
				`{"name":"args-prompt","arguments":{}}`, // an error of the server
				`{"name":"completable-prompt","arguments":{"department":"Engineering","name":"Alice"}}`,
				`{"name":"resource-prompt","arguments":{"resourceType":"Text","resourceId":"3"}}`,
			} {
				same("prompts/get "+p, "prompts/get", p)
			}
			read := 0
			for _, entry := range elements(t, direct, "resources/list", "resources") {
				var r struct{ URI string }
				json.Unmarshal([]byte(entry), &r)
				same("resources/read "+r.URI, "resources/read", fmt.Sprintf(`{"uri":%q}`, r.URI))
				read++
			}
			for _, uri := range []string{"demo://resource/dynamic/text/1",
				"demo://resource/dynamic/blob/2", "demo://resource/dynamic/text/x"} {
				same("resources/read "+uri, "resources/read", `{"uri":"`+uri+`"}`)
			}
			for _, p := range []string{
				`{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"E"}}`,
				`{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"name","value":"A"},"context":{"arguments":{"department":"Engineering"}}}`,
				`{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"1"}}`,
			} {
				same("completion/complete "+p, "completion/complete", p)
			}
			t.Logf("%d resources read", read)
		})
	}
}

// elements returns the entries of all pages of a list, unchanged.
func elements(t testing.TB, c caller, method, member string) (all []string) {
	t.Helper()
	for cursor := ""; ; {
		m := c.call(method, `{`+cursor+`}`)
		var page map[string]json.RawMessage
		var list []json.RawMessage
		if err := json.Unmarshal(m.Result, &page); err != nil {
			t.Fatalf("%s: %v: %s", method, err, m.Raw)
		}
		if err := json.Unmarshal(page[member], &list); err != nil {
			t.Fatalf("%s: %v: %s", method, err, m.Raw)
		}
		for _, entry := range list {
			all = append(all, string(entry))
		}
		if page["nextCursor"] == nil || len(all) > 10_000 {
			return all
		}
		cursor = `"cursor":` + string(page["nextCursor"])
	}
}

// A server that has only HTTP+SSE, with the transport configured or detected.
func TestHTTPSSEBackend(t *testing.T) {
	t.Parallel()
	sse := everythingOver(t, "sse", "/sse")
	for _, transport := range []string{"auto", "sse"} {
		for _, sharing := range []string{"session", "shared"} {
			t.Run(transport+"/"+sharing, func(t *testing.T) {
				t.Parallel()
				s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
					backend{Name: "sse", URL: sse.url, Transport: transport, Sharing: sharing})
				url := s.serveURL()
				awaitReady(t, url)
				var progress, responses []message
				v, err := dialStreams(t.Context(), http.DefaultClient, url, `{}`,
					func(_ string, m message) {
						if m.Method == "notifications/progress" {
							progress = append(progress, m)
						} else if m.Method == "" {
							responses = append(responses, m)
						}
					})
				if err == nil {
					err = v.post("1",
						`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"trigger-long-running-operation",`+
							`"arguments":{"duration":0.3,"steps":3},"_meta":{"progressToken":"t"}}}`)
				}
				if err == nil {
					err = v.post("2",
						`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get-sum","arguments":{"a":1,"b":2}}}`)
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(progress) != 3 || len(responses) != 2 ||
					!strings.Contains(string(responses[1].Result), "is 3.") {
					t.Errorf("progress %q, responses %q", progress, responses)
				}
				if err := v.deleteSession(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestNPMClientOverHTTP runs the client of the npm SDK v1, through testdata/npm-client.mjs, over
// both of its transports.
func TestNPMClientOverHTTP(t *testing.T) {
	t.Parallel()
	local := helperBackend("local", "features", "")
	local.Sharing = "session"
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, local,
		backend{Name: "web", URL: everythingHTTP(t).url})
	url := s.serveURL()
	awaitReady(t, url)
	module(t, "@modelcontextprotocol", "sdk", "package.json")
	for name, url := range map[string]string{"http": url,
		"sse": strings.TrimSuffix(url, "/mcp") + "/sse"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), node(t), "testdata/npm-client.mjs", name, url)
			cmd.Env = s.env()
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "all passed") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
