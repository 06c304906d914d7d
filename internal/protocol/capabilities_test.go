package protocol_test

import (
	"testing"

	"mcpgateway/internal/protocol"
)

func TestClientCapabilitiesToModern(t *testing.T) {
	for caps, want := range map[string]string{
		"": "{}", "null": "{}", "[]": "{}", "{}": "{}",
		`{"roots":{"listChanged":true}}`: `{"roots":{}}`,
		`{"roots":{}}`:                   `{"roots":{}}`,
		`{"roots":null}`:                 `{"roots":null}`,
		`{"tasks":{"list":{}}}`:          `{}`,
		`{ "sampling" : {"context":{}, "tools":{}}, "roots":{"listChanged":false,"x":1.0}, "elicitation":{}, "tasks":{}, "experimental":{"\u0061":1} }`: `{"sampling" : {"context":{}, "tools":{}},"roots":{"x":1.0},"elicitation":{},"experimental":{"\u0061":1}}`,
		`{"extensions":{"io.modelcontextprotocol/ui":{}},"elicitation":{"form":{},"url":{}}}`:                                                           `{"extensions":{"io.modelcontextprotocol/ui":{}},"elicitation":{"form":{},"url":{}}}`,
	} {
		if got := protocol.ClientCapabilitiesToModern([]byte(caps)); string(got) != want {
			t.Errorf("%s: %s, want %s", caps, got, want)
		}
	}
}

func TestServerCapabilities(t *testing.T) {
	for _, tt := range []struct{ caps, legacy, modern, tasks string }{
		{`{}`, `{}`, `{}`, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`},
		{`{ "tools":{"listChanged":true} }`, `{ "tools":{"listChanged":true} }`,
			`{ "tools":{"listChanged":true} }`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}},"tools":{"listChanged":true}}`},
		{`{"tasks":{"list":{}},"logging":{},"resources":{"subscribe":true}}`,
			`{"tasks":{"list":{}},"logging":{},"resources":{"subscribe":true}}`,
			`{"logging":{},"resources":{"subscribe":true}}`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}},"logging":{},"resources":{"subscribe":true}}`},
		{`{"extensions":{"io.modelcontextprotocol/tasks":{}},"completions":{}}`,
			`{"completions":{}}`, `{"completions":{}}`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}},"completions":{}}`},
		{`{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/ui":{"b":2},"io.modelcontextprotocol/tasks":{"c":3}}}`,
			`{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/ui":{"b":2}}}`,
			`{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/ui":{"b":2}}}`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"b":2}},"experimental":{"a":1}}`},
	} {
		if got := protocol.ServerCapabilitiesToLegacy([]byte(tt.caps)); string(got) != tt.legacy {
			t.Errorf("legacy %s: %s, want %s", tt.caps, got, tt.legacy)
		}
		if got := protocol.ServerCapabilitiesToModern([]byte(tt.caps),
			false); string(got) != tt.modern {
			t.Errorf("modern %s: %s, want %s", tt.caps, got, tt.modern)
		}
		if got := protocol.ServerCapabilitiesToModern([]byte(tt.caps),
			true); string(got) != tt.tasks {
			t.Errorf("modern with tasks %s: %s, want %s", tt.caps, got, tt.tasks)
		}
	}
}

func TestStripParamsMeta(t *testing.T) {
	for params, want := range map[string]string{
		``:                  ``,
		`{"requestId":1.0}`: `{"requestId":1.0}`,
		`{"requestId":1.0,"_meta":{"io.modelcontextprotocol/protocolVersion":"x","a":1.0}}`:      `{"_meta":{"a":1.0},"requestId":1.0}`,
		`{"requestId":1.0,"_meta":{"io.modelcontextprotocol\/clientInfo":{}},"reason":"\u00e9"}`: `{"requestId":1.0,"reason":"\u00e9"}`,
		`[1]`: `[1]`,
	} {
		if got := string(protocol.StripParamsMeta([]byte(params))); got != want {
			t.Errorf("%s: %s, want %s", params, got, want)
		}
	}
}
