//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"mcpgateway/catalog"
)

// Schemas that a compiler refuses, identifiers of other tools, numbers beyond a double, members in another
// case and invalid templates cost no client an entry of its list but the invalid templates.
func TestEntriesThatFailToCompileOrToDecode_F_LIST_1_F_LIST_2(t *testing.T) {
	t.Parallel()
	schemas := []string{
		`"properties":{"a":{"$ref":"#/$defs/none"}}`, `"properties":{"a":{"$ref":"https://example.com/none"}}`, `"properties":{"a":{"pattern":"("}}`,
		`"properties":{"a":{"pattern":"^(?P<year>\\d+)\\Z"}}`, `"properties":{"a":{"pattern":"^(?=a)\\p{L}$"}}`, `"$schema":"https://example.com/none"`, `"$schema":5`,
		`"properties":{"a":{"format":"none"}}`, `"properties":{"a":{"nullable":true}}`, `"properties":{"a":{"enum":[]}}`,
		`"id":"x"`, `"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}`,
		`"$id":"http://json-schema.org/draft-07/schema"`, `"properties":{"a":{"$id":"http://[::","$ref":"#"}}`, `"$async":true`,
		`"properties":{"a":{"maximum":1e400,"default":-1e999}}`, `"additionalProperties":{"const":` + strings.Repeat("9", 400) + `}`,
		`"Type":"string","Properties":5,"PROPERTIES":{"b":{}},"$Defs":7,"Required":{},"AdditionalProperties":1`,
		`"anyOf":[` + strings.Repeat(`{"type":"string"},`, 5000) + `{}]`, `"oneOf":[` + strings.Repeat(`{"type":"string"},`, 5000) + `{"const":1}]`,
	}
	// Claude Code leaves out a tool with such an inputSchema, and no other.
	ofResults := []string{`"properties":{"a":{"format":5}}`, `"properties":{"a":{"exclusiveMinimum":true}}`, `"$id":5`}
	// Clients of earlier revisions get these within a schema of an object, so that references change.
	ofValues := []string{
		`{"type":"array","items":{"$ref":"#/x"},"x":{"$ref":"#/y/0"},"y":[{"$ref":"#/z"}],"z":{"type":"string"}}`,
		`{"type":"array","items":{"$ref":"#/"}}`, `{"items":{"$ref":""}}`, `{"$id":"T2","type":"string","$ref":"T2#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{}}}`,
		`{"type":"array","enum":[{"$ref":"#/x"}],"x":{"pattern":"a"},"allOf":[{"$ref":"#/enum/0"}]}`,
		`{"type":["array","null"],"items":{"$anchor":"a","allOf":[{"$ref":"#"}]},"not":{"$ref":"#a"}}`,
		`{"type":"array","$defs":{"a":{"const":1}},"items":` + strings.Repeat(`{"not":`, 80) + `{"$ref":"#/$defs/a"}` + strings.Repeat("}", 81),
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
		for i, schema := range slices.Concat(schemas, ofResults) {
			add("tools", "name", fmt.Sprintf("%so%d", prefix, i), `"inputSchema":{"type":"object"},"outputSchema":{"type":"object",`+schema+`}`)
		}
		for i, schema := range ofValues {
			add("tools", "name", fmt.Sprintf("%sv%d", prefix, i), `"inputSchema":{"type":"object"},"outputSchema":`+schema)
		}
		for i, schema := range schemas {
			add("tools", "name", fmt.Sprintf("%si%d", prefix, i), `"inputSchema":{"type":"object",`+schema+`}`)
		}
		add("tools", "name", prefix+"id", `"outputSchema":{"$id":"T0","type":"object","properties":{"a":{"$ref":"T0"},"b":{"$id":"T1","const":`+more+`}}}`)
		for i, odd := range []string{`"Name":"other"`, `"Name":5`, `"URI":"other:"`, `"uritemplate":"x://{"`, `"Description":5`, `"Icons":[{}]`, `"ICONS":7`,
			`"Annotations":{"audience":5}`, `"_meta":{"a":1e400}`, `"icons":[{"src":"http://[::","Src":5}]`, `"INPUTSCHEMA":5`, `"Arguments":5`, `"Size":"x"`,
			`"annotations":{"Priority":"x","LastModified":5,"ReadOnlyHint":5}`} {
			id := fmt.Sprintf("%sm%d", prefix, i)
			add("tools", "name", id, odd)
			add("prompts", "name", id, odd)
			add("resources", "uri", "x:"+id, odd)
			add("resourceTemplates", "uriTemplate", "x:"+id+"/{a}", odd)
		}
		for _, invalid := range []string{"x://{", "x://{a b}", "x://{}", "x://}", "x:// {a}", "x://%zz", "x://{a:99999}", "x://{=a}"} {
			all["resourceTemplates"] = append(all["resourceTemplates"], entry("uriTemplate", invalid, `"title":"t"`))
		}
		return all
	}
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, backend{Name: "demo", Embedded: "demo"},
		listing(t, "odd", lists("a", "1")), listing(t, "odder", lists("b", "2")))
	url := s.listen()
	awaitReady(t, url)
	slices.Sort(want)
	eachClientLists(t, s, url, want)
	if _, out := s.say("check"); !strings.Contains(out, "repaired ao0: outputSchema.properties.a.$ref leads nowhere in the schema; outputSchema is removed") ||
		!strings.Contains(out, "left out x://{: its uriTemplate is not valid by RFC 6570") {
		t.Errorf("check: %s", out)
	}
}

// An outputSchema is kept if the npm SDK compiles it, and removed if not.
func TestOutputSchemasAreJudgedAsByTheNpmSDK_F_LIST_2(t *testing.T) {
	t.Parallel()
	module(t, "@modelcontextprotocol", "sdk", "package.json")
	const number = 4000
	cmd := exec.CommandContext(t.Context(), node(t), "testdata/schemas.mjs", fmt.Sprint(number), fmt.Sprint(int32(seed(t))))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var kept, removed int
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var one struct {
			Schema, Error string
			Compiles      bool
		}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		page, err := catalog.ParsePage(catalog.Tools, []byte(`{"tools":[{"name":"x","inputSchema":{"type":"object"},"outputSchema":`+one.Schema+`}]}`))
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("%s: %v, %v", one.Schema, page, err)
		}
		if bytes.Contains(page.Items[0].Raw(), []byte(`"outputSchema"`)) {
			kept++
		} else {
			removed++
		}
		if one.Compiles != (len(page.Flaws) == 0 || page.Flaws[0].Odd) {
			t.Errorf("%s\nof the npm SDK: %q, but here: %v", one.Schema, one.Error, page.Flaws)
		}
	}
	if kept < number/10 || removed < number/10 || kept+removed != number {
		t.Errorf("%d of %d are kept and %d removed", kept, number, removed)
	}
}
