package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// outputOf returns the outputSchema of the listed tool, "" if it has none, and the repairs.
func outputOf(t *testing.T, schema string) (listed, notes string) {
	t.Helper()
	entry, notes := repairedEntry(t, Tools, entryOf(Tools, `,"outputSchema":`+schema))
	var tool struct{ OutputSchema json.RawMessage }
	if err := json.Unmarshal([]byte(entry), &tool); err != nil {
		t.Fatal(err)
	}
	return string(tool.OutputSchema), notes
}

// An outputSchema that the npm SDK cannot compile is removed. Parts that the SDK does not compile
// may be wrong. The integration tests compare many more schemas with Ajv itself.
func TestOutputSchemasThatDoNotCompile_F_LIST_2(t *testing.T) {
	in := func(schema string) string {
		return `{"type":"object","properties":{"a":` + schema + `}}`
	}
	for schema, note := range map[string]string{
		in(
			`{"$ref":"#/$defs/x"}`): "outputSchema.properties.a.$ref has no target in the schema",
		in(`{"$ref":"https://example.com/x"}`): "outputSchema.properties.a.$ref has no target",
		in(`{"$ref":"#/properties/%zz"}`):      "outputSchema.properties.a.$ref has no target",
		in(`{"$ref":"#nope"}`):                 "outputSchema.properties.a.$ref has no target",
		in(`{"$ref":null}`):                    "outputSchema.properties.a.$ref is not a string",
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`: "outputSchema.$ref refers to itself",
		`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"b":{"pattern":"("}}}}}`:          "outputSchema.$defs.a.properties.b.pattern is not a regular expression",
		in(
			`{"pattern":"^(?P<x>a)$"}`): "outputSchema.properties.a.pattern is not a regular expression",
		in(
			`{"patternProperties":{"[":{"type":"string"}}}`): "outputSchema.properties.a.patternProperties.[ is not",
		in(
			`{"nullable":true}`): "outputSchema.properties.a.nullable is present without a type",
		in(
			`{"type":["string","null"],"nullable":false}`): "outputSchema.properties.a.nullable contradicts",
		in(
			`{"exclusiveMinimum":true,"minimum":0}`): "outputSchema.properties.a.exclusiveMinimum is not a number",
		in(
			`{"enum":[]}`): "outputSchema.properties.a.enum is not an array with a value",
		in(
			`{"properties":{"b":null}}`): "outputSchema.properties.a.properties.b is not a schema",
		in(
			`{"required":true}`): "outputSchema.properties.a.required is not an array",
		in(
			`{"id":"x"}`): `outputSchema.properties.a.id is not a keyword`,
		in(
			`{"$anchor":"1"}`): "outputSchema.properties.a.$anchor is not an anchor",
		`{"$id":5}`: "outputSchema.$id is not a string",
		`{"$ref":"#/x/0","x":[{"$id":"a","type":"string"}]}`:    "outputSchema.$ref has no target",
		`{"$ref":"#/x/0/b","x":[{"$id":"a","b":{}}]}`:           "outputSchema.$ref has no target",
		`{"$ref":"#/const/a","const":{"a":{"$ref":"#/const"}}}`: "outputSchema.$ref has no target",
		`{"$async":true}`: "outputSchema.$async is refused",
		in(
			`{"type":"string","$async":1}`): "outputSchema.properties.a.$async is refused",
		`{"$ref":"#/x","x":{"$async":1,"y":[{"$ref":"#"}]},"type":"object"}`: "outputSchema.x.$async is refused",
		`{"$ref":"#"}`: "outputSchema.$ref refers to itself",
		`{"$ref":""}`:  "outputSchema.$ref refers to itself",
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}}`:  "outputSchema.$ref refers to itself",
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/"}}}`: "outputSchema.$ref refers to itself",
		`{"$anchor":"1"}`: "outputSchema.$anchor is not an anchor",
		`{"$anchor":"a","$defs":{"b":{"$dynamicAnchor":"a"}}}`:                                        "outputSchema.$defs.b.$dynamicAnchor occurs twice",
		`{"$anchor":"a","items":{"$ref":"#a"}}`:                                                       "outputSchema.items.$ref has no target",
		`{"items":{"$ref":"##"}}`:                                                                     "outputSchema.items.$ref has no target",
		`{"items":{"$ref":"#/a#"},"a#":{}}`:                                                           "outputSchema.items.$ref has no target",
		`{"items":{"$ref":"#/a#/"},"a#":{"":{}}}`:                                                     "outputSchema.items.$ref has no target",
		`{"items":{"$ref":"#/__proto__/a"},"__proto__":{"a":{}}}`:                                     "outputSchema.items.$ref has no target",
		`{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{},"$id":{}}}`:                                    "outputSchema.items.$ref has no target",
		`{"items":{"$ref":"#/$defs/a/b"},"$defs":{"a":{"$id":5,"b":{}}}}`:                             "outputSchema.items.$ref has no target",
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/const"}},"const":{"not":{"$ref":"#/x"}},"x":{}}`: "outputSchema.$defs.a.$ref has no target",
		`{"items":{"$ref":"#/x/1"},"x":"é"}`:                                                          "outputSchema.items.$ref has no target",
		`{"type":"object","$ref":"#/x","x":{"$async":1,"$ref":"#"}}`:                                  "outputSchema.x.$async is refused",
		in(
			`{"required":[{"toString":1}]}`): "outputSchema.properties.a.required is not an array of strings",
		in(
			`{"dependencies":{"b":[["a"]]}}`): "outputSchema.properties.a.dependencies.b is not an array of strings",
		`{"allOf":[{"$anchor":"a"},{"$anchor":"a"}]}`: "outputSchema.allOf.1.$anchor occurs twice",
	} {
		if got, notes := outputOf(t, schema); got != "" || !strings.HasPrefix(notes, note) ||
			!strings.HasSuffix(notes, "; outputSchema is removed") {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
	}
	for _, schema := range []string{
		in(`{"$ref":"#"}`), in(`{"$ref":"#/properties/x"},"x":{"x":1}`),
		in(`{"$ref":"http://json-schema.org/draft-07/schema#"}`),
		in(`{"$ref":"#/$defs/a~1b/x%25y"}},"$defs":{"a/b":{"x%y":{}}`),
		in(`{"$anchor":"a"},"b":{"$ref":"#a"}`),
		in(`{"pattern":"^(?=a)(?<!b)[\\w\\-]\\p{L}\\/$"}`), in(`{"format":"none"}`),
		`{"$schema":"https://example.com/none","type":"object"}`,
		in(`{"items":[{"type":"string"}]}`), in(`{"anyOf":[{},{"pattern":"("}]}`),
		`{"type":"object","$defs":{"x":{"pattern":"("}}}`,
		in(`{"properties":{"b":"text"}}`), in(`{"title":5,"prefixItems":5,"examples":null}`),
		in(`{"then":{"pattern":"("}}`),
		in(`{"$async":true}`), in(`{"$id":5}`), in(`{"type":"string","$async":0,"$id":0.0}`),
		`{"$async":false,"$id":false}`,
		`{"items":{"$ref":"#/x"},"x":{"$async":true,"$ref":"#/$defs"},"$defs":{"a":{}}}`,
		`{"items":{"$ref":"#/x"},"x":{"$async":true,"$ref":"#/y"},` +
			`"y":{"$ref":"#/z","$async":1},"z":{"not":{}}}`,
		`{"items":{"$ref":"#/x/1/0"},"x":"😀"}`,
		`{"items":{"$ref":"#/x"},"x":{"$async":1,"$ref":"http://json-schema.org/draft-07/schema#"}}`,
		`{"$anchor":"a","type":"object"}`, `{"items":{"$ref":"#/a#"},"a":{}}`,
		`{"items":{"$ref":"#/#"},"":{}}`, in(`{"required":[1,null]}`),
		`{"items":{"$ref":"#/definitions/a"},"definitions":{"a":{},"$id":{}}}`,
		`{"items":{"items":{"$ref":"#/items/$defs/0"},"$defs":[{"$ref":"#"}]}}`,
		`{"type":"object","properties":{"$ref":{"type":"string"},"id":{"type":"string"},"pattern":{"type":"string"}}}`,
	} {
		want := schema
		if got, notes := outputOf(t, schema); got != want || notes != "" {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
	}
}

// ajv-formats adds keywords that compare strings by their format. Each of these keywords needs a
// format with an order.
func TestLimitsOfFormats_F_LIST_2(t *testing.T) {
	for _, keyword := range []string{"formatMinimum", "formatMaximum", "formatExclusiveMinimum",
		"formatExclusiveMaximum"} {
		in := func(value, more string) string {
			return `{"items":{"` + keyword + `":` + value + more + `}}`
		}
		for schema, note := range map[string]string{
			in(`5`, ``): "is not a string", in(`"a"`, ``): "is present without a format",
			in(`"a"`,
				`,"format":"email"`): "is present with the format email",
			in(`"a"`,
				`,"format":"int32"`): "is present with the format int32",
			in(`null`, `,"format":"date"`):                        "is not a string",
			`{"anyOf":[{"` + keyword + `":"a"},{"pattern":"("}]}`: "is present without a format",
		} {
			if got, notes := outputOf(t, schema); got != "" ||
				!strings.Contains(notes, keyword+" "+note) {
				t.Errorf("%s: %s, %q", schema, got, notes)
			}
		}
		for _, format := range []string{"date", "time", "date-time", "iso-time", "iso-date-time",
			"password", "binary", "none", "toString", ""} {
			schema := in(`"a"`, `,"format":"`+format+`"`)
			if got, notes := outputOf(t, schema); got != schema || notes != "" {
				t.Errorf("%s: %s, %q", schema, got, notes)
			}
		}
	}
}

// Ajv's table of keywords and its tables of keywords with subschemas are JavaScript objects. Ajv
// therefore finds in them the names that every such object inherits.
func TestNamesOfObjectPrototype_F_LIST_2(t *testing.T) {
	for _, name := range prototypeNames {
		quoted := `"` + name + `"`
		for _, schema := range []string{
			`{"anyOf":[{` + quoted + `:1},{"type":"foo"}]}`, `{"patternProperties":{"[":{` +
				quoted + `:5}}}`,
			`{"patternProperties":{"[":true},"additionalProperties":{` + quoted + `:null}}`,
			`{"if":{"type":"foo"},"then":{` + quoted + `:{}}}`,
			`{"properties":{"a":{"nullable":true,` + quoted + `:1}}}`,
			`{"properties":{"a":{` + quoted + `:1,"$id":5}}}`,
			`{` + quoted + `:[{"$anchor":"1"}]}`, `{` + quoted + `:{"a":{"$anchor":"1"}}}`,
			`{` + quoted + `:[{"$anchor":"a"},{"$anchor":"a"}]}`,
		} {
			if got, notes := outputOf(t, schema); got != "" ||
				!strings.HasSuffix(notes, "outputSchema is removed") {
				t.Errorf("%s: %s, %q", schema, got, notes)
			}
		}
		for _, schema := range []string{
			`{` + quoted + `:{"type":"foo","$anchor":"1","$id":"x"}}`,
			`{"items":{` + quoted + `:[{"pattern":"("}]}}`,
			`{` + quoted + `:[{"$anchor":"a"}],"items":{"$ref":"#a"}}`,
		} {
			if got, notes := outputOf(t, schema); got != schema || notes != "" {
				t.Errorf("%s: %s, %q", schema, got, notes)
			}
		}
		if got, _ := outputOf(t, `{`+quoted+`:[{"$id":"x","type":"string"}]}`); got != `{`+quoted+
			`:[{"type":"string"}]}` {
			t.Errorf("%s: $id stays: %s", name, got)
		}
	}
	// Ajv ignores this name in maps of schemas.
	for _, schema := range []string{`{"properties":{"__proto__":{"type":"foo"}}}`,
		`{"patternProperties":{"__proto__":{"type":"foo"},"[":{}}}`,
		`{"dependencies":{"__proto__":[[]]}}`} {
		if got, notes := outputOf(t, schema); got != schema || notes != "" {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
	}
}

// The npm SDK has one table of $id for all tools. References are rewritten so that no $id is
// necessary.
func TestIdentifiers_F_LIST_2(t *testing.T) {
	for schema, want := range map[string]string{
		`{"$id":"https://example.com/a","type":"object"}`:                                                              `{"type":"object"}`,
		`{"type":"object", "$id":"#a" ,"x":1.0}`:                                                                       `{"type":"object","x":1.0}`,
		`{"$id":"T0","properties":{"n":{"items":{"$ref":"T0"}}}}`:                                                      `{"properties":{"n":{"items":{"$ref":"#"}}}}`,
		`{"properties":{"a/%":{"$id":"T0","properties":{"n":{"$ref":"T0"},"m":{"$ref":"#/properties/n"}}}}}`:           `{"properties":{"a/%":{"properties":{"n":{"$ref":"#/properties/a~1%25"},"m":{"$ref":"#/properties/a~1%25/properties/n"}}}}}`,
		`{"$id":"x:y#","$ref":"x:y#/$defs/a","$defs":{"a":{"$anchor":"b"},"c":{"$ref":"x:y#b"},"d":{"$ref":"#"}}}`:     `{"$ref":"#/$defs/a","$defs":{"a":{"$anchor":"b"},"c":{"$ref":"#b"},"d":{"$ref":"#"}}}`,
		`{"properties":{"$id":{"const":{"$id":"x"}},"a":{"allOf":[{"\u0024id":"q"}]}}}`:                                `{"properties":{"$id":{"const":{"$id":"x"}},"a":{"allOf":[{}]}}}`,
		`{"properties":{"a":{"$id":"q","type":"string"},"b":{"$id":"q"}}}`:                                             `{"properties":{"a":{"type":"string"},"b":{}}}`,
		`{"$id":"a","$id":"b","items":{"$ref":"b"}}`:                                                                   `{"items":{"$ref":"#"}}`,
		`{"properties":{"a":{"$id":"q"},"b":{"$id":"q"},"c":{"$ref":"q"}}}`:                                            ``,
		`{"$id":"https://example.com/a/b","properties":{"a":{"$ref":"c"}}}`:                                            ``,
		`{"$id":"http://json-schema.org/draft-07/schema","properties":{"a":{"$ref":"http://json-schema.org/schema"}}}`: `{"properties":{"a":{"$ref":"http://json-schema.org/schema"}}}`,
	} {
		got, notes := outputOf(t, schema)
		if got != want || !strings.HasPrefix(notes, "outputSchema") ||
			(want != "") != strings.Contains(notes, "had $id") {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
		if want == "" {
			continue
		}
		if again, notes := outputOf(t, want); again != want || notes != "" {
			t.Errorf("%s becomes %s, %q", want, again, notes)
		}
	}
}

// Clients follow references recursively, and compile some targets again for each reference.
func TestOutputSchemasAreBounded_F_LIST_2(t *testing.T) {
	many := func(n int, one func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = one(i)
		}
		return strings.Join(all, ",")
	}
	chain := func(n int) string {
		return `{"$ref":"#/$defs/d0","$defs":{` + many(n, func(i int) string {
			return fmt.Sprintf(`"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"}}}`, i, i+1)
		}) + fmt.Sprintf(`,"d%d":{"type":"string"}}}`, n)
	}
	bare := func(n int) string {
		return `{"$ref":"#/$defs/d0","$defs":{` + many(n, func(i int) string {
			return fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1)
		}) + fmt.Sprintf(`,"d%d":{"type":"string"}}}`, n)
	}
	copies := func(n int) string {
		property := func(value string) func(int) string {
			return func(i int) string { return fmt.Sprintf(`"p%d":%s`, i, value) }
		}
		return `{"properties":{` + many(n, property(`{"$ref":"#/$defs/d"}`)) +
			`},"$defs":{"d":{"properties":{` + many(n, property(`{"type":"string"}`)) + `}}}}`
	}
	branches := func(keyword string, n int) string {
		return `{"` + keyword + `":[` + many(n, func(i int) string {
			return fmt.Sprintf(`{"const":%d}`, i)
		}) + `]}`
	}
	patterns := func(n int) string {
		return `{"patternProperties":{` +
			many(n, func(i int) string { return fmt.Sprintf(`"a%d":{"type":"string"}`, i) }) + `}}`
	}
	nested := func(keyword string, levels, n int) string {
		schema := `{"type":"string"}`
		for range levels {
			schema = `{"` + keyword + `":[` + strings.Repeat(`{"type":"string"},`, n-1) + schema +
				`]}`
		}
		return schema
	}
	members := func(outer, keyword, value string, n int) string {
		return `{"then":{"const":1},"` + outer + `":{"` + keyword + `":{` +
			many(n, func(i int) string { return fmt.Sprintf(`"p%d":%s`, i, value) }) + `}}}`
	}
	elements := func(outer, keyword string, n int) string {
		return `{"then":{"const":1},"` + outer + `":` + nested(keyword, 1, n) + `}`
	}
	for name, tt := range map[string]struct{ valid, invalid, note string }{
		"branches": {nested("oneOf", 2, 500), nested("oneOf", 3, 500), "nests too deep"},
		"any":      {nested("anyOf", 2, 500), nested("anyOf", 3, 500), "nests too deep"},
		"all": {nested("allOf", 3, 500), `{"not":` + nested("allOf", 3, 500) + `}`,
			"nests too deep"},
		"not": {members("not", "properties", `{"type":"string"}`, 1000),
			members("not", "properties", `{"type":"string"}`, 1300), "nests too deep"},
		"names": {members("items", "dependencies", `["a"]`, 1300),
			members("if", "dependencies", `["a"]`, 1300), "nests too deep"},
		"tuple": {elements("contains", "items", 1300), elements("if", "items", 1300),
			"nests too deep"},
		"chain":  {chain(50), chain(100), "nests too deep"},
		"bare":   {bare(300), bare(500), "too many references in a row"},
		"copies": {copies(90), copies(101), "more than 10000 schemas"},
		"anyOf": {branches("anyOf", maxBranches), branches("anyOf", maxBranches+1),
			"outputSchema.anyOf has more than 1000"},
		"oneOf": {branches("oneOf", maxBranches), branches("oneOf", maxBranches+1),
			"outputSchema.oneOf has more than 1000"},
		"patterns": {patterns(maxBranches), patterns(maxBranches + 1),
			"outputSchema.patternProperties has more than 1000"},
		"fan": {chain(20), `{"$ref":"#/$defs/d0","$defs":{` + many(40, func(i int) string {
			return fmt.Sprintf(
				`"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/%%24defs/d%d"}}}`,
				i, i+1, i+1)
		}) + `}}`, "has no target"},
	} {
		if got, notes := outputOf(t, tt.valid); got != tt.valid || notes != "" {
			t.Errorf("%s: %.100s, %q", name, got, notes)
		}
		if got, notes := outputOf(t, tt.invalid); got != "" || !strings.Contains(notes, tt.note) {
			t.Errorf("%s: %.100s, %q", name, got, notes)
		}
	}
}

// Patterns are those of ECMAScript with the flag u, not of package regexp or Python.
func TestPatterns_F_LIST_2(t *testing.T) {
	for _, pattern := range []string{``, `^a$`, `(?=a)b`, `(?!a)`, `(?<=a)(?<!b)`, `(a)\1`, `\1(a)`,
		`(?<n>a)\k<n>`, `\k<n>(?<n>a)`, `(?<é_1$>x)`, `[\w\-.]`, `[-a]`, `[a-]`,
		`[^]`, `[]`, `a{2}`, `a{2,}?`, `a{2,3}`, `a{02,3}`, `a*?`,
		`\p{L}\P{Lu}\p{Letter}\p{gc=Nd}\p{Script=Greek}\p{scx=Grek}\p{Emoji}\p{ASCII}`, `\u{1F600}`,
		`\ud83d\ude00`,
		`\ud83d`, `\ud83dA`, `\ud83d\u{41}`, `[\ud83d\ude00-\ud83d\ude02]`, `[😀-😂]`, `😀{2}`,
		`\x41\cA\0\t`, `a|`, `\/`, `(?:a)+`, `[a&&b]`, `[\b]`, `\B\b`, `[(?<x>]`,
		`a{99999999999999999999}`,
		`\p{Script=Kawi}\p{sc=Kawi}\p{scx=Zzzz}\p{sc=Unknown}\p{sc=Qaac}\p{sc=Zinh}`,
		strings.Repeat(`(a)`, maxCaptures), strings.Repeat(`(?:a)`, maxCaptures+1)} {
		if problem := regexpProblem(pattern); problem != "" {
			t.Errorf("%s: %s", pattern, problem)
		}
	}
	for _, pattern := range []string{`(`, `)`, `[`, `]`, `{`, `}`, `a{`, `a{,2}`, `a{3,2}`, `*`,
		`a**`, `^*`, `(?=a)*`, `(?<=a)+`, `\b+`, `(?P<n>a)`, `(?i)a`, `(?i:a)`, `(?>a)`, `(?#c)`,
		`(?<n>a)(?<n>b)`, `(?<1>a)`, `(?<>a)`, `(?<n`, `\1`, `(a)\2`, `\k<n>`, `\k`, `\A`, `\Z`,
		`\z`, `\_`, `\-`, `\"`, `\ `, `\e`, `\Q`, `\`, `\x4`, `\u12`, `\u{110000}`, `\u{}`, `\c1`,
		`\00`, `[\1]`,
		`[\w-.]`, `[a-\d]`, `[b-a]`, `[\B]`, `[[:alpha:]-a]]`, `\pL`, `\p{}`, `\p{Foo}`,
		`\p{Script=}`, `\p{IsGreek}`, `\p{L`, `a++`,
		`\p{Script=Foo}`, `\p{sc=Garay}`, `\p{scx=Katakana_Or_Hiragana}`, `(?<ⸯ>a)`,
		strings.Repeat(`(a)`, maxCaptures+1)} {
		if regexpProblem(pattern) == "" {
			t.Errorf("%s has no problem", pattern)
		}
	}
	// The patterns below would take minutes if the time were quadratic in the length.
	for _, part := range []string{`(`, `(?<`, `(?<a`, `\k<`, `[`, `\p{`, `a{1`} {
		if problem := regexpProblem(strings.Repeat(part, 1<<20/len(part))); problem == "" {
			t.Errorf("%s again and again has no problem", part)
		}
	}
}

// FuzzOutputSchema checks that the check of any schema ends in time, and that a second check has
// the same result.
func FuzzOutputSchema(f *testing.F) {
	for _, schema := range []string{`{"$ref":"#/a"}`, `{"$id":"a","allOf":[{"$ref":"a#/x"}]}`,
		`{"pattern":"[\\ud83d-\\u{1}]"}`, `{"properties":{"a":{"$id":"b","$ref":"#"}},"then":5}`} {
		f.Add(schema)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if !json.Valid([]byte(schema)) || nestsDeeper([]byte(schema), maxNesting) ||
			strings.TrimSpace(schema)[0] != '{' {
			return
		}
		without := withoutIdentifiers([]byte(schema))
		if !json.Valid(without) {
			t.Fatalf("%s becomes %s", schema, without)
		}
		if again := withoutIdentifiers(without); string(again) != string(without) {
			t.Errorf("%s becomes %s, and then %s", schema, without, again)
		}
		at, problem := checkCompiles(without)
		if at2, problem2 := checkCompiles(without); at != at2 || problem != problem2 {
			t.Errorf("%s: %s %s, and then %s %s", schema, at, problem, at2, problem2)
		}
	})
}
