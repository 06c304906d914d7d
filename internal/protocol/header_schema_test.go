package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
)

// annotatedProperty returns the schema of an object with the property v.
func annotatedProperty(schema string) string {
	return `{"type":"object","properties":{"v":` + schema + `}}`
}

func nestedSchema(n int, inner string) string {
	return strings.Repeat(`{"properties":{"v":`, n) + inner + strings.Repeat(`}}`, n)
}

// The cases of the scenario http-invalid-tool-headers, and further cases.
func TestCheckHeaderSchema(t *testing.T) {
	many := `{"properties":{`
	for i := range 65 {
		many += fmt.Sprintf(`"p%d":{"type":"string","x-mcp-header":"H%[1]d"},`, i)
	}
	many = strings.TrimSuffix(many, ",") + "}}"
	for schema, want := range map[string]string{
		"": "", "{}": "", "true": "", "[]": "", headerCases: "",
		annotatedProperty(
			`{"type":"string","x-mcp-header":"Region"}`): "",
		annotatedProperty(
			`{"type":"string","x-mcp-header":""}`): "not a valid header name",
		annotatedProperty(
			`{"type":"string","x-mcp-header":7}`): "not a valid header name",
		annotatedProperty(
			`{"type":"string","x-mcp-header":null}`): "not a valid header name",
		annotatedProperty(
			`{"type":"object","x-mcp-header":"Data"}`): "of v, which is not a string",
		annotatedProperty(
			`{"type":"array","items":{"type":"string"},"x-mcp-header":"Items"}`): "of v, which is not a string",
		annotatedProperty(
			`{"type":"null","x-mcp-header":"Nil"}`): "of v, which is not a string",
		annotatedProperty(
			`{"type":"number","x-mcp-header":"Score"}`): "of v, which is not a string",
		annotatedProperty(
			`{"x-mcp-header":"Score"}`): "of v, which is not a string",
		annotatedProperty(
			`{"$ref":"#/$defs/a","x-mcp-header":"Score"}`): "of v, which is not a string",
		annotatedProperty(
			`{"type":["string","null"],"x-mcp-header":"S"}`): "of v, which is not a string",
		annotatedProperty(
			`{"type":[],"x-mcp-header":"S"}`): "of v, which is not a string",
		annotatedProperty(
			`{"type":["string","integer"],"x-mcp-header":"S"}`): "",
		annotatedProperty(
			`{"type":"string","x-mcp-header":"My Region"}`): "not a valid header name",
		annotatedProperty(
			`{"type":"string","x-mcp-header":"Region:Primary"}`): "not a valid header name",
		annotatedProperty(
			`{"type":"string","x-mcp-header":"Région"}`): "not a valid header name",
		annotatedProperty(
			`{"type":"string","x-mcp-header":"Region\t1"}`): "not a valid header name",
		annotatedProperty(
			`{"type":"string","x-mcp\u002dheader":"My Region"}`): "not a valid header name",
		`{"properties":{"a":{"type":"string","x-mcp-header":"R"},"b":{"type":"string","x-mcp-header":"R"}}}`:             "R occurs twice",
		`{"properties":{"a":{"type":"string","x-mcp-header":"MyField"},"b":{"type":"string","x-mcp-header":"myfield"}}}`: "myfield occurs twice",
		`{"properties":{"a":{"type":"string","x-mcp-header":"R"},"b":` +
			annotatedProperty(`{"type":"string","x-mcp-header":"r"}`) + `}}`: "r occurs twice",
		`{"type":"string","x-mcp-header":"R"}`: "properties alone",
		annotatedProperty(
			`{"type":"array","items":{"type":"string","x-mcp-header":"R"}}`): "properties alone",
		`{"oneOf":[{},` + annotatedProperty(`{"type":"string","x-mcp-header":"R"}`) +
			`]}`: "properties alone",
		`{"$defs":{"a":{"type":"string","x-mcp-header":"R"}}}`: "properties alone",
		`{"if":` + annotatedProperty(`{"type":"string","x-mcp-header":"R"}`) +
			`}`: "properties alone",
		`{"additionalProperties":{"type":"string","x-mcp-header":"R"}}`:                         "properties alone",
		`{"properties":{"x-mcp-header":{"type":"object"}},"default":{"x-mcp-header":"a b"}}`:    "",
		`{"const":{"properties":{"v":{"x-mcp-header":"a b"}}},"examples":[{"x-mcp-header":1}]}`: "",
		many: "more than 64",
		nestedSchema(63, `{"type":"string","x-mcp-header":"a b"}`): "not a valid header name",
		nestedSchema(64, `{"type":"string","x-mcp-header":"a b"}`): "", // too deep to be checked
	} {
		if got := protocol.CheckHeaderSchema([]byte(schema)); (want == "") != (got == "") ||
			!strings.Contains(got, want) {
			t.Errorf("%.200s: %q, want %q", schema, got, want)
		}
	}
}

func TestStripHeaderAnnotations(t *testing.T) {
	for schema, want := range map[string]string{
		"": "", "true": "true", `{ "type": "object" }`: `{ "type": "object" }`,
		`{ "properties": { "a": {"type": "string","x-mcp-header":"R"}, "b": {"type":"string" } } }`: `{ "properties": { "a": {"type": "string"}, "b": {"type":"string" } } }`,
		`{"x-mcp-header":1,"oneOf":[ {"x-mcp-header":2} , {"n":1e400} ]}`:                           `{"oneOf":[{},{"n":1e400}]}`,
		`{"items":{"x-mcp-header":3},"$defs":{"x-mcp-header":{"x-mcp-header":4,"a":"\u003c"}}}`:     `{"items":{},"$defs":{"x-mcp-header":{"a":"\u003c"}}}`,
		`{"default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}`:                                `{"default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}`,
		`{"not":{"x-mcp\u002dheader":1}}`:                                                           `{"not":{}}`,
		`{"additionalProperties":false,"items":[true,{"x-mcp-header":1}],"a":"\u00e9"}`:             `{"additionalProperties":false,"items":[true,{}],"a":"\u00e9"}`,
	} {
		if got := protocol.StripHeaderAnnotations([]byte(schema)); string(got) != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}
