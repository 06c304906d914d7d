//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"mcpgateway/catalog"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A client gets every entry of a list, even if an entry has a schema that does not compile, an
// identifier of another tool, a number beyond a double, or a member in another case. Only invalid
// templates are left out.
func TestLists_InvalidSchemasAndMembers_F_LIST_1_F_LIST_2(t *testing.T) {
	t.Parallel()
	ofObjects := []string{
		`"properties":{"a":{"$ref":"#/$defs/none"}}`,
		`"properties":{"a":{"$ref":"https://example.com/none"}}`,
		`"properties":{"a":{"pattern":"("}}`,
		`"properties":{"a":{"pattern":"^(?P<year>\\d+)\\Z"}}`,
		`"properties":{"a":{"pattern":"^(?=a)\\p{L}$"}}`, `"$schema":"https://example.com/none"`,
		`"$schema":5`,
		`"properties":{"a":{"format":"none"}}`, `"properties":{"a":{"nullable":true}}`,
		`"properties":{"a":{"enum":[]}}`,
		`"id":"x"`,
		`"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}`,
		`"formatMinimum":5`, `"formatMaximum":"a","format":"email"`,
		`"anyOf":[{"toString":1},{"type":"foo"}]`, `"patternProperties":{"[":{"__proto__":5}}`,
		`"$id":"http://json-schema.org/draft-07/schema"`,
		`"properties":{"a":{"$id":"http://[::","$ref":"#"}}`, `"$async":true`,
		`"properties":{"a":{"maximum":1e400,"default":-1e999}}`,
		`"additionalProperties":{"const":` + strings.Repeat("9", 400) + `}`,
		`"Type":"string","Properties":5,"PROPERTIES":{"b":{}},"$Defs":7,"Required":{},"AdditionalProperties":1`,
		`"anyOf":[` + strings.Repeat(`{"type":"string"},`, 5000) + `{}]`,
		`"oneOf":[` + strings.Repeat(`{"type":"string"},`, 5000) + `{"const":1}]`,
	}
	// Claude Code leaves out a tool with such an inputSchema, and no other.
	ofResults := []string{`"properties":{"a":{"format":5}}`,
		`"properties":{"a":{"exclusiveMinimum":true}}`, `"$id":5`}
	// For clients of earlier revisions these schemas are wrapped in a schema of an object, which
	// changes references.
	ofValues := []string{
		`{"type":"array","items":{"$ref":"#/x"},"x":{"$ref":"#/y/0"},"y":[{"$ref":"#/z"}],"z":{"type":"string"}}`,
		`{"$ref":"#"}`, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}}`, `{"$anchor":"1"}`,
		`{"items":{"items":{"$ref":"#/items/$defs/0"},"$defs":[{"$ref":"#"}]}}`,
		`{"type":"array","items":{"$ref":"#/"}}`, `{"items":{"$ref":""}}`,
		`{"$id":"T2","type":"string","$ref":"T2#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{}}}`,
		`{"type":"array","enum":[{"$ref":"#/x"}],"x":{"pattern":"a"},"allOf":[{"$ref":"#/enum/0"}]}`,
		`{"type":["array","null"],"items":{"$anchor":"a","allOf":[{"$ref":"#"}]},"not":{"$ref":"#a"}}`,
		`{"type":"array","$defs":{"a":{"const":1}},"items":` + strings.Repeat(`{"not":`, 80) +
			`{"$ref":"#/$defs/a"}` + strings.Repeat("}", 81),
	}
	entry := func(key, id, more string) string {
		name := fmt.Sprintf(`%q:%q`, key, id)
		if key != "name" {
			name += `,"name":"n"`
		}
		return "{" + name + "," + more + "}"
	}
	var want []string
	lists := func(prefix, more string) map[string][]string {
		all := make(map[string][]string)
		add := func(member, key, id, more string) {
			all[member] = append(all[member], entry(key, id, more))
			want = append(want, member+" "+id)
		}
		for i, schema := range slices.Concat(ofObjects, ofResults) {
			add("tools", "name", fmt.Sprintf("%so%d", prefix, i),
				`"inputSchema":{"type":"object"},"outputSchema":{"type":"object",`+schema+`}`)
		}
		for i, schema := range ofValues {
			add("tools", "name", fmt.Sprintf("%sv%d", prefix, i),
				`"inputSchema":{"type":"object"},"outputSchema":`+schema)
		}
		for i, schema := range ofObjects {
			add("tools", "name", fmt.Sprintf("%si%d", prefix, i),
				`"inputSchema":{"type":"object",`+schema+`}`)
		}
		add("tools", "name", prefix+"id",
			`"outputSchema":{"$id":"T0","type":"object","properties":{"a":{"$ref":"T0"},"b":{"$id":"T1","const":`+more+`}}}`)
		for i, odd := range []string{`"Name":"other"`, `"Name":5`, `"URI":"other:"`,
			`"uritemplate":"x://{"`, `"Description":5`, `"Icons":[{}]`, `"ICONS":7`,
			`"Annotations":{"audience":5}`, `"_meta":{"a":1e400}`,
			`"icons":[{"src":"http://[::","Src":5}]`, `"INPUTSCHEMA":5`, `"Arguments":5`,
			`"Size":"x"`,
			`"annotations":{"Priority":"x","LastModified":5,"ReadOnlyHint":5}`} {
			id := fmt.Sprintf("%sm%d", prefix, i)
			add("tools", "name", id, odd)
			add("prompts", "name", id, odd)
			add("resources", "uri", "x:"+id, odd)
			add("resourceTemplates", "uriTemplate", "x:"+id+"/{a}", odd)
		}
		for _, invalid := range []string{"x://{", "x://{a b}", "x://{}", "x://}", "x:// {a}",
			"x://%zz", "x://{a:99999}", "x://{=a}"} {
			all["resourceTemplates"] = append(all["resourceTemplates"],
				entry("uriTemplate", invalid, `"title":"t"`))
		}
		return all
	}
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		backend{Name: "demo", Embedded: "demo"},
		listBackend(t, "odd", lists("a", "1")), listBackend(t, "odder", lists("b", "2")))
	url := s.serveURL()
	awaitReady(t, url)
	slices.Sort(want)
	checkClientLists(t, s, url, want)
	if _, out := s.runVerb("check"); !strings.Contains(out,
		"repaired ao0: outputSchema.properties.a.$ref has no target in the schema; outputSchema is removed") ||
		!strings.Contains(out, "left out x://{: its uriTemplate is not valid by RFC 6570") {
		t.Errorf("check: %s", out)
	}
}

// A generatedSchema is one schema of testdata/schemas.mjs, with the result of the npm SDK.
type generatedSchema struct {
	Schema, Error string
	Compiles      bool
}

// schemas runs testdata/schemas.mjs.
func schemas(t *testing.T, stdin string, args ...string) []generatedSchema {
	t.Helper()
	module(t, "@modelcontextprotocol", "sdk", "package.json")
	cmd := exec.CommandContext(t.Context(), node(t),
		append([]string{"testdata/schemas.mjs"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []generatedSchema
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var one generatedSchema
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// pageOf parses a list of one tool with this outputSchema.
func pageOf(t *testing.T, schema string) (tool []byte, issues []catalog.Issue) {
	t.Helper()
	page, err := catalog.ParsePage(catalog.Tools,
		[]byte(`{"tools":[{"name":"x","inputSchema":{"type":"object"},"outputSchema":`+schema+
			`}]}`))
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%s: %v, %v", schema, page, err)
	}
	return page.Items[0].Raw(), page.Issues
}

// An outputSchema is kept unchanged if the npm SDK compiles it, and removed otherwise. If the
// gateway removes only an identifier, the npm SDK compiles the rest of the schema.
func TestOutputSchemas_SameDecisionAsNpmSDK_F_LIST_2(t *testing.T) {
	t.Parallel()
	const number = 4000
	var kept, removed int
	var repaired []string
	for _, one := range schemas(t, "", fmt.Sprint(number), fmt.Sprint(int32(seed(t)))) {
		tool, issues := pageOf(t, one.Schema)
		schema, _ := wire.Lookup(tool, "outputSchema")
		if schema != nil {
			kept++
		} else {
			removed++
		}
		unchanged := len(issues) == 0 || issues[0].Suspicious
		switch {
		case unchanged != (string(schema) == one.Schema):
			t.Errorf("%s\nbecame %s: %v", one.Schema, schema, issues)
		case schema != nil && !unchanged && strings.Contains(fmt.Sprint(issues[0]), "had $id"):
			repaired = append(repaired, string(schema))
		case one.Compiles != unchanged:
			t.Errorf("%s\nnpm SDK: %q, gateway: %v", one.Schema, one.Error, issues)
		}
	}
	if kept < number/10 || removed < number/10 || kept+removed != number ||
		len(repaired) > number/100 {
		t.Errorf("%d of %d are kept (%d of them repaired) and %d removed", kept, number,
			len(repaired), removed)
	}
	checkCompile(t, repaired)
}

// The npm SDK compiles each outputSchema in the form that clients of each revision get.
func TestOutputSchemas_AdaptedCompile_F_LIST_2(t *testing.T) {
	t.Parallel()
	const number = 4000
	sent := make(map[string]bool)
	changed := 0
	for _, one := range schemas(t, "", fmt.Sprint(number), fmt.Sprint(int32(seed(t))), "roots") {
		tool, _ := pageOf(t, one.Schema)
		kept, _ := wire.Lookup(tool, "outputSchema")
		if kept == nil {
			continue
		}
		list := wire.NewResult("1", []byte(`{"tools":[`+string(tool)+`]}`))
		for _, date := range protocol.RevisionDates() {
			traits, _ := protocol.FindRevision(date)
			adapted, _ := wire.Lookup(protocol.AdaptResponse(list, "tools/list",
				traits).Part(wire.PartResult), "tools")
			schema, _ := wire.Lookup(wire.Elements(adapted)[0], "outputSchema")
			if !sent[string(schema)] && !bytes.Equal(schema, kept) {
				changed++
			}
			sent[string(schema)] = true
		}
	}
	if changed < number/10 {
		t.Errorf("%d of %d schemas are adapted", changed, number)
	}
	checkCompile(t, slices.Collect(maps.Keys(sent)))
}

// checkCompile checks that the npm SDK compiles schemas that the gateway sends.
func checkCompile(t *testing.T, sent []string) {
	t.Helper()
	checked := schemas(t, strings.Join(sent, "\n"), "check")
	for _, one := range checked {
		if !one.Compiles {
			t.Errorf("%s\nis sent, but the npm SDK reports: %s", one.Schema, one.Error)
		}
	}
	if len(checked) != len(sent) {
		t.Errorf("%d of %d are checked", len(checked), len(sent))
	}
}
