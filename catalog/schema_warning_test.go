package catalog

import (
	"fmt"
	"strings"
	"testing"
)

// suspiciousTool lists one tool with this inputSchema and returns the warning, "" if there is none.
// The tool must be listed unchanged.
func suspiciousTool(t *testing.T, schema string) string {
	t.Helper()
	raw := `{"name":"t","inputSchema":` + schema + `}`
	page, err := ParsePage(Tools, []byte(`{"tools":[`+raw+`]}`))
	if err != nil || len(page.Items) != 1 || string(page.Items[0].Raw()) != raw {
		t.Fatalf("%s: %s", schema, issueTexts(page, err))
	}
	what := ""
	for _, f := range page.Issues {
		if !f.Suspicious || f.Repaired || f.Item != "t" || what != "" {
			t.Errorf("%s: %+v", schema, page.Issues)
		}
		what = f.Problem
	}
	return what
}

// SCHEMA-03: keywords that some model APIs reject at the top of a schema are reported; the schema
// is listed unchanged.
func TestSCHEMA03_AlternativesAtTheTop(t *testing.T) {
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		got := suspiciousTool(t, `{"type":"object","`+key+
			`":[{"required":["a"]},{"required":["b"]}]}`)
		if want := "its inputSchema has " + key +
			" at its top, and some model APIs refuse every request with such a tool"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := suspiciousTool(t, `{"type":"object","properties":{"a":{"`+key+
			`":[{"type":"string"}]},"`+key+`":{}}}`); got != "" {
			t.Errorf("%s further down: %s", key, got)
		}
	}
	page, err := ParsePage(Tools, []byte(`{"tools":[{"name":"t","inputSchema":{"anyOf":[{}]}}]}`))
	if err != nil || len(page.Items) != 1 || len(page.Issues) != 2 || !page.Issues[0].Repaired ||
		!page.Issues[1].Suspicious {
		t.Errorf("with a repair: %+v, %v", page.Issues, err)
	}
}

// SCHEMA-04: schemas that are not valid in draft 2020-12 are reported and listed unchanged.
func TestSCHEMA04_SchemasOfOtherDrafts(t *testing.T) {
	in := func(property string) string {
		return `{"type":"object","properties":{"p":` + property + `}}`
	}
	for schema, want := range map[string]string{
		in(
			`{"type":"strng"}`): ".properties.p.type is not one of the types, nor an array of them",
		in(
			`{"type":["string","nul"]}`): ".properties.p.type is not one of the types, nor an array of them",
		in(
			`{"type":null}`): ".properties.p.type is not one of the types, nor an array of them",
		in(
			`{"exclusiveMinimum":true,"minimum":1}`): ".properties.p.exclusiveMinimum is not a number",
		in(
			`{"minLength":"1"}`): ".properties.p.minLength is not a whole number",
		in(
			`{"required":true}`): ".properties.p.required is not an array of strings",
		in(`{"items":[{"type":"string"}]}`): ".properties.p.items is not a schema",
		in(
			`{"items":{"anyOf":[{},{"type":"any"}]}}`): ".properties.p.items.anyOf[1].type is not one of the types, nor an array of them",
		in(
			`{"anyOf":[ ]}`): ".properties.p.anyOf is not an array of schemas",
		in(
			`{"anyOf":{}}`): ".properties.p.anyOf is not an array of schemas",
		in(`{"enum":"a"}`): ".properties.p.enum is not an array",
		in(
			`{"pattern":5}`): ".properties.p.pattern is not a string",
		in(
			`{"uniqueItems":"yes"}`): ".properties.p.uniqueItems is not true or false",
		in(`{"not":"string"}`): ".properties.p.not is not a schema",
		in(
			`{"properties":[]}`): ".properties.p.properties is not an object of schemas",
		in(
			`{"required":["a",1]}`): ".properties.p.required is not an array of strings",
		`{"type":"object","$defs":{"x":{"maxItems":-1}}}`:   ".$defs.x.maxItems is not a whole number",
		`{"type":"object","additionalProperties":{"if":3}}`: ".additionalProperties.if is not a schema",
		in(
			`{"default":{"type":"strng"},"const":{"type":1},"enum":[{"type":1}],"x-y":{"type":1},"nullable":7}`): "",
		in(
			`{"type":["string","null"],"enum":["a",null],"format":"uri","minLength":0,"multipleOf":0.1,"minimum":-1e3}`): "",
		in(`{"items":true}`): "",
		in(
			`{"type":"array","items":{"$ref":"#/$defs/x"},"prefixItems":[{},false],"minItems":1,"uniqueItems":true}`): "",
		`{"type":"object","additionalProperties":false,"required":[],"$schema":"http://json-schema.org/draft-07/schema#"}`: "",
		`{"type":"object"}`: "",
		// too deep to be checked
		in(strings.Repeat(`{"items":`, 40) + `{"type":1}` + strings.Repeat(`}`, 40)): "",
	} {
		got := suspiciousTool(t, schema)
		if want != "" {
			want = "its inputSchema is not valid in JSON Schema 2020-12, and some model APIs refuse every request with such a tool: " + want
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", schema, got, want)
		}
	}
}

// The size and nesting of an entry are bounded, whatever its kind.
func TestEntriesAreBounded(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for k := range Kind(NumKinds) {
		name := `,"name":"n"`
		if k.isNamed() {
			name = ""
		}
		entry := func(member string) string {
			return fmt.Sprintf(`{"%s":"x"%s,"inputSchema":{"type":"object"},%s}`, kinds[k].key,
				name, member)
		}
		long := func(n int) string {
			return entry(`"y":"` + strings.Repeat("[", n-len(entry(`"y":""`))) + `"`)
		}
		for raw, want := range map[string]string{
			long(maxEntry):                     "",
			long(maxEntry + 1):                 "it has more than 1048576 bytes",
			entry(`"y":` + deep(99)):           "",
			entry(`"y":` + deep(100)):          "it nests deeper than 100",
			entry(`"y":"` + deep(200) + `"`):   "",
			entry(`"y":"\"` + deep(200) + `"`): "",
			entry(`"\\":` + deep(100)):         "it nests deeper than 100",
			entry(`"y":[` + strings.Repeat("[],{},", 200) + deep(98) + `]`): "",
			entry(`"y":[` + strings.Repeat("[],{},", 200) + deep(99) +
				`]`): "it nests deeper than 100",
		} {
			page, err := ParsePage(k, []byte(`{"`+k.ResultMember()+`":[`+raw+`,{"`+kinds[k].key+
				`":"z"`+name+`,"inputSchema":{"type":"object"}}]}`))
			switch {
			case err != nil || len(page.Items) == 0 ||
				page.Items[len(page.Items)-1].Original != "z":
				t.Errorf("%v, %.60s: its neighbour is lost: %v", k, raw, err)
			case want == "" && len(page.Items)+len(page.Issues) != 2:
				t.Errorf("%v, %.60s: %.200v", k, raw, page.Issues)
			case want != "" && (len(page.Items) != 1 || len(page.Issues) != 1 ||
				page.Issues[0] != Issue{Item: "x", Problem: want}):
				t.Errorf("%v, %.60s: %.200v, want %s", k, raw, page.Issues, want)
			}
		}
	}
}

// The path to a problem in a schema is bounded, whatever the keys are, because it is stored and
// logged.
func TestWarningPathIsBounded(t *testing.T) {
	what := modelAPIWarning([]byte(`{"type":"object","properties":{"` +
		strings.Repeat("ä", maxShownPath) + `":{"minimum":"1"}}}`))
	if len(what) > maxShownPath+200 || !strings.Contains(what, ".properties.ää") ||
		strings.ToValidUTF8(what, "") != what {
		t.Errorf("%d bytes: %s", len(what), what)
	}
}
