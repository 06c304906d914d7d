//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// listBackend returns a backend with these lists of entries. It fails tools/list if it has no
// such list.
func listBackend(t *testing.T, name string, lists map[string][]string) backend {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for member, entries := range lists {
		write(member, fmt.Sprintf(`"result":{%q:[%s]}}`, member, strings.Join(entries, ",")))
	}
	write("server.sh", `cd "${0%/*}"
	while read -r line; do
		id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
		case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
		*'"tools/list"'*) [ -e tools ] || { echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32603,"message":"fetch failed"}}'; continue; }
			printf '{"jsonrpc":"2.0","id":%s,' $id; cat tools; echo ;;
		*'"prompts/list"'*) printf '{"jsonrpc":"2.0","id":%s,' $id; cat prompts; echo ;;
		*'"resources/list"'*) printf '{"jsonrpc":"2.0","id":%s,' $id; cat resources; echo ;;
		*'"resources/templates/list"'*) printf '{"jsonrpc":"2.0","id":%s,' $id; cat resourceTemplates; echo ;;
		*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
		esac
	done`)
	return backend{Name: name, Command: "/bin/sh", Args: []string{filepath.Join(dir, "server.sh")}}
}

// oddEntries returns, by list, entries each with one optional member that is null or of a wrong
// type, and the names a client has to list: "tools t1".
func oddEntries() (lists map[string][]string, want []string) {
	values := []string{`null`, `5`, `"x"`, `true`, `[]`, `[5]`, `{}`, `{"a":5}`}
	plain := []string{"title", "description", "icons", "_meta"}
	nested := map[string][]string{
		"tools": {"annotations.title", "annotations.readOnlyHint", "annotations.destructiveHint",
			"annotations.idempotentHint",
			"annotations.openWorldHint", "execution.taskSupport", "inputSchema.properties",
			"inputSchema.required", "inputSchema.$defs", "inputSchema.$schema",
			"outputSchema.$schema",
			"outputSchema.properties", "outputSchema.required", "outputSchema.type"},
		"prompts": {"arguments[].name", "arguments[].title", "arguments[].description",
			"arguments[].required"},
		"resources": {"annotations.audience", "annotations.priority", "annotations.lastModified"},
	}
	nested["resourceTemplates"] = nested["resources"]
	members := map[string][]string{
		"tools":             {"annotations", "execution", "outputSchema", "defer_loading"},
		"prompts":           {"arguments"},
		"resources":         {"name", "mimeType", "size", "annotations"},
		"resourceTemplates": {"name", "mimeType", "annotations"},
	}
	lists = make(map[string][]string)
	for member := range members {
		all := slices.Concat(plain, members[member], nested[member],
			[]string{"icons[].src", "icons[].mimeType", "icons[].sizes", "icons[].theme"})
		for _, path := range all {
			for _, value := range append(values, `"\ud83d"`) {
				if path == "inputSchema.$defs" && value == `{"a":5}` {
					continue // Claude Code leaves out that tool, and no other
				}
				n := len(lists[member])
				id, first := fmt.Sprintf("e%d", n), fmt.Sprintf(`"name":"e%d"`, n)
				switch member {
				case "resources":
					id, first = "x:"+id, fmt.Sprintf(`"uri":"x:%s","name":"n"`, id)
				case "resourceTemplates":
					id, first = "x:"+id+"/{a}",
						fmt.Sprintf(`"uriTemplate":"x:%s/{a}","name":"n"`, id)
				}
				if path == "name" {
					first = strings.TrimSuffix(first, `,"name":"n"`)
				}
				lists[member] = append(lists[member], "{"+first+","+memberOf(path, value)+"}")
				want = append(want, member+" "+id)
			}
		}
	}
	slices.Sort(want)
	return lists, want
}

// memberOf returns a member with a value: of an object if the path is a.b, of the object in an
// array if the path is a[].b.
func memberOf(path, value string) string {
	outer, inner, nested := strings.Cut(path, ".")
	switch array, isArray := strings.CutSuffix(outer, "[]"); {
	case !nested:
		return fmt.Sprintf(`%q:%s`, outer, value)
	case isArray && inner == "name", isArray && inner == "src":
		return fmt.Sprintf(`%q:[{%q:%s}]`, array, inner, value)
	case array == "arguments":
		return fmt.Sprintf(`"arguments":[{"name":"a",%q:%s}]`, inner, value)
	case isArray:
		return fmt.Sprintf(`%q:[{"src":"data:,",%q:%s}]`, array, inner, value)
	case strings.HasSuffix(outer, "Schema") && inner != "type":
		return fmt.Sprintf(`%q:{"type":"object",%q:%s}`, outer, inner, value)
	}
	return fmt.Sprintf(`%q:{%q:%s}`, outer, inner, value)
}

// Clients list everything of a healthy backend and of a backend each of whose entries has one
// member that violates MCP's schema.
func TestLists_OddEntries_F_LIST_1_F_LIST_2_F_LIST_3_F_LIST_4(t *testing.T) {
	t.Parallel()
	lists, want := oddEntries()
	odd := listBackend(t, "odd", lists)
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		backend{Name: "demo", Embedded: "demo"}, odd)
	url := s.serveURL()
	awaitReady(t, url)
	checkClientLists(t, s, url, want)
	// check names the repaired entries.
	if _, out := s.runVerb("check"); !strings.Contains(out, "repaired e") {
		t.Errorf("check: %s", out)
	}
}

// checkClientLists compares the lists that each client gets at a URL with want, such as "tools
// t1", and the demo's entries.
func checkClientLists(t *testing.T, s *setup, url string, want []string) {
	t.Helper()
	check := func(t *testing.T, got []string) {
		t.Helper()
		slices.Sort(got)
		for _, entry := range append(slices.Clone(want), "tools echo", "tools add", "tools now") {
			if _, there := slices.BinarySearch(got, entry); !there {
				t.Errorf("%s is not listed", entry)
			}
		}
		if len(got) != len(want)+5 { // the other two are a prompt and a resource
			t.Errorf("%d entries are listed, want %d", len(got), len(want)+5)
		}
	}
	t.Run("npm SDK", func(t *testing.T) {
		module(t, "@modelcontextprotocol", "sdk", "package.json")
		cmd := exec.CommandContext(t.Context(), node(t), "testdata/list-client.mjs", url)
		cmd.Env = s.env()
		var problem bytes.Buffer
		cmd.Stderr = &problem
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%.4000s", err, &problem)
		}
		check(t, strings.Split(strings.TrimSpace(string(out)), "\n"))
	})
	for _, revision := range []string{"2024-11-05", "2025-11-25", ""} {
		t.Run("go-sdk "+revision, func(t *testing.T) {
			client := gosdk.NewClient(&gosdk.Implementation{Name: "c", Version: "1"}, nil)
			session, err := client.Connect(t.Context(),
				&gosdk.StreamableClientTransport{Endpoint: url, HTTPClient: separateConnections()},
				&gosdk.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			var got []string
			add := func(entry string, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, entry)
			}
			for tool, err := range session.Tools(t.Context(), nil) {
				add("tools "+tool.Name, err)
			}
			for prompt, err := range session.Prompts(t.Context(), nil) {
				add("prompts "+prompt.Name, err)
			}
			for resource, err := range session.Resources(t.Context(), nil) {
				add("resources "+resource.URI, err)
			}
			for template, err := range session.ResourceTemplates(t.Context(), nil) {
				add("resourceTemplates "+template.URITemplate, err)
			}
			check(t, got)
		})
	}
	t.Run("mcp-go", func(t *testing.T) { check(t, listMCPGo(t, url)) })
	t.Run("Claude Code", func(t *testing.T) {
		model := startModel(t)
		c := newClaude(t, s.marker, "ANTHROPIC_BASE_URL="+model.url)
		c.run(c.scriptFor(map[string]any{"type": "http", "url": url},
			`mcp__gw__echo {"text":"hi"}`)...)
		offered, _ := model.record()
		for _, entry := range want {
			if name, isTool := strings.CutPrefix(entry, "tools "); isTool &&
				!slices.Contains(offered, "mcp__gw__"+name) {
				t.Errorf("%s is not offered", name)
			}
		}
	})
}

func listMCPGo(t *testing.T, url string) (got []string) {
	ctx := context.Background()
	c, err := mcpgoclient.NewStreamableHttpClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	hello := mcpgo.InitializeRequest{}
	hello.Params.ProtocolVersion, hello.Params.ClientInfo = "2025-11-25",
		mcpgo.Implementation{Name: "c", Version: "1"}
	if _, err := c.Initialize(ctx, hello); err != nil {
		t.Fatal(err)
	}
	tools, err := c.ListTools(ctx, mcpgo.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		got = append(got, "tools "+tool.Name)
	}
	prompts, err := c.ListPrompts(ctx, mcpgo.ListPromptsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range prompts.Prompts {
		got = append(got, "prompts "+prompt.Name)
	}
	resources, err := c.ListResources(ctx, mcpgo.ListResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range resources.Resources {
		got = append(got, "resources "+resource.URI)
	}
	templates, err := c.ListResourceTemplates(ctx, mcpgo.ListResourceTemplatesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range templates.ResourceTemplates {
		raw, err := json.Marshal(template.URITemplate)
		if err != nil {
			t.Fatal(err)
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			t.Fatal(err)
		}
		got = append(got, "resourceTemplates "+text)
	}
	return got
}
