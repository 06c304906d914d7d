package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// entryOf returns an entry of a kind with additional members.
func entryOf(k Kind, more string) string {
	switch k {
	case Tools:
		return `{"name":"x","inputSchema":{"type":"object"}` + more + `}`
	case Prompts:
		return `{"name":"x"` + more + `}`
	}
	return `{"` + kinds[k].key + `":"x:y","name":"x"` + more + `}`
}

// repairedEntry returns an entry as it is listed, and the repairs.
func repairedEntry(t *testing.T, k Kind, entry string) (listed, notes string) {
	t.Helper()
	got := page(t, k, `{"`+k.ResultMember()+`":[`+entry+`]}`)
	if len(got.Items) != 1 {
		t.Fatalf("%s: %v", entry, got.Issues)
	}
	for _, f := range got.Issues {
		if f.Repaired {
			notes = f.Problem
		}
	}
	return string(got.Items[0].Raw()), notes
}

// Every optional member that is null, or of a type that MCP's schema does not allow, is removed
// and reported.
func TestOptionalMembers_F_LIST_1_F_LIST_3(t *testing.T) {
	wrong := map[string]string{ // a value of a type that no member of this name has
		"title": `5`, "description": `["x"]`, "mimeType": `{}`, "_meta": `[]`, "annotations": `"x"`,
		"icons": `[{}]`, "execution": `[]`,
		"outputSchema": `7`, "arguments": `"x"`, "size": `"1"`, "name": `7`,
		"defer_loading": `"true"`,
	}
	for k := range Kind(NumKinds) {
		for member := range entryRules[k] {
			if member == kinds[k].key || member == "inputSchema" || wrong[member] == "" {
				if wrong[member] == "" && member != "inputSchema" && member != kinds[k].key {
					t.Errorf("%v: %s is not tested", k, member)
				}
				continue
			}
			for _, value := range []string{"null", wrong[member]} {
				entry, want := entryOf(k, `,"`+member+`":`+value+`,"x":1.0`), entryOf(k, `,"x":1.0`)
				if member == "icons" && value != "null" {
					want = entryOf(k, `,"icons":[],"x":1.0`)
				}
				if member == "name" {
					entry = `{"` + kinds[k].key + `":"x:y","name":` + value + `}`
					want = `{"` + kinds[k].key + `":"x:y","name":"x:y"}`
				}
				if got, notes := repairedEntry(t, k, entry); got != want ||
					!strings.Contains(notes, member) {
					t.Errorf("%s: listed %s, %q", entry, got, notes)
				}
			}
		}
	}
}

// Nested members are repaired individually; the other bytes stay.
func TestNestedMembers_F_LIST_1_F_LIST_3(t *testing.T) {
	for _, tt := range []struct {
		k                Kind
		more, want, note string
	}{
		{Tools, `,"annotations":{"readOnlyHint":null,"title": "\u003c" }`,
			`,"annotations":{"title": "\u003c"}`, "annotations.readOnlyHint"},
		{Tools, `,"annotations":{"readOnlyHint":"true","y":null}`, `,"annotations":{"y":null}`,
			"annotations.readOnlyHint"},
		{Tools, `,"annotations":{"openWorldHint":1}`, `,"annotations":{}`,
			"annotations.openWorldHint"},
		{Tools, `,"execution":{"taskSupport":"maybe"}`, `,"execution":{}`, "execution.taskSupport"},
		{Tools,
			`,"icons":[{"src":"a","sizes":"48x48","theme":"blue","mimeType":null},{"src":7},null,{"src":"b"}]`,
			`,"icons":[{"src":"a"},{"src":"b"}]`, "icons[0].sizes"},
		{Prompts,
			`,"arguments":[{"name":"a","required":"yes","description":null},{"description":"d"},7]`,
			`,"arguments":[{"name":"a"}]`, "arguments[0].required"},
		{Resources,
			`,"annotations":{"audience":["user","everyone"],"priority":2,"lastModified":"2025-01-12"}`, `,"annotations":{}`, "audience"},
		{Resources,
			`,"annotations":{"audience":["user"],"priority":0.50,"lastModified":"2025-01-12T15:00:58.1+01:00"}`, `SAME`, ""},
		{Resources, `,"size":1.5`, ``, "size"},
		{Resources, `,"size":99999999999999999999`, ``, "size"},
		{Resources, `,"size":-1`, ``, "size"},
		{Resources, `,"size":9223372036854775807`, `SAME`, ""},
		{Templates, `,"annotations":{"priority":"1"}`, `,"annotations":{}`, "annotations.priority"},
	} {
		want := entryOf(tt.k, tt.want)
		if tt.want == "SAME" {
			want = entryOf(tt.k, tt.more)
		}
		if got, notes := repairedEntry(t, tt.k, entryOf(tt.k, tt.more)); got != want ||
			!strings.Contains(notes, tt.note) || (notes == "") != (tt.note == "") {
			t.Errorf("%s: listed %s, %q", tt.more, got, notes)
		}
	}
	if got, notes := repairedEntry(t, Resources,
		`{"uri":"\u0078:y"}`); got != `{"uri":"\u0078:y","name":"\u0078:y"}` || notes == "" {
		t.Errorf("a resource without a name: %s, %q", got, notes)
	}
}

func TestSchemas_F_LIST_2(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":[]}`:                                    `{"type":"object","properties":{}}`,
		`{"type":"object","properties":null}`:                                  `{"type":"object","properties":{}}`,
		`{"type":"object","required":null,"x":1.0}`:                            `{"type":"object","x":1.0}`,
		`{"type":"object","required":["a",1]}`:                                 `{"type":"object"}`,
		`{"type":"object","required":"a"}`:                                     `{"type":"object"}`,
		`{"type":"object","$schema":5}`:                                        `{"type":"object"}`,
		`{"type":"object","properties":{"a":true,"b":false,"c":null,"d":{}}}`:  `{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{},"d":{}}}`,
		`{"type":"object","$defs":[],"definitions":null}`:                      `{"type":"object","$defs":{},"definitions":{}}`,
		`{"properties":{"a":{"b": [1 ]}},"required":["a"],"type":["object"] }`: `{"properties":{"a":{"b": [1 ]}},"required":["a"],"type":"object"}`,
		`[]`: `{"type":"object"}`,
	} {
		got, notes := repairedEntry(t, Tools, `{"name":"x","inputSchema":`+schema+`}`)
		if got != `{"name":"x","inputSchema":`+want+`}` || !strings.Contains(notes, "inputSchema") {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
		if schema == `[]` || strings.Contains(schema, `["object"]`) {
			continue // members of an outputSchema may be of any type
		}
		got, notes = repairedEntry(t, Tools, entryOf(Tools, `,"outputSchema":`+schema))
		if got != entryOf(Tools, `,"outputSchema":`+want) ||
			!strings.Contains(notes, "outputSchema") {
			t.Errorf("outputSchema %s: %s, %q", schema, got, notes)
		}
	}
}

// An outputSchema that is not a JSON Schema is removed, because the npm SDK compiles each
// outputSchema in listTools.
func TestOutputSchemas_F_LIST_2(t *testing.T) {
	for schema, note := range map[string]string{
		`{"type":"x"}`: "outputSchema.type",
		`{"type":"object","properties":{"a":{"type":["string",5]}}}`:  "outputSchema.properties.a.type",
		`{"type":"object","properties":{"a":{"items":{"enum":"x"}}}}`: "outputSchema.properties.a.items.enum",
	} {
		if got, notes := repairedEntry(t, Tools,
			entryOf(Tools, `,"outputSchema":`+schema)); got != entryOf(Tools, "") ||
			!strings.HasPrefix(notes, note) {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
	}
	for _, schema := range []string{`{"type":"array","items":{}}`, `{}`,
		`{"type":["object","null"],"x":5}`} {
		if got, notes := repairedEntry(t, Tools,
			entryOf(Tools, `,"outputSchema":`+schema)); got != entryOf(Tools,
			`,"outputSchema":`+schema) {
			t.Errorf("%s: %s, %q", schema, got, notes)
		}
	}
}

// A member whose name differs only in case from a member of MCP is removed, because clients written
// in Go would read its value, whatever its type, as the value of that member.
func TestMembersInAnotherCase_F_LIST_1(t *testing.T) {
	for k := range Kind(NumKinds) {
		for member := range entryRules[k] {
			for _, other := range []string{strings.ToUpper(member), strings.ToUpper(member[:1]) +
				member[1:], strings.Replace(member, "s", "ſ", 1)} {
				if other == member {
					continue
				}
				entry := entryOf(k, `,"x":1.0`)
				for _, value := range []string{`"other"`, `{"type":"object"}`, `null`} {
					entryWithOther := strings.TrimSuffix(entry, "}") + `,"` + other + `":` + value +
						`}`
					got, notes := repairedEntry(t, k, entryWithOther)
					if got != entry || !strings.Contains(notes,
						other+" differs from "+member+" in case") {
						t.Errorf("%s: listed %s, %q", entryWithOther, got, notes)
					}
				}
			}
		}
	}
	for _, tt := range []struct {
		k          Kind
		more, want string
	}{
		{Tools, `,"annotations":{"readOnlyHint":false,"ReadOnlyHint":true}`,
			`,"annotations":{"readOnlyHint":false}`},
		{Tools, `,"icons":[{"SRC":"b","src":"a"}]`, `,"icons":[{"src":"a"}]`},
		{Tools,
			`,"outputSchema":{"type":"object","Properties":{"Type":{}},"properties":{"Type":{"Type":1}}}`,
			`,"outputSchema":{"type":"object","properties":{"Type":{"Type":1}}}`},
		{Prompts, `,"arguments":[{"name":"a","Required":true,"NAME":"b"}]`,
			`,"arguments":[{"name":"a"}]`},
		{Resources, `,"annotations":{"Audience":["user"]}`, `,"annotations":{}`},
	} {
		if got, notes := repairedEntry(t, tt.k, entryOf(tt.k, tt.more)); got != entryOf(tt.k,
			tt.want) || !strings.Contains(notes, "in case") {
			t.Errorf("%s: listed %s, %q", tt.more, got, notes)
		}
	}
	got,
		_ := repairedEntry(t, Tools,
		`{"name":"x","inputSchema":{"type":"object","Type":"string","Required":["a"]},"Name":"y"}`)
	if got != `{"name":"x","inputSchema":{"type":"object"}}` {
		t.Errorf("listed %s", got)
	}
}

// Parsers of Go and Rust reject the whole text if a number exceeds the range of a double.
func TestLargeNumbers_F_LIST_1(t *testing.T) {
	const largest = `1.7976931348623157e308`
	digits := strings.Repeat("9", 400)
	for number, want := range map[string]string{
		`1e400`: largest, `-1E+400`: `-` + largest, digits: largest, `-` + digits + `.5`: `-` +
			largest, `1` + digits + `e5`: largest,
		`1.79769313486231570001e308`: `1.79769313486231570001e308`,
		`1e308`:                      `1e308`, `1e-400`: `1e-400`, `0e999999`: `0e999999`,
		`0.` + digits:      `0.` + digits,
		`9007199254740993`: `9007199254740993`,
		`"1e400"`:          `"1e400"`, `"\"1e400\\"`: `"\"1e400\\"`,
	} {
		for k := range Kind(NumKinds) {
			got, notes := repairedEntry(t, k,
				entryOf(k, `,"_meta":{"a":[1 ,`+number+`],"b": `+number+`}`))
			if got != entryOf(k, `,"_meta":{"a":[1 ,`+want+`],"b": `+want+`}`) ||
				(notes == "") != (number == want) {
				t.Errorf("%.50s: %.200s, %q", number, got, notes)
			}
		}
	}
	// The literal of Original moves.
	got := page(t, Tools,
		`{"tools":[{"x":1e400,"name":"a","inputSchema":{"type":"object","maximum":1e400}}]}`)
	if i := got.Items[0]; string(i.originalLiteral()) != `"a"` ||
		string(i.appendAs(nil, "b")) != `{"x":`+largest+
			`,"name":"b","inputSchema":{"type":"object","maximum":`+largest+`}}` {
		t.Errorf("%s", i.appendAs(nil, "b"))
	}
}

func TestSurrogates_F_LIST_4(t *testing.T) {
	for text, want := range map[string]string{
		`cut \ud83d end`:         `cut \ufffd end`,
		`\uDE00`:                 `\ufffd`,
		`\ud83d\ud83d\ude00`:     `\ufffd\ud83d\ude00`,
		`\ud83d\ude00`:           `\ud83d\ude00`,
		`\\ud83d`:                `\\ud83d`,
		`\ud83d\\ude00`:          `\ufffd\\ude00`,
		`\\\ud83d`:               `\\\ufffd`,
		`\u00e9 \ud7ff\ue000 \n`: `\u00e9 \ud7ff\ue000 \n`,
	} {
		for k := range Kind(NumKinds) {
			got, notes := repairedEntry(t, k,
				entryOf(k, `,"description":"`+text+`","y":{"`+text+`":["`+text+`"]}`))
			if got != entryOf(k, `,"description":"`+want+`","y":{"`+want+`":["`+want+`"]}`) ||
				(notes == "") != (text == want) {
				t.Errorf("%s: %s, %q", text, got, notes)
			}
		}
	}
	// A tool is called by its original name, whatever this is; it is listed under a different name.
	got := page(t, Tools, `{"tools":[{"name":"a\ud83d","inputSchema":{"type":"object"}}]}`)
	s := Merge(Options{}, []Listing{{Backend: "b", Items: [NumKinds][]Item{Tools: got.Items}}})
	r, ok := s.Lookup(Tools, s.Entries(Tools)[0].Exposed)
	if list, _ := s.Page(Tools, nil); !ok || string(r.OriginalJSON) != `"a\ud83d"` ||
		strings.Contains(string(list), "ud83d") {
		t.Errorf("%s, %v", list, r)
	}
	if got := page(t, Resources,
		`{"resources":[{"uri":"x:\ud83d","name":"n"}]}`); len(got.Items) != 0 ||
		len(got.Issues) != 1 {
		t.Errorf("a URI that strict parsers reject: %s", issueTexts(got, nil))
	}
}

func TestMembersTwice_F_LIST_5(t *testing.T) {
	for _, tt := range []struct {
		k          Kind
		more, want string
	}{
		{Tools, `,"description":"a","x":1,"x":2,"description":"b"`,
			`,"x":1,"x":2,"description":"b"`},
		{Tools, `,"annotations":{"title":"a","title":"b","\u0074itle":"c"}`,
			`,"annotations":{"\u0074itle":"c"}`},
		{Tools, `,"description":"a","description":null`, `,"description":"a"`},
		{Prompts, `,"arguments":[{"name":"a","name":"b"}]`, `,"arguments":[{"name":"b"}]`},
		{Resources, `,"name":"z"`, `SEE BELOW`},
	} {
		want := entryOf(tt.k, tt.want)
		if tt.k == Resources {
			want = `{"uri":"x:y","name":"z"}`
		}
		if got, notes := repairedEntry(t, tt.k, entryOf(tt.k, tt.more)); got != want ||
			notes == "" {
			t.Errorf("%s: %s, %q", tt.more, got, notes)
		}
	}
}

func TestNullLists_F_LIST_6(t *testing.T) {
	for k := range Kind(NumKinds) {
		got, err := ParsePage(k, []byte(`{"`+k.ResultMember()+`": null ,"nextCursor":null}`))
		if err != nil || len(got.Items) != 0 || got.NextCursor != nil || len(got.Issues) != 1 ||
			!got.Issues[0].WholeList || !got.Issues[0].Repaired {
			t.Errorf("%v: %+v, %v", k, got, err)
		}
	}
}

// The notes of one entry are bounded, whatever the problems and the names in them are.
func TestNotesAreBounded_F_LIST_1(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, `%q:null,`, strings.Repeat("k", 300)+fmt.Sprint(i))
	}
	_, notes := repairedEntry(t, Tools, `{"name":"x","inputSchema":{"type":"object","properties":{`+
		strings.TrimSuffix(b.String(), ",")+`}}}`)
	if len(notes) > 3000 || !strings.HasSuffix(notes, "and 492 more") {
		t.Errorf("%d bytes: %s", len(notes), notes)
	}
}

// FuzzEntry checks that any repaired entry is valid and needs no further repair, and that an entry
// without repairs is unchanged.
func FuzzEntry(f *testing.F) {
	for k := range Kind(NumKinds) {
		for _, more := range []string{"", `,"title":null`, `,"icons":[{}]`,
			`,"annotations":{"a":1}`, `,"description":"\ud83d","description":"b"`,
			`,"inputSchema":{"properties":{"a":true}}`, `,"arguments":[{"name":1}]`,
			`,"Name":1,"NAME":"y"`, `,"_meta":{"a":-1e999}`,
			`,"outputSchema":{"$id":"a","$ref":"a#/$defs/b","$defs":{"b":{"pattern":"("}}}`} {
			f.Add(uint8(k), entryOf(k, more))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, entry string) {
		k := Kind(n % NumKinds)
		if !json.Valid([]byte(entry)) {
			return
		}
		got, err := ParsePage(k, []byte(`{"`+k.ResultMember()+`":[`+entry+`]}`))
		if err != nil || len(got.Items) == 0 {
			return
		}
		raw := got.Items[0].Raw()
		if !json.Valid(raw) || !wire.IsObject(raw) {
			t.Fatalf("%s becomes %s", entry, raw)
		}
		repaired := func(p Page) bool {
			return slices.ContainsFunc(p.Issues, func(f Issue) bool {
				return f.Repaired && !strings.HasPrefix(f.Problem, "uriTemplate matches no resource")
			})
		}
		if same := string(raw) == strings.TrimSpace(entry); repaired(got) == same &&
			!strings.Contains(entry, `\u`) {
			t.Errorf("%s becomes %s: %v", entry, raw, got.Issues)
		}
		again, err := ParsePage(k, MarshalList(k, got.Items))
		if err != nil || len(again.Items) != 1 || string(again.Items[0].Raw()) != string(raw) ||
			repaired(again) {
			t.Errorf("%s becomes %s, and then %v", entry, raw, again)
		}
	})
}

// BenchmarkManyMembers checks that the time for an entry is linear in its length, whatever the
// names of its members are.
func BenchmarkManyMembers(b *testing.B) {
	for _, member := range []string{`"title":"a"`, `"a":{}`} {
		for _, n := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", member[1:2], n), func(b *testing.B) {
				many := strings.TrimSuffix(strings.Repeat(member+",", n), ",")
				list := []byte(`{"tools":[{"name":"x",` + many +
					`,"inputSchema":{"type":"object","properties":{` + many + `}}}]}`)
				for b.Loop() {
					if _, err := ParsePage(Tools, list); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
