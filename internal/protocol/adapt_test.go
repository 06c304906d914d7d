package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func featuresOf(t testing.TB, date string) protocol.Features {
	t.Helper()
	to, ok := protocol.FindRevision(date)
	if !ok {
		t.Fatal(date)
	}
	return to
}

func TestAdaptResponse(t *testing.T) {
	const (
		audio    = `{"type":"audio","data":"UklG","mimeType":"audio/wav","annotations":{"priority":0.50},"x":"\u003c"}`
		embedded = `{"type":"resource","resource":{"uri":"audio://content/1","mimeType":"audio/wav","blob":"UklG"},"annotations":{"priority":0.50},"x":"\u003c"}`
		link     = `{"type":"resource_link","uri":"file:///a","name":"a \"b\"","title":"t","description":"d","mimeType":"text/plain","size":3,"_meta":{"k":1e1}}`
		linked   = `{"type":"text","text":"a \"b\": file:///a\nd","_meta":{"k":1e1}}`
		text     = `{"type":"text","text":"\u00e9 audio resource_link"}`
	)
	for _, tt := range []struct {
		method, to   string
		result, want string // want "" = the same message
	}{
		{"tools/call", "2024-11-05", `{"content":[` + text + ` , ` + audio + `]}`,
			`{"content":[` + text + `,` + embedded + `]}`},
		{"tasks/result", "2024-11-05", `{ "content" : [` + text + `,` + audio + `], "n": 1e400 }`,
			`{ "content" : [` + text + `,` + embedded + `], "n": 1e400 }`},
		{"tools/call", "2025-03-26", `{"content":[` + text + `,` + audio + `]}`, ""},
		{"tools/call", "2025-03-26", `{"content":[` + audio + `,` + link + `]}`,
			`{"content":[` + audio + `,` + linked + `]}`},
		{"tools/call", "2025-06-18", `{"content":[` + audio + `,` + link + `]}`, ""},
		{"tools/call", "2024-11-05", `{"content":[{"type":"audio"}]}`,
			`{"content":[{"type":"resource","resource":{"uri":"audio://content/0","blob":""}}]}`},
		{"tools/call", "2024-11-05", `{"content":[{"type":"resource_link","uri":"u:1"}]}`,
			`{"content":[{"type":"text","text":"u:1"}]}`},
		{"tools/call", "2024-11-05",
			`{"content":[{"type":"image","mimeType":"audio"},{"type":"hologram"}],"_meta":{"type":"audio"}}`, ""},
		{"tools/call", "2024-11-05", `{"content":"audio","x":"audio"}`, ""},
		{"prompts/get", "2024-11-05", `{"messages":[{"role":"user","content":` + text +
			`},{"role":"user","content":` + audio + `}]}`,
			`{"messages":[{"role":"user","content":` + text + `},{"role":"user","content":` +
				embedded + `}]}`},
		{"prompts/get", "2025-03-26", `{"description":"d","messages":[{"role":"user","content":` +
			link + `}]}`,
			`{"description":"d","messages":[{"role":"user","content":` + linked + `}]}`},
		{"prompts/get", "2025-11-25", `{"messages":[{"role":"user","content":` + link + `}]}`, ""},
		{"resources/read", "2024-11-05",
			`{"contents":[{"uri":"u:1","mimeType":"audio/wav","blob":""}]}`, ""},

		{"tools/call", "2025-11-25", `{"content":[],"structuredContent":{"a":1}}`, ""},
		{"tools/call", "2025-06-18", `{"content":[],"structuredContent":{"a":1}}`, ""},
		{"tools/call", "2026-07-28", `{"content":[],"structuredContent":[1]}`, ""},
		{"tools/call", "2025-11-25", `{"content":[` + text +
			`],"structuredContent": [1.0, "\u003c"] }`,
			`{"content":[` + text + `],"structuredContent": {"result":[1.0, "\u003c"]} }`},
		{"tools/call", "2025-11-25", `{"content":[],"structuredContent":[1.0]}`,
			`{"content":[{"type":"text","text":"[1.0]"}],"structuredContent":{"result":[1.0]}}`},
		{"tools/call", "2025-11-25", `{"structuredContent":"a\n","content":[` + link + `]}`,
			`{"content":[` + link +
				`,{"type":"text","text":"\"a\\n\""}],"structuredContent":{"result":"a\n"}}`},
		{"tools/call", "2025-11-25", `{"structuredContent":null}`,
			`{"content":[{"type":"text","text":"null"}],"structuredContent":{"result":null}}`},
		{"tools/call", "2025-03-26", `{"content":[],"structuredContent":{"a":1}}`,
			`{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{"tools/call", "2025-03-26", `{"content":[` + text + `],"structuredContent":{"a":1}}`, ""},
		{"tools/call", "2025-03-26", `{"content":[` + link + `],"structuredContent":{"a":1}}`,
			`{"content":[` + linked +
				`,{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{"tools/call", "2025-11-25",
			`{"content":[{"type":"text","text":"structuredContent"}],"_meta":{"structuredContent":7}}`, ""},
		{"tools/call", "2024-11-05", `null`, ""},
		{"resources/read", "2025-11-25", `{"contents":[],"structuredContent":7}`, ""},

		{"tools/list", "2025-11-25",
			`{"tools":[{"name":"a","outputSchema":{"type":"object"}},{"name":"b"}]}`, ""},
		{"tools/list", "2026-07-28", `{"tools":[{"name":"a","outputSchema":{"type":"array"}}]}`,
			""},
		{"tools/list", "2025-11-25",
			`{"tools":[ {"name":"a", "outputSchema": {"type":"array","x":1e0}, "_meta":{} } , {"name": "b"}],"nextCursor":"c"}`,
			`{"tools":[{"name":"a", "outputSchema": {"type":"object","properties":{"result":{"type":"array","x":1e0}},"required":["result"]}, "_meta":{} },{"name": "b"}],"nextCursor":"c"}`},
		{"tools/list", "2025-11-25", `{"tools":[{"outputSchema":null},{"outputSchema":7}]}`, ""},
		// References may point to unknown keywords (F_LIST_2). The value of const is data.
		{"tools/list", "2025-11-25",
			`{"tools":[{"outputSchema":{"type":"array","items":{"$ref":"#/x/0"},"x":[{"$ref":"#"},{"$ref":"#/"}],"const":[{"$ref":"#"}],"$defs":{"const":{"$ref":"#/x"}}}}]}`,
			`{"tools":[{"outputSchema":{"type":"object","properties":{"result":{"type":"array","items":{"$ref":"#/properties/result/x/0"},` +
				`"x":[{"$ref":"#/properties/result"},{"$ref":"#/properties/result"}],"const":[{"$ref":"#"}],"$defs":{"const":{"$ref":"#/properties/result/x"}}}},"required":["result"]}}]}`},
		// References may also point to values of the wrong type for their keyword.
		{"tools/list", "2025-11-25",
			`{"tools":[{"outputSchema":{"items":{"$ref":"#/$defs/0"},"$defs":[{"$ref":"#/$defs/1"},{}]}}]}`,
			`{"tools":[{"outputSchema":{"type":"object","$defs":{"value":{"items":{"$ref":"#/$defs/value/$defs/0"},"$defs":[{"$ref":"#/$defs/value/$defs/1"},{}]}},` +
				`"anyOf":[{"$ref":"#/$defs/value"},{"properties":{"result":{"$ref":"#/$defs/value"}},"required":["result"]}]}}]}`},
	} {
		m := parse(t, `{"jsonrpc":"2.0", "id":"é","result":`+tt.result+`}`)
		got := protocol.AdaptResponse(m, tt.method, featuresOf(t, tt.to))
		if &got.Raw()[0] == &m.Raw()[0] {
			if tt.want != "" {
				t.Errorf("%s for %s: %s is unchanged", tt.method, tt.to, tt.result)
			}
		} else if want := `{"jsonrpc":"2.0", "id":"é","result":` + tt.want +
			`}`; string(got.Raw()) != want {
			t.Errorf("%s for %s:\n%s\nbecame %s\nnot    %s", tt.method, tt.to, m.Raw(), got.Raw(),
				want)
		}
	}
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"structuredContent"}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`} {
		m := parse(t, text)
		if got := protocol.AdaptResponse(m, "tools/call",
			featuresOf(t, "2024-11-05")); &got.Raw()[0] != &m.Raw()[0] {
			t.Errorf("%s became %s", text, got.Raw())
		}
	}
}

// If a value is valid against a schema, the adapted value is valid against the adapted schema.
func TestAdaptedResultsMatchAdaptedSchemas(t *testing.T) {
	values := []string{`null`, `7`, `"s"`, `[]`, `[1]`, `["a"]`, `{}`, `{"n":1}`, `{"n":"a"}`,
		`{"next":{"next":{}}}`, `{"next":[1]}`, `[[],[[]]]`, `{"result":7}`}
	to := featuresOf(t, "2025-11-25")
	for _, schema := range []string{
		`{"type":"array","items":{"type":"integer"}}`, `{"type":"string"}`,
		`{"type":["array","null"]}`, `{"type":["object","null"]}`,
		`{"type":"object","properties":{"n":{"type":"integer"}}}`, `{}`,
		`{"anyOf":[{"type":"object","required":["n"]},{"type":"integer"}]}`,
		`{"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}`,
		`{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"}}}}}`,
		`{"type":"array","items":{"$ref":"#"}}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"array","items":{"$ref":"#/definitions/n"},"definitions":{"n":{"type":"integer"}}}`,
		`{"oneOf":[{"type":"array","items":{"$ref":"#/$defs/n"}},{"$ref":"#/$defs/n"}],"$defs":{"n":{"$ref":"#i"},"i":{"$anchor":"i","type":"integer"}}}`,
		`{"type":"array","items":{"$ref":"https://example.com/i#/$defs/n"},"$defs":{"i":{"$id":"https://example.com/i","$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}}}}}`,
	} {
		list := protocol.AdaptResponse(wire.NewResult("1",
			[]byte(`{"tools":[{"outputSchema":`+schema+`}]}`)), "tools/list", to)
		var adapted struct {
			Tools []struct{ OutputSchema json.RawMessage }
		}
		if err := json.Unmarshal(list.Part(wire.PartResult), &adapted); err != nil {
			t.Fatal(err)
		}
		var root struct {
			Type     any
			Required []string
		}
		if json.Unmarshal(adapted.Tools[0].OutputSchema, &root); root.Type != "object" {
			t.Errorf("%s: adapted to %s", schema, adapted.Tools[0].OutputSchema)
		}
		was, is := resolve(t, schema), resolve(t, string(adapted.Tools[0].OutputSchema))
		for _, value := range values {
			m := protocol.AdaptResponse(wire.NewResult("1",
				[]byte(`{"content":[],"structuredContent":`+value+`}`)), "tools/call", to)
			got, _ := wire.Lookup(m.Part(wire.PartResult), "structuredContent")
			before, after := was.Validate(decode(t, value)), is.Validate(decode(t, string(got)))
			if before == nil && after != nil {
				t.Errorf("%s: valid against %s; adapted to %s, against %s: %v", value, schema, got,
					adapted.Tools[0].OutputSchema, after)
			}
			// If objects are valid, {"result": v} may be a valid object itself.
			if before != nil && after == nil && len(root.Required) == 1 &&
				!strings.Contains(value, "result") {
				t.Errorf("%s: not valid against %s, but adapted to %s, valid against %s", value,
					schema, got, adapted.Tools[0].OutputSchema)
			}
		}
	}
}

func resolve(t *testing.T, schema string) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return r
}

func decode(t *testing.T, value string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzAdapt checks that the adaptation of any result is a valid message, and that adapting this
// message again does not change it.
func FuzzAdapt(f *testing.F) {
	for _, result := range []string{
		`{"content":[{"type":"audio","data":"","mimeType":"a/b"},{"type":"resource_link","uri":"u:1"}],"structuredContent":[1]}`,
		`{"messages":[{"content":{"type":"audio"}},{"content":7}]}`,
		`{"structuredContent":"x","content":7,"content":[]}`,
		`{"tools":[{"outputSchema":{"type":"array","items":{"$ref":"#"}}},{"outputSchema":true},7]}`, `[{"type":"audio"}]`,
	} {
		f.Add([]byte(result))
	}
	f.Fuzz(func(t *testing.T, result []byte) {
		m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + string(result) + `}`))
		if err != nil || m.Kind() != wire.Response || m.Part(wire.PartResult) == nil {
			return
		}
		for _, method := range []string{"tools/call", "prompts/get", "tools/list"} {
			for _, date := range protocol.RevisionDates() {
				once := protocol.AdaptResponse(m, method, featuresOf(t, date))
				if !json.Valid(once.Raw()) || once.ID() != m.ID() {
					t.Fatalf("%s for %s: %s", method, date, once.Raw())
				}
				if twice := protocol.AdaptResponse(once, method,
					featuresOf(t, date)); string(twice.Raw()) != string(once.Raw()) {
					t.Fatalf("%s for %s: %s, then %s", method, date, once.Raw(), twice.Raw())
				}
			}
		}
	})
}

// BenchmarkAdapt measures responses that need no change. AdaptResponse must not allocate for them.
func BenchmarkAdapt(b *testing.B) {
	page := strings.Repeat(`line 17 of a file, with an escape\n`, 120)
	m := parse(b, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`+page+
		`"}]}}`)
	object := parse(b, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`+page+
		`"}],"structuredContent":{"text":"`+page+`"}}}`)
	for name, m := range map[string]wire.Message{"text 4KiB": m, "object 4KiB": object} {
		for _, date := range []string{"2025-11-25", "2024-11-05"} {
			b.Run(name+"/"+date, func(b *testing.B) {
				to := featuresOf(b, date)
				b.ReportAllocs()
				b.SetBytes(int64(len(m.Raw())))
				for b.Loop() {
					protocol.AdaptResponse(m, "tools/call", to)
				}
			})
		}
	}
}
