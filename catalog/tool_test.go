package catalog

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// issueTexts describes a page: its tools, its issues, its cursor.
func issueTexts(page Page, err error) string {
	if err != nil {
		return "error"
	}
	var b strings.Builder
	for _, tool := range page.Items {
		fmt.Fprintf(&b, "%s\n", tool.Raw())
	}
	for _, f := range page.Issues {
		action := "left out"
		if f.Repaired {
			action = "repaired"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", action, f.Item, f.Problem)
	}
	if page.NextCursor != nil {
		fmt.Fprintf(&b, "next %s\n", page.NextCursor)
	}
	return b.String()
}

// TestSCHEMA_05 lists one tool between two valid tools. If the tool is invalid, it is repaired or
// omitted. Its neighbours are unchanged.
func TestSCHEMA_05(t *testing.T) {
	tests := []struct{ name, tool, want, issue string }{
		{"absent", `{"name":"t"}`, `{"name":"t","inputSchema":{"type":"object"}}`,
			"repaired t: inputSchema is missing and is added"},
		{"absent, space before the end", `{"name":"t" }`,
			`{"name":"t" ,"inputSchema":{"type":"object"}}`,
			"repaired t: inputSchema is missing and is added"},
		{"null", `{"inputSchema": null,"name":"t"}`,
			`{"inputSchema": {"type":"object"},"name":"t"}`,
			"repaired t: inputSchema was not an object and is replaced by {\"type\":\"object\"}"},
		{"empty", `{"name":"t","inputSchema":{}}`, `{"name":"t","inputSchema":{"type":"object"}}`,
			"repaired t: inputSchema.type is missing and is added"},
		{"empty, with space", `{"inputSchema":{ },"name":"t"}`,
			`{"inputSchema":{"type":"object" },"name":"t"}`,
			"repaired t: inputSchema.type is missing and is added"},
		{"no type", `{"name":"t","inputSchema":{"properties":{"type":{"type":"string"}}}}`,
			`{"name":"t","inputSchema":{"type":"object","properties":{"type":{"type":"string"}}}}`,
			"repaired t: inputSchema.type is missing and is added"},
		{"good", `{"name":"t","inputSchema":{"x":1,"type":"object"}}`,
			`{"name":"t","inputSchema":{"x":1,"type":"object"}}`, ""},
		{"good, in escapes", `{"name":"t","input\u0053chema":{"typ\u0065":"\u006fbject"}}`,
			`{"name":"t","input\u0053chema":{"typ\u0065":"\u006fbject"}}`, ""},
		{"of type string", `{"name":"t","inputSchema":{"type":"string"}}`, ``,
			`left out t: its inputSchema is not of type "object"`},
		{"of two types", `{"name":"t","inputSchema":{"type":["object","null"]}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			`repaired t: inputSchema.type was not a string and is replaced by "object"`},
		{"with two types", `{"name":"t","inputSchema":{"type":"object","type":"string"}}`, ``,
			`left out t: its inputSchema is not of type "object"`},
		{"of type null", `{"name":"t","inputSchema":{"type":null}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"repaired t: inputSchema.type was not a string and is removed; inputSchema.type is missing and is added"},
		{"true", `{"name":"t","inputSchema":true}`, ``,
			"left out t: its inputSchema is not an object"},
		{"a string", `{"name":"t","inputSchema":"{}"}`, ``,
			"left out t: its inputSchema is not an object"},
		{"an array", `{"name":"t","inputSchema":[{"type":"object"}]}`, ``,
			"left out t: its inputSchema is not an object"},
		{"an empty array", `{"name":"t","inputSchema":[ ]}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			`repaired t: inputSchema was not an object and is replaced by {"type":"object"}`},
		{"two", `{"name":"t","inputSchema":null,"inputSchema":{"type":"object"}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"repaired t: inputSchema occurred twice, and the last one stays"},
		{"output: good", `{"name":"t","inputSchema":{"type":"object"},"outputSchema":{}}`,
			`{"name":"t","inputSchema":{"type":"object"},"outputSchema":{}}`, ""},
		{"output: null", `{"name":"t","inputSchema":{"type":"object"},"outputSchema":null}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"repaired t: outputSchema was not an object and is removed"},
		{"output: true", `{"name":"t","inputSchema":{"type":"object"},"outputSchema":true}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"repaired t: outputSchema was not an object and is removed"},
	}
	const before, behind = `{"name":"a","inputSchema":{"type":"object"}}`,
		`{"name":"z","inputSchema":{"type":"object"}}`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page, err := ParsePage(Tools,
				[]byte(`{"tools":[`+before+` , `+tt.tool+",\t"+behind+`]}`))
			want := before + "\n"
			if tt.want != "" {
				want += tt.want + "\n"
			}
			if want += behind + "\n"; tt.issue != "" {
				want += tt.issue + "\n"
			}
			if got := issueTexts(page, err); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			listings := []Listing{{Backend: "b", Items: [NumKinds][]Item{Tools: page.Items}},
				{Backend: "c", Items: [NumKinds][]Item{Tools: page.Items}}}
			check(t, Options{}, listings, Merge(Options{}, listings))
		})
	}
}

func TestToolsWithoutNameAreOmitted(t *testing.T) {
	long := strings.Repeat("n", maxName)
	for tool, want := range map[string]string{
		`{}`:                           "it has no name",
		`{"title":"x"}`:                "it has no name",
		`{"name":null}`:                "it has no name",
		`{"name":""}`:                  "it has no name",
		`{"name":5}`:                   "it has no name",
		`{"name":["x"]}`:               "it has no name",
		`{"Name":"x"}`:                 "it has no name",
		`"x"`:                          "it is not an object",
		`null`:                         "it is not an object",
		`[{"name":"x"}]`:               "it is not an object",
		`{"name":"` + long + `n"}`:     "its name has more than 1024 bytes",
		`{"name":"x","name":"y"}`:      "its name occurs twice",
		`{"name":"x","n\u0061me":"x"}`: "its name occurs twice",
	} {
		page, err := ParsePage(Tools, []byte(`{"tools":[`+tool+`]}`))
		if err != nil || len(page.Items) != 0 || len(page.Issues) != 1 ||
			page.Issues[0].Problem != want || page.Issues[0].Repaired {
			t.Errorf("%.40s: got %q, %v; want %s", tool, issueTexts(page, err), err, want)
		} else if f := page.Issues[0].Item; f != "tools[0]" && f != "x" {
			t.Errorf("%.40s: the issue is for %q", tool, f)
		}
	}
	page, err := ParsePage(Tools, []byte(`{"tools":[{"name":"`+long+`"}]}`))
	if err != nil || len(page.Items) != 1 {
		t.Errorf("a name at the bound is rejected: %v", page.Issues)
	}
}

// Case PAGE-03: handling of nextCursor if it is absent, null, or "", which many servers send on the
// last page.
func TestPAGECursors(t *testing.T) {
	for text, want := range map[string]string{
		`{"tools":[]}`:                                   ``,
		`{"tools":[],"nextCursor":null}`:                 ``,
		`{"tools":[],"nextCursor":""}`:                   `""`,
		`{"tools":[],"nextCursor":false}`:                ``,
		`{"tools":[],"nextCursor":{}}`:                   ``,
		`{"tools":[],"nextCursor":[]}`:                   ``,
		`{"nextCursor":"c","tools":[]}`:                  `"c"`,
		`{"tools":[],"nextCursor": "\u0063\"\\ ä=" }`:    `"\u0063\"\\ ä="`,
		`{"tools":[],"nextCursor":" "}`:                  `" "`,
		`{"tools":[],"nextCursor":50}`:                   `50`,
		`{"tools":[],"nextCursor":0}`:                    `0`,
		`{"tools":[],"nextcursor":"c","x":{"next":"d"}`:  `error`,
		`{"tools":[],"nextcursor":"c","x":{"next":"d"}}`: ``,
	} {
		page, err := ParsePage(Tools, []byte(text))
		if got := string(page.NextCursor); (err != nil) != (want == "error") ||
			err == nil && got != want {
			t.Errorf("%s: next cursor %s, %v", text, got, err)
		}
	}
}

func TestInvalidPages(t *testing.T) {
	for _, text := range []string{
		``, ` `, `null`, `[]`, `"tools"`, `{}`, `{"tools":{}}`, `{"tools":"[]"}`, `{"Tools":[]}`,
		`{"tools":[}`,
		`{"tools":[]`, `{"tools":[]}}`, `{"tools":[{"name":"a"},]}`, "{\"tools\":[\"\xff\"]}",
		`{"tools":[` + strings.Repeat("[", 2000),
	} {
		if page, err := ParsePage(Tools, []byte(text)); err == nil || page.Items != nil ||
			page.Issues != nil || page.NextCursor != nil {
			t.Errorf("ParsePage(%.60s): %s", text, issueTexts(page, err))
		}
	}
}

// No member of a tool, known to the gateway or not, is lost or changed in the list or in the
// catalog cache.
func TestFIDELITY_05(t *testing.T) {
	const rest = `"title":"<b> & \u003c","description":"é\n","inputSchema":{"type":"object","properties":{"n":{"default":1E+40}},"$defs":{}},` +
		`"outputSchema":{"type":"array","x":[ 1 , 2 ]},"annotations":{"readOnlyHint":true,"name":"inner"},"icons":[{"src":"data:,"}],` +
		`"execution":{"taskSupport":"optional"},"_meta":{"a/b":9007199254740993},"x-unknown":{"f":1.10}`
	raw := `{"name":"t",` + rest + `}`
	page, err := ParsePage(Tools, []byte(`{"tools":[`+raw+`],"_meta":{}}`))
	if err != nil || len(page.Issues) != 0 {
		t.Fatal(issueTexts(page, err))
	}
	s := Merge(Options{}, []Listing{{Backend: "a", Items: [NumKinds][]Item{Tools: page.Items}},
		{Backend: "b", Items: [NumKinds][]Item{Tools: page.Items}}})
	if got, want := string(result(s)), `{"tools":[`+raw+`,{"name":"b__t",`+rest+`}]}`; got != want {
		t.Errorf("listed\n%s\nwant\n%s", got, want)
	}
	again, err := ParsePage(Tools, MarshalList(Tools, page.Items))
	if issueTexts(again, err) != issueTexts(page, nil) {
		t.Errorf("kept\n%s", issueTexts(again, err))
	}
	if got := page.Items[0].Description(); got != "é\n" {
		t.Errorf("described as %q", got)
	}
}

// A page may contain very many entries in few bytes.
func TestPagesAreBounded(t *testing.T) {
	for _, entry := range []string{`{"name":"a"}`, `1`} {
		list := func(n int) []byte {
			return []byte(`{"tools":[` + strings.Repeat(entry+",", n-1) + entry +
				`],"nextCursor":"c"}`)
		}
		page, err := ParsePage(Tools, list(maxPageEntries))
		if n := len(page.Issues); err != nil || n != maxPageEntries ||
			strings.Contains(page.Issues[n-1].Problem, "too many") {
			t.Errorf("%s: at the bound: %d issues, %v", entry, n, err)
		}
		most := len(page.Items)
		page, err = ParsePage(Tools, list(maxPageEntries*10))
		if n := len(page.Issues); err != nil || n != maxPageEntries+1 || len(page.Items) != most ||
			page.Issues[n-1].Item != "tools[10000]" || page.Issues[n-1].Repaired {
			t.Errorf("%s: beyond the bound: %d tools, %d issues, %v", entry, len(page.Items), n,
				err)
		}
	}
}

// The time for a large list is proportional to its bytes.
func TestMergeOfManyAndLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	var many, alike []string
	for i := range maxPageEntries {
		many = append(many, fmt.Sprintf("tool.%d", i))
		alike = append(alike, strings.Repeat(".", i%500)+fmt.Sprint(i%20)+strings.Repeat("/", i/20))
	}
	deep := strings.Repeat(`{"x":`, 90) + `1` + strings.Repeat(`}`, 90)
	large := listing(t, "c", `{"name":"deep","inputSchema":{"type":"object","x":`+deep+`}}
		{"name":"wide","inputSchema":{`+strings.Repeat(`"type2":0,`, 50_000)+`"type":"object"},"description":"`+strings.Repeat(`\n`, 1<<18)+`"}`)
	start := time.Now()
	o := Options{NameLimit: 8}
	listings := []Listing{named(t, "a", many...), named(t, "b", many...), named(t, "c", alike...),
		large}
	s := Merge(o, listings)
	took := time.Since(start)
	check(t, o, listings, s)
	if took > 20*time.Second { // about 0.1 s without -race and load
		t.Errorf("it took %v", took)
	}
}
