package protocol_test

import (
	"net/http"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// FuzzHeaders checks that the headers of a message are valid for the message, and are invalid if
// one header is missing, duplicated or changed.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []struct{ body, schema, value string }{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"region":"eu","n":42,"dry":true,"at":{"zone":"z"}}}}`, headerCases, "eu"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"é\n","arguments":{"region":" =?base64?YQ==?="}}}`, headerCases, "=?base64?YQ==?="},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"","arguments":{"region":"a","region":"b","n":9007199254740993}}}`, headerCases, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a b","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "", "file:///a b"},
		{`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":7}}`, `{"properties":7}`,
			"7"},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `[]`,
			"x"},
	} {
		f.Add([]byte(seed.body), []byte(seed.schema), seed.value)
	}
	f.Fuzz(func(t *testing.T, body, schema []byte, value string) {
		m, err := wire.Parse(body)
		if err != nil || m.Kind() != wire.Request && m.Kind() != wire.Notification {
			return
		}
		made := protocol.RequestHeaders(m, schema)
		h := make(http.Header)
		for name, text := range made {
			h.Set(name, text)
			// methods and revisions are not encoded
			plain := name == "Mcp-Method" || name == protocol.HeaderProtocolVersion
			if !plain && (strings.Trim(text, " ") != text ||
				strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })) {
				t.Errorf("%s: %q is not a valid header value", name, text)
			}
		}
		problem := protocol.CheckHeaderSchema(schema)
		refused := protocol.CheckHeaders(m, h.Values, schema)
		if fit := strings.Trim(m.Method(), " \t") == m.Method(); refused != nil && problem == "" &&
			fit && !strings.Contains(refused.Message, "occurs twice") {
			t.Errorf("the headers of the message are rejected: %s\n%s\n%q", refused.Message, body,
				h)
		}
		if m.Kind() != wire.Request || refused != nil || problem != "" {
			return
		}
		for name := range made {
			if name == protocol.HeaderProtocolVersion {
				continue
			}
			was := h.Get(name)
			h.Add(name, was)
			if protocol.CheckHeaders(m, h.Values, schema) == nil {
				t.Errorf("%s occurs twice and passes", name)
			}
			h.Del(name)
			if protocol.CheckHeaders(m, h.Values, schema) == nil {
				t.Errorf("%s is missing and passes", name)
			}
			h.Set(name, was+"x")
			if protocol.CheckHeaders(m, h.Values, schema) == nil {
				t.Errorf("%s is %q instead of %q and passes", name, was+"x", was)
			}
			h.Set(name, value)
			_ = protocol.CheckHeaders(m, h.Values, schema)
			h.Set(name, was)
		}
	})
}
