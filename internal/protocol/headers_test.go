package protocol_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func request(t testing.TB, method, params string) wire.Message {
	t.Helper()
	return parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
}

const testClientMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// headerCases has an argument of each type with a header form, one of them nested.
const headerCases = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"n":{"type":"integer","x-mcp-header":"N"},
	"dry":{"type":["boolean"],"x-mcp-header":"Dry"},
	"at":{"type":"object","properties":{"zone":{"x-mcp-header":"Zone","type":"string"}}},
	"q":{"type":"string"}}}`

func TestRequestHeaders(t *testing.T) {
	for _, tt := range []struct {
		method, params, schema string
		want                   string // name=value, in any order
	}{
		{"tools/list", `{}`, "", ""},
		{"tools/call", `{"name":"a","arguments":{"region":"eu"}}`, "", "Mcp-Name=a"},
		{"tools/call",
			`{"name":"a","arguments":{"region":"eu","n":42,"dry":false,"at":{"zone":"z"},"q":"?"}}`,
			headerCases,
			"Mcp-Name=a Mcp-Param-Region=eu Mcp-Param-N=42 Mcp-Param-Dry=false Mcp-Param-Zone=z"},
		{"tools/call", `{"name":"a","arguments":{"region":null,"n":4.2e1,"dry":true,"at":7}}`,
			headerCases, "Mcp-Name=a Mcp-Param-N=42 Mcp-Param-Dry=true"},
		{"tools/call", `{"name":"a","arguments":{"region":{"a":1},"n":1.5,"dry":[]}}`, headerCases,
			"Mcp-Name=a"},
		{"tools/call", `{"name":"a","arguments":{"region":"a","region":"b","n":9007199254740993}}`,
			headerCases, "Mcp-Name=a"},
		{"tools/call", `{"name":"a","arguments":{"n":-9007199254740991}}`, headerCases,
			"Mcp-Name=a Mcp-Param-N=-9007199254740991"},
		{"tools/call", `{"name":"a","arguments":{"region":""}}`, headerCases,
			"Mcp-Name=a Mcp-Param-Region==?base64??="},
		{"tools/call", `{"name":"a"}`, headerCases, "Mcp-Name=a"},
		{"tools/call", `{"name":"é","arguments":[]}`, headerCases, "Mcp-Name==?base64?w6k=?="},
		{"tools/call", `{"name":7}`, headerCases, ""},
		{"prompts/get", `{"name":"p","arguments":{"region":"eu"}}`, headerCases, "Mcp-Name=p"},
		{"resources/read", `{"uri":"file:///a%20b?id=1"}`, "", "Mcp-Name=file:///a%20b?id=1"},
		{"tasks/get", `{"taskId":"t"}`, "", "Mcp-Name=t"},
		{"tasks/update", `{"taskId":"t"}`, "", "Mcp-Name=t"},
		{"tasks/cancel", `{"taskId":"t"}`, "", "Mcp-Name=t"},
		{"completion/complete", `{"name":"a"}`, "", ""},
	} {
		want := map[string]string{"Mcp-Method": tt.method}
		for _, field := range strings.Fields(tt.want) {
			name, value, _ := strings.Cut(field, "=")
			want[name] = value
		}
		if got := protocol.RequestHeaders(request(t, tt.method, tt.params),
			[]byte(tt.schema)); !maps.Equal(got, want) {
			t.Errorf("%s %s: %v, want %v", tt.method, tt.params, got, want)
		}
		want[protocol.HeaderProtocolVersion] = "2026-07-28"
		withMeta := strings.TrimSuffix(tt.params, "}") + "," + testClientMeta + "}"
		withMeta = strings.Replace(withMeta, "{,", "{", 1)
		if got := protocol.RequestHeaders(request(t, tt.method, withMeta),
			[]byte(tt.schema)); !maps.Equal(got, want) {
			t.Errorf("%s %s: %v, want %v", tt.method, withMeta, got, want)
		}
	}
	note := wire.NewNotification("notifications/cancelled", []byte(`{"requestId":1}`))
	if got := protocol.RequestHeaders(note, nil); len(got) != 1 ||
		got["Mcp-Method"] != "notifications/cancelled" {
		t.Errorf("a notification: %v", got)
	}
}

// The values of the scenarios http-custom-headers and http-custom-header-server-validation, and
// further values.
func TestHeaderValues(t *testing.T) {
	for text, want := range map[string]string{
		"us-west1": "us-west1", "us west 1": "us west 1", "test-method": "test-method",
		"":          "=?base64??=",
		"Hello, 世界": "=?base64?SGVsbG8sIOS4lueVjA==?=", " padded ": "=?base64?IHBhZGRlZCA=?=",
		" us-west1": "=?base64?IHVzLXdlc3Qx?=",
		"us-west1 ": "=?base64?dXMtd2VzdDEg?=", "line1\nline2": "=?base64?bGluZTEKbGluZTI=?=",
		"line1\r\nline2": "=?base64?bGluZTENCmxpbmUy?=",
		"\tindented":     "=?base64?CWluZGVudGVk?=", "a\tb": "=?base64?YQli?=",
		"\x7f":                "=?base64?fw==?=",
		"=?base64?SGVsbG8=?=": "=?base64?PT9iYXNlNjQ/U0dWc2JHOD0/PQ==?=",
		"=?base64?=":          "=?base64?PT9iYXNlNjQ/PQ==?=",
		"=?base64?SGVsbG8=":   "=?base64?SGVsbG8=", "SGVsbG8=?=": "SGVsbG8=?=",
		"=?BASE64?SGVsbG8=?=": "=?BASE64?SGVsbG8=?=",
	} {
		m := request(t, "tools/call", fmt.Sprintf(`{"name":%s,"arguments":{"region":%[1]s}}`,
			wire.Quote(text)))
		got := protocol.RequestHeaders(m, []byte(headerCases))
		if got["Mcp-Name"] != want || got["Mcp-Param-Region"] != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
		if err := check(m, got, headerCases); err != nil {
			t.Errorf("%q: the headers of the message are rejected: %v", text, err)
		}
	}
}

// check calls CheckHeaders with these headers.
func check(m wire.Message, headers map[string]string, schema string) *wire.Error {
	h := make(http.Header)
	for name, value := range headers {
		h.Set(name, value)
	}
	return protocol.CheckHeaders(m, h.Values, []byte(schema))
}

func TestCheckHeaders(t *testing.T) {
	const call = `{"name":"a","arguments":%s}`
	for _, tt := range []struct {
		method, params string
		headers        string // name=value, separated by ;
		problem        string // expected error, "" = none
	}{
		{"tools/list", `{}`, "Mcp-Method=tools/list", ""},
		{"tools/list", `{}`, "mcp-method=tools/list", ""},
		{"tools/list", `{}`, "MCP-METHOD= tools/list\t", ""},
		{"tools/list", `{}`, "Mcp-Method=tools/list;Mcp-Name=x;Mcp-Param-Region=x", ""},
		{"tools/list", `{}`, "", "Mcp-Method must be present"},
		{"tools/list", `{}`, "Mcp-Method=", "Mcp-Method differs"},
		{"tools/list", `{}`, "Mcp-Method=TOOLS/LIST", "Mcp-Method differs"},
		{"tools/list", `{}`, "Mcp-Method=prompts/list", "Mcp-Method differs"},
		{"tools/list", `{}`, "Mcp-Method=tools/list;Mcp-Method=tools/list",
			"Mcp-Method must be present exactly once"},
		{"tools/call", `{"name":"a"}`, "Mcp-Method=tools/call", "Mcp-Name must be present"},
		{"tools/call", `{"name":"a"}`, "Mcp-Method=tools/call;Mcp-Name=  a  ", ""},
		{"tools/call", `{"name":"a"}`, "Mcp-Method=tools/call;Mcp-Name=A",
			"Mcp-Name differs from params.name"},
		{"tools/call", `{"name":"a"}`, "Mcp-Method=tools/call;Mcp-Name=a;Mcp-Name=a",
			"Mcp-Name must be present exactly once"},
		{"tools/call", `{"name":"a"}`, "Mcp-Method=tools/call;Mcp-Name==?base64?YQ==?=", ""},
		{"tools/call", `{"name":"a"}`, "Mcp-Method=tools/call;Mcp-Name==?base64?YQ?=",
			"Mcp-Name is not valid Base64"},
		// as go-sdk 1.8 sends it
		{"tools/call", `{"name":"é"}`, "Mcp-Method=tools/call;Mcp-Name=é", ""},
		{"tools/call", `{"name":"=?base64?YQ==?="}`,
			"Mcp-Method=tools/call;Mcp-Name==?base64?YQ==?=", "Mcp-Name differs from params.name"},
		{"tools/call", `{}`, "Mcp-Method=tools/call", ""}, // CheckHeaders does not validate params
		{"tools/call", `{"name":7}`, "Mcp-Method=tools/call;Mcp-Name=7", "Mcp-Name is present"},
		{"prompts/get", `{"name":"p"}`, "Mcp-Method=prompts/get;Mcp-Name=q",
			"Mcp-Name differs from params.name"},
		{"resources/read", `{"uri":"u:1"}`, "Mcp-Method=resources/read",
			"Mcp-Name must be present"},
		{"resources/read", `{"uri":"u:1"}`, "Mcp-Method=resources/read;Mcp-Name=u:1", ""},
		{"tasks/get", `{"taskId":"t"}`, "Mcp-Method=tasks/get;Mcp-Name=u",
			"Mcp-Name differs from params.taskId"},
		{"tasks/update", `{"taskId":"t"}`, "Mcp-Method=tasks/update", "Mcp-Name must be present"},
		{"tasks/cancel", `{"taskId":"t"}`, "Mcp-Method=tasks/cancel;Mcp-Name=t", ""},
		// Below, "call" stands for tools/call with the name a.
		{"call", `{"region":"Hello"}`, "Mcp-Param-Region=Hello", ""},
		{"call", `{"region":"Hello"}`, "Mcp-Param-Region==?base64?SGVsbG8=?=", ""},
		{"call", `{"region":"Hello"}`, "Mcp-Param-Region==?base64?SGVsbG8?=",
			"Mcp-Param-Region is not valid Base64"},
		{"call", `{"region":"Hello"}`, "Mcp-Param-Region==?base64?SGVs!!!bG8=?=",
			"Mcp-Param-Region is not valid Base64"},
		// nonzero padding bits
		{"call", `{"region":"Hello"}`, "Mcp-Param-Region==?base64?SGVsbG9=?=",
			"Mcp-Param-Region is not valid Base64"},
		{"call", `{"region":"SGVsbG8="}`, "Mcp-Param-Region=SGVsbG8=", ""},
		{"call", `{"region":"=?base64?SGVsbG8="}`, "Mcp-Param-Region==?base64?SGVsbG8=", ""},
		{"call", `{"region":"Hello"}`, "", "Mcp-Param-Region must be present"},
		{"call", `{"region":"Hello"}`, "Mcp-Param-Region=hello",
			"Mcp-Param-Region differs from the argument region"},
		{"call", `{"region":"a"}`, "Mcp-Param-Region=a;Mcp-Param-Region=a",
			"Mcp-Param-Region must be present exactly once"},
		{"call", `{"region":""}`, "Mcp-Param-Region=", ""},
		{"call", `{"region":""}`, "", "Mcp-Param-Region must be present"},
		{"call", `{"region":null}`, "", ""},
		{"call", `{"region":null}`, "Mcp-Param-Region=", ""},
		{"call", `{"region":null}`, "Mcp-Param-Region=null", "Mcp-Param-Region is present"},
		{"call", `{}`, "Mcp-Param-Region=a", "Mcp-Param-Region is present"},
		{"call", `{}`, "Mcp-Param-Other=a", ""},
		{"call", `{"region":["a"]}`, "", ""},
		{"call", `{"region":["a"]}`, "Mcp-Param-Region=a", "Mcp-Param-Region is present"},
		{"call", `{"region":"a","region":"b"}`, "", "occurs twice"},
		{"call", `{"region":"a","region":"b"}`, "Mcp-Param-Region=a", "occurs twice"},
		{"call", `{"at":{"zone":"z"}}`, "Mcp-Param-Zone=z", ""},
		{"call", `{"at":{"zone":"z"}}`, "", "Mcp-Param-Zone must be present"},
		{"call", `{"at":{"zone":"z"}}`, "Mcp-Param-Zone=y", "the argument at.zone"},
		{"call", `{"n":42}`, "Mcp-Param-N=42.0", ""},
		{"call", `{"n":4.2e1}`, "Mcp-Param-N=42", ""},
		{"call", `{"n":42}`, "Mcp-Param-N=043", "Mcp-Param-N differs"},
		{"call", `{"n":42}`, "Mcp-Param-N=0x2a", "Mcp-Param-N differs"},
		{"call", `{"n":9007199254740993}`, "Mcp-Param-N=9007199254740993",
			"Mcp-Param-N is present"},
		{"call", `{"n":"42"}`, "Mcp-Param-N=42", ""},
		{"call", `{"dry":true}`, "Mcp-Param-Dry=true", ""},
		{"call", `{"dry":true}`, "Mcp-Param-Dry=True", "Mcp-Param-Dry differs"},
	} {
		if tt.method == "call" {
			tt.method, tt.params = "tools/call", fmt.Sprintf(call, tt.params)
			tt.headers = "Mcp-Method=tools/call;Mcp-Name=a;" + tt.headers
		}
		h := make(http.Header)
		for _, line := range strings.Split(tt.headers, ";") {
			if name, value, ok := strings.Cut(line, "="); ok {
				h.Add(name, value)
			}
		}
		err := protocol.CheckHeaders(request(t, tt.method, tt.params), h.Values,
			[]byte(headerCases))
		switch {
		case err == nil && tt.problem != "":
			t.Errorf("%s %s with %s passes, want %q", tt.method, tt.params, tt.headers, tt.problem)
		case err != nil && (tt.problem == "" || !strings.Contains(err.Message, tt.problem) ||
			err.Code != -32020):
			t.Errorf("%s %s with %s: %d %s, want %q", tt.method, tt.params, tt.headers, err.Code,
				err.Message, tt.problem)
		}
	}
	if err := protocol.CheckHeaders(wire.NewNotification("notifications/cancelled", nil),
		http.Header{}.Values, nil); err != nil {
		t.Errorf("a notification: %v", err)
	}
	if err := check(request(t, "tools/call", `{"name":"a","arguments":{"region":"eu"}}`),
		map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "a"}, ""); err != nil {
		t.Errorf("without a schema: %v", err)
	}
}

func BenchmarkRequestHeaders(b *testing.B) {
	m := request(b, "tools/call", `{"name":"a","arguments":{"region":"eu","n":42,"dry":false},`+
		testClientMeta+`}`)
	for name, schema := range map[string]string{"plain": strings.ReplaceAll(headerCases,
		"x-mcp-header", "x-header"), "headers": headerCases} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				protocol.RequestHeaders(m, []byte(schema))
			}
		})
	}
}
