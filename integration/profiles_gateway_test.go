//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// newProfileSetup has three servers and two profiles, each of which hides one server, and a token
// for each profile, which newToken makes.
func newProfileSetup(t *testing.T, newToken func(testing.TB, string) string) (
	s *setup, readerToken, writerToken string,
) {
	t.Helper()
	readerToken, writerToken = newToken(t, "token of the reader"), newToken(t, "token of the writer")
	s = newSetup(t, map[string]any{
		"profiles": map[string]any{
			"reader": map[string]any{"backends": []string{"wind", "rain"}},
			"writer": map[string]any{"backends": []string{"rain", "snow"},
				"tools": map[string]any{"deny": []string{"*_wait"}}},
		},
		"catalog": map[string]any{"wait": "30s"},
	}, weather("wind", "1"), weather("rain", "1"), weather("snow", "1"))
	s.editConfig(func(doc map[string]any) {
		doc["auth"] = map[string]any{"tokens": []any{
			map[string]any{"name": "alice", "token": readerToken, "profile": "reader"},
			map[string]any{"name": "bob", "token": writerToken, "profile": "writer"},
		}}
	})
	return s, readerToken, writerToken
}

// connectWithToken connects a client of the Go SDK. changed receives a value for each changed list
// of tools.
func connectWithToken(
	t *testing.T, url, token, revision string,
) (c *gosdk.ClientSession, changed chan string) {
	t.Helper()
	changed = make(chan string, 100)
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1"},
		&gosdk.ClientOptions{ToolListChangedHandler: func(context.Context,
			*gosdk.ToolListChangedRequest) {
			changed <- ""
		}})
	var transport gosdk.Transport = &gosdk.StreamableClientTransport{Endpoint: url,
		HTTPClient: &http.Client{Transport: bearer{&http.Transport{}, token}}}
	if strings.Contains(url, "/sse") {
		transport = &gosdk.SSEClientTransport{Endpoint: url,
			HTTPClient: &http.Client{Transport: bearer{&http.Transport{}, token}}}
	}
	c, err := client.Connect(t.Context(), transport,
		&gosdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, changed
}

func wantTools(t *testing.T, what string, c *gosdk.ClientSession, want string) {
	t.Helper()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(what, err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%s: tools %s, want %s", what, got, want)
	}
}

// callText returns the text of the result of a call, or its error.
func callText(t *testing.T, c *gosdk.ClientSession, tool string) string {
	t.Helper()
	result, err := c.CallTool(t.Context(), &gosdk.CallToolParams{Name: tool})
	if err != nil {
		return "error: " + err.Error()
	}
	return result.Content[0].(*gosdk.TextContent).Text
}

// Two tokens select two profiles, also over HTTP+SSE, with the clients of the Go SDK and of the npm
// SDKs. The path selects a further one. A reload changes a profile in place: open sessions are
// notified, no server is restarted, and the session of a token whose profile changes ends.
func TestProfiles_TwoTokensOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s, readerToken, writerToken := newProfileSetup(t, secret)
	gw, url := s.serveHTTP()
	log := gw.logReader()
	const reader, writer = "rain_wait rain_who wind_wait wind_who", "rain_who snow_who"

	alice, changed := connectWithToken(t, url, readerToken, "2025-11-25")
	modern, _ := connectWithToken(t, url, readerToken, "2026-07-28")
	bob, _ := connectWithToken(t, url, writerToken, "2025-11-25")
	sse, _ := connectWithToken(t, strings.TrimSuffix(url, "/mcp")+"/sse", readerToken, "2025-11-25")
	both, _ := connectWithToken(t, url+"/writer", readerToken, "2026-07-28")
	wantTools(t, "legacy", alice, reader)
	wantTools(t, "modern", modern, reader)
	wantTools(t, "HTTP+SSE", sse, reader)
	wantTools(t, "writer", bob, writer)
	wantTools(t, "intersection", both, "rain_who")
	before := callText(t, alice, "wind_who")
	for _, c := range []*gosdk.ClientSession{alice, modern, sse, both} {
		for _, tool := range []string{"snow_who", "snow__snow_who", "none"} {
			if got := callText(t, c, tool); !strings.Contains(got, "Unknown tool: "+tool) {
				t.Errorf("%s: %s", tool, got)
			}
		}
	}
	if got := callText(t, bob, "snow_who"); !strings.HasPrefix(got, "snow 1 ") {
		t.Errorf("the writer got %s", got)
	}
	if got := callText(t, modern, "wind_who"); got != before {
		t.Errorf("another process: %s, before %s", got, before)
	}
	for _, version := range []string{"v1 2025-11-25", "v2 2025-11-25", "v2 2026-07-28"} {
		cmd := exec.CommandContext(t.Context(), node(t), slices.Concat(
			[]string{"testdata/profile-client.mjs"}, strings.Fields(version),
			[]string{url, "snow_who", "wind_who", "none"})...)
		cmd.Env = s.env("TOKEN=" + writerToken)
		out, err := cmd.Output()
		var got struct {
			Tools []string
			Calls map[string]string
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Errorf("%s: %v %s", version, err, out)
		}
		slices.Sort(got.Tools)
		if err != nil || strings.Join(got.Tools, " ") != writer ||
			!strings.HasPrefix(got.Calls["snow_who"], "snow 1 ") ||
			strings.ReplaceAll(got.Calls["wind_who"], "wind_who", "none") != got.Calls["none"] {
			t.Errorf("%s: %v %+v", version, err, got)
		}
	}

	s.editConfig(func(doc map[string]any) {
		profiles := doc["profiles"].(map[string]any)
		profiles["reader"] = map[string]any{"backends": []string{"snow", "wind"}}
	})
	log.await(logReloaded)
	<-changed
	wantTools(t, "legacy, reloaded", alice, "snow_wait snow_who wind_wait wind_who")
	wantTools(t, "modern, reloaded", modern, "snow_wait snow_who wind_wait wind_who")
	wantTools(t, "intersection, reloaded", both, "snow_who")
	if got := callText(t, alice, "rain_who"); !strings.Contains(got, "Unknown tool: rain_who") {
		t.Errorf("the hidden tool: %s", got)
	}
	if got := callText(t, alice, "wind_who"); got != before {
		t.Errorf("another process: %s, before %s", got, before)
	}

	s.editConfig(func(doc map[string]any) {
		tokens := doc["auth"].(map[string]any)["tokens"].([]any)
		tokens[1].(map[string]any)["profile"] = "reader"
		delete(doc["profiles"].(map[string]any), "writer")
	})
	log.await(logReloaded)
	if got := callText(t, bob, "snow_who"); !strings.HasPrefix(got, "error: ") {
		t.Errorf("the session of the previous profile: %s", got)
	}
	if got := callText(t, both, "snow_who"); !strings.Contains(got, "error: ") {
		t.Errorf("at the path of the removed profile: %s", got)
	}
	again, _ := connectWithToken(t, url, writerToken, "2026-07-28")
	wantTools(t, "the new profile", again, "snow_wait snow_who wind_wait wind_who")
}

// The flag --profile selects the profile of the client on stdin, of both generations, and of the
// commands tools and call. An unknown profile is an error that lists the profiles.
func TestProfiles_FlagOfStdinAndCommands(t *testing.T) {
	t.Parallel()
	s, _, _ := newProfileSetup(t, secret)
	for _, generation := range []string{"legacy", "modern"} {
		gw := s.start("--profile", "writer")
		meta := ""
		if generation == "legacy" {
			gw.initialize("2025-11-25")
		} else {
			meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientCapabilities":{},` +
				`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`
		}
		call := func(method, params string) message {
			return gw.call(method, "{"+strings.TrimPrefix(params+meta, ",")+"}")
		}
		list := string(call("tools/list", "").Result)
		if !strings.Contains(list, "snow_who") || strings.Contains(list, "wind") ||
			strings.Contains(list, "_wait") {
			t.Errorf("%s: %s", generation, list)
		}
		if m := call("tools/call", `"name":"snow_who"`); m.Error != nil {
			t.Errorf("%s: %s", generation, m.Error)
		}
		unknown := call("tools/call", `"name":"none"`)
		for _, tool := range []string{"wind_who", "wind__wind_who", "snow_wait"} {
			m := call("tools/call", `"name":"`+tool+`"`)
			got := strings.ReplaceAll(string(m.Error), tool, "none")
			if got != string(unknown.Error) {
				t.Errorf("%s, %s: %s %s", generation, tool, m.Error, m.Result)
			}
		}
	}
	for _, one := range []struct {
		args       string
		code       int
		with, none string
	}{
		{"tools --profile reader", 0, "wind_who", "snow"},
		{"tools --profile writer", 0, "snow_who", "wind"},
		{"call --profile reader wind_who", 0, "wind 1", "snow"},
		{"call --profile reader snow_who", 1, "snow_who", "snow 1"},
		{"tools --profile other", 2, "reader, writer", "wind_who"},
		{"check", 0, "wind", "error"},
	} {
		code, out := s.runVerb(strings.Fields(one.args)...)
		if code != one.code || !strings.Contains(out, one.with) || strings.Contains(out, one.none) {
			t.Errorf("gateway %s: exit code %d\n%s", one.args, code, out)
		}
	}
	code, out := s.runToExit("serve", "--listen", "127.0.0.1:"+freePort(t), "--profile", "reader")
	if code != 2 || !strings.Contains(out, "/mcp/reader") {
		t.Errorf("--profile with --listen: exit code %d, %s", code, fmt.Sprintf("%.500s", out))
	}
}
