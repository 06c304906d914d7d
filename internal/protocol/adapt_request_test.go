package protocol_test

import (
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
)

func TestAdaptServerRequest(t *testing.T) {
	form := func(field string) string {
		return `{"message":"\u00e9","requestedSchema":{ "type":"object", "properties":{ "a":` +
			field + `, "b":{"type":"string"} } }}`
	}
	const (
		titled = `{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"\u0067"}],"default":"r"}`
		plain  = `{"enum":["r","\u0067"],"enumNames":["Red","\u0067"],"type":"string","default":"r"}`
		many   = `{"type":"array","items":{"type":"string","enum":["a"]}}`
		url    = `{"mode":"url","message":"m","url":"https://example.com","elicitationId":"e"}`
		hi     = `{"type":"text","text":"hi"}`
		image  = `{"type":"image","data":"","mimeType":"a/b"}`
		audio  = `{"type":"audio","data":"","mimeType":"a/b"}`
		use    = `{"type":"tool_use","id":"1","name":"a","input":{}}`
		all    = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}`
	)
	sampling := func(content string) string {
		return `{"messages":[{"role":"user", "content":` + content + `}],"maxTokens":9}`
	}
	for _, tt := range []struct {
		method, to, caps string
		params, want     string // want: "" = unchanged, "!…" = the error
	}{
		{"elicitation/create", "2025-11-25", all, form(titled), ""},
		{"elicitation/create", "2025-11-25", `{"elicitation":{}}`, form(many), ""},
		{"elicitation/create", "2025-11-25", `{"elicitation":{"url":{}}}`, form(titled),
			"!no capability form"},
		{"elicitation/create", "2025-11-25", `{}`, form(titled), "!no capability elicitation"},
		{"elicitation/create", "2025-11-25", all, url, ""},
		{"elicitation/create", "2025-11-25", `{"elicitation":{}}`, url, "!no capability url"},
		{"elicitation/create", "2025-11-25", all, `{"mode":"telepathy"}`,
			"!unknown elicitation mode"},
		{"elicitation/create", "2025-06-18", all, url, ""},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`, url, "!no capability url"},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`, form(titled), form(plain)},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`,
			form(`{"type":"string","enum":["a"],"enumNames":["A"]}`), ""},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`,
			`{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}`,
			""},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`, form(many),
			"!no multiple selection"},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`,
			form(`{"type":"string","oneOf":[{"pattern":"a"}]}`), "!without const"},
		{"elicitation/create", "2025-06-18", `{"elicitation":{}}`,
			form(`{"type":"string","oneOf":[]}`), "!no choices"},
		{"elicitation/create", "2025-03-26", all, form(titled), form(plain)},
		{"elicitation/create", "2025-03-26", `{}`, form(titled), "!no capability elicitation"},
		{"elicitation/create", "2024-11-05", all, url, ""},

		{"sampling/createMessage", "2025-11-25", all, sampling(`[` + hi + `,` + use + `]`), ""},
		{"sampling/createMessage", "2025-11-25", `{}`, sampling(hi), "!no capability sampling"},
		{"sampling/createMessage", "2025-11-25", all,
			`{"messages":[],"tools":[{}],"toolChoice":{},"includeContext":"allServers"}`, ""},
		{"sampling/createMessage", "2025-11-25", `{"sampling":{}}`, `{"messages":[],"tools":[{}]}`,
			"!no capability tools"},
		{"sampling/createMessage", "2025-11-25", `{"sampling":{}}`,
			`{"messages":[],"toolChoice":{}}`, "!no capability tools"},
		{"sampling/createMessage", "2025-11-25", `{"sampling":{}}`, `{"messages":[],"tools":null}`,
			""},
		{"sampling/createMessage", "2025-11-25", `{"sampling":{}}`,
			`{"messages":[], "includeContext":"thisServer","n":1.0}`, `{"messages":[],"n":1.0}`},
		{"sampling/createMessage", "2025-11-25", `{"sampling":{}}`,
			`{"messages":[], "includeContext":"none"}`, ""},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`,
			`{"messages":[], "includeContext":"thisServer"}`, ""},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`, sampling(hi), ""},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`, sampling(audio), ""},
		{"sampling/createMessage", "2024-11-05", `{"sampling":{}}`, sampling(audio), "!no audio"},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`, sampling(` [ ` + hi + ` ] `),
			sampling(` ` + hi + ` `)},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`,
			sampling(`[` + hi + `, ` + image + `]`),
			`{"messages":[{"role":"user", "content":` + hi + `},{"role":"user", "content":` +
				image + `}],"maxTokens":9}`},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`, sampling(`[]`),
			`{"messages":[],"maxTokens":9}`},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`, sampling(`[` + use + `]`),
			"!no tool_use"},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{"tools":{}}}`,
			`{"messages":[],"tools":[]}`, ""},
		{"sampling/createMessage", "2025-06-18", `{"sampling":{}}`, `{"messages":[],"tools":[]}`,
			"!no capability tools"},

		{"roots/list", "2024-11-05", all, ``, ""},
		{"roots/list", "2024-11-05", `{}`, ``, "!no capability roots"},
		{"tools/call", "2025-11-25", all, `{}`, "!not a request for clients"},
	} {
		params := []byte(tt.params)
		got, err := protocol.AdaptServerRequest(tt.method, params, featuresOf(t, tt.to),
			[]byte(tt.caps))
		problem, fails := strings.CutPrefix(tt.want, "!")
		switch {
		case fails != (err != nil), err != nil && !strings.Contains(err.Error(), problem):
			t.Errorf("%s %s for %s with %s: %v, want %q", tt.method, tt.params, tt.to, tt.caps, err,
				problem)
		case fails:
		case tt.want == "" && (string(got) != tt.params || len(got) > 0 && &got[0] != &params[0]),
			tt.want != "" && string(got) != tt.want:
			t.Errorf("%s %s for %s with %s:\n%s", tt.method, tt.params, tt.to, tt.caps, got)
		}
	}
}
