package protocol_test

import (
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func TestResultType(t *testing.T) {
	for result, want := range map[string]string{
		``: "complete", `null`: "complete", `{}`: "complete", `{"a":"resultType"}`: "complete",
		`{"resultType":null}`:                  "complete",
		`{"resultType":"complete"}`:            "complete",
		`{"resultType":"input_\u0072equired"}`: "input_required", `{"resultType":"task"}`: "task",
		`{"resultType":7}`: "", `{"resultType":"complete","resultType":"task"}`: "",
		`{"_meta":{"resultType":"task"}}`: "complete",
	} {
		if got := protocol.ResultType([]byte(result)); got != want {
			t.Errorf("%s: %q, want %q", result, got, want)
		}
	}
}

func TestParseResultType(t *testing.T) {
	for result, want := range map[string]string{
		`{}`: "complete", `{"resultType":null}`: "complete", `{"resultType":""}`: "",
		`{"resultType":"banana"}`: "banana",
		`null`:                    "its result is not an object",
		`"resultType"`:            "its result is not an object",
		`["resultType"]`:          "its result is not an object",
		`{"resultType":5}`:        "its resultType is not a string: 5",
		`{"resultType":{}}`:       "its resultType is not a string: {}",
		`{"resultType":"complete","result\u0054ype":"complete"}`: "its resultType occurs twice",
	} {
		kind, err := protocol.ParseResultType([]byte(result))
		if err != nil && (kind == "" || kind == protocol.ResultComplete) {
			kind = err.Error()
		}
		if kind != want {
			t.Errorf("%s: %q, want %q", result, kind, want)
		}
	}
}

// response returns a response with this member.
func response(t testing.TB, member string) wire.Message {
	t.Helper()
	return parse(t, full(`{"jsonrpc":"2.0", "id":"\u0069",`+member+`}`))
}

func TestToModern(t *testing.T) {
	const me = `"_meta":{"io/serverInfo":{"name":"g"}`
	for _, tt := range []struct{ method, was, is string }{
		{"tools/call", `"result":{}`, `"result":{"resultType":"complete",` + me + `}}`},
		{"tools/call", `"result":{ "content" : [1.0] }`, `"result":{"resultType":"complete",` + me +
			`},"content" : [1.0]}`},
		{"tools/call", `"result":{"resultType":"task","taskId":"t"}`,
			`"result":{` + me + `},"resultType":"task","taskId":"t"}`},
		{"tools/call", `"result":{"resultType":null}`, `"result":{"resultType":"complete",` + me +
			`}}`},
		{"tools/list", `"result":{"tools":[]}`,
			`"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + me +
				`},"tools":[]}`},
		{"resources/read", `"result":{"ttlMs":5000,"resultType":"complete"}`,
			`"result":{"cacheScope":"private",` + me + `},"ttlMs":5000,"resultType":"complete"}`},
		{"resources/read", `"result":{"ttlMs":null,"cacheScope":"public"}`,
			`"result":{"resultType":"complete","ttlMs":0,` + me + `},"cacheScope":"public"}`},
		{"resources/read", `"result":{"resultType":"input_required","requestState":"s"}`,
			`"result":{` + me + `},"resultType":"input_required","requestState":"s"}`},
		{"prompts/get",
			`"result":{"_meta":{"a":1e1,"io/serverInfo":{"name":"b"},"io/related-task":{}}}`,
			`"result":{"resultType":"complete",` + me + `,"a":1e1,"io/related-task":{}}}`},
		{"prompts/get", `"result":{"_meta":7}`, `"result":{"resultType":"complete",` + me + `}}`},
		{"tools/call", `"result":7`, `"result":7`},
		{"tools/call", `"result":null`, `"result":null`},
		{"resources/read", `"error":{"code":-32002,"message":"\u00e9", "data":{"uri":"u:1"}}`,
			`"error":{"code":-32602,"message":"\u00e9", "data":{"uri":"u:1"}}`},
		{"resources/read", `"error":{"code":-32002,"message":"no"}`,
			`"error":{"code":-32602,"message":"no"}`},
		{"tools/call", `"error":{"code":-32002,"message":"no","data":{"uri":"u:1"}}`,
			`"error":{"code":-32602,"message":"no","data":{"uri":"u:1"}}`},
		{"tools/call", `"error":{"code":-32002,"message":"not initialized"}`,
			`"error":{"code":-32603,"message":"not initialized"}`},
		{"resources/read", `"error":{"code":7,"data":{"uri":"u:1"}}`,
			`"error":{"code":7,"data":{"uri":"u:1"}}`},
	} {
		got := protocol.ToModern(response(t, tt.was), tt.method, []byte(`{"name":"g"}`), true)
		if want := response(t, tt.is); string(got.Raw()) != string(want.Raw()) {
			t.Errorf("%s %s\nbecame %s\nnot    %s", tt.method, tt.was, got.Raw(), want.Raw())
		}
	}
}

// A code that has another meaning in the modern generation, or none, is replaced.
func TestMakePrivate(t *testing.T) {
	for result, want := range map[string]string{
		`{"ttlMs":1,"cacheScope":"public","contents":[]}`: `{"cacheScope":"private","ttlMs":1,"contents":[]}`,
		`{"cacheScope":3}`:         `{"cacheScope":"private"}`,
		`{"cacheScope":"private"}`: `{"cacheScope":"private"}`,
		`{"cacheScope":null}`:      `{"cacheScope":null}`, // ToModern sets it
		`{"contents":[]}`:          `{"contents":[]}`,
	} {
		m := protocol.MakePrivate(wire.NewResult("1", []byte(result)))
		if got := string(m.Part(wire.PartResult)); got != want {
			t.Errorf("%s: %s", result, got)
		}
	}
	m := wire.NewErrorResponse("1", wire.Errorf(-1, "x"))
	if string(protocol.MakePrivate(m).Raw()) != string(m.Raw()) {
		t.Error("an error response has changed")
	}
}

func TestErrorToModern(t *testing.T) {
	const caps = `{"requiredCapabilities":{"sampling":{}}}`
	for _, tt := range []struct {
		code, data string
		was        bool // responder is modern
		is         string
	}{
		{"-32020", `{}`, true, "-32603"},
		{"-32020", `{}`, false, "-32603"},
		{"-32021", caps, true, "-32021"},
		{"-32021", caps, false, "-32021"},
		{"-32021", `{}`, true, "-32603"},
		{"-32021", `{"requiredCapabilities":["sampling"]}`, true, "-32603"},
		{"-32022", `{"supported":[]}`, true, "-32603"},
		{"-32023", `1`, true, "-32603"},
		{"-32042", `{"elicitations":[]}`, false, "-32603"},
		{"-32042", `{"elicitations":[{}]}`, true, "-32603"},
		{"-32042.0", `1`, true, "-32603"},
		{"-3.2042E4", `1`, false, "-32603"},
		{`7,"code":-32042`, `1`, false, `-32603,"code":-32603`},
		{"-32099", `1`, false, "-32603"},
		{"-32002", `1`, true, "-32603"},
		{"-32002", `1`, false, "-32603"},
		{"-32002", `{"uri":"u:1"}`, false, "-32602"},
		// Codes without a meaning in MCP, or with the same meaning in all revisions.
		{"-32100", `1`, false, "-32100"},
		{"-32019", `1`, false, "-32019"},
		{"-32001", `1`, true, "-32001"},
		{"-32000", `1`, true, "-32000"},
		{"-32601", `1`, true, "-32601"},
		{"-32042.5", `1`, true, "-32042.5"},
		{"7", `1`, true, "7"},
		{`"-32042"`, `1`, true, `"-32042"`},
		{"1e400", `1`, true, "1e400"},
	} {
		failure := func(code string) wire.Message {
			return response(t, `"error":{"message":"\u00e9", "code":`+code+`,"data":`+tt.data+`}`)
		}
		got := protocol.ToModern(failure(tt.code), "tools/call", []byte(`{}`), tt.was)
		if want := failure(tt.is); string(got.Raw()) != string(want.Raw()) {
			t.Errorf("%s %s, %v\nbecame %s", tt.code, tt.data, tt.was, got.Raw())
		}
	}
}

// In the response of a legacy server the names of modern members have no meaning.
func TestToModern_FromLegacy(t *testing.T) {
	const me = `"_meta":{"io/serverInfo":{"name":"g"}}`
	for _, tt := range []struct{ method, was, is string }{
		{"tools/call", `{ "content" : [1.0] }`, `{"resultType":"complete",` + me +
			`,"content" : [1.0]}`},
		{"tools/call",
			`{"x":1.0,"resultType":"input_required", "inputRequests":{"a":{ }},"requestState":"s\u0031"}`,
			`{"resultType":"complete",` + me +
				`,"x":1.0,"inputRequests":{"a":{ }},"requestState":"s\u0031"}`},
		{"tools/call", `{"resultType":"task","taskId":"t"}`, `{"resultType":"complete",` + me +
			`,"taskId":"t"}`},
		{"tools/call", `{"result\u0054ype":"banana"}`, `{"resultType":"complete",` + me + `}`},
		{"tools/call", `{"resultType":5}`, `{"resultType":"complete",` + me + `}`},
		{"tools/call", `{"resultType":"complete","resultType":"task"}`,
			`{"resultType":"complete",` + me + `}`},
		{"tools/call", `{"ttlMs":"x","cacheScope":7}`, `{"resultType":"complete",` + me +
			`,"ttlMs":"x","cacheScope":7}`},
		{"resources/read",
			`{"contents":[],"resultType":"banana","ttlMs":"x","cacheScope":"public"}`,
			`{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + me + `,"contents":[]}`},
	} {
		m := wire.NewResult("1", []byte(full(tt.was)))
		got := protocol.ToModern(m, tt.method, []byte(`{"name":"g"}`), false)
		if want := full(tt.is); string(got.Part(wire.PartResult)) != want {
			t.Errorf("%s %s\nbecame %s\nnot    %s", tt.method, tt.was, got.Part(wire.PartResult),
				want)
		}
	}
}

func TestToLegacy(t *testing.T) {
	for was, is := range map[string]string{ // "" = the same message
		`"result":{}`: "",
		`"result":{ "content":[], "_meta":{"a":1} }`:          "",
		`"result":{"_meta":{}}`:                               "",
		`"result":{"_meta":7}`:                                "",
		`"result":7`:                                          "",
		`"error":{"code":1,"data":{"resultType":"complete"}}`: "",
		`"result":{"resultType":"complete"}`:                  `"result":{}`,
		`"result":{"a":1.0, "resultType":"complete","ttlMs":1,"cacheScope":"public","b":"\u003c"}`:   `"result":{"a":1.0,"b":"\u003c"}`,
		`"result":{"a":{"ttlMs":1},"_meta":{"io/serverInfo":{}}}`:                                    `"result":{"a":{"ttlMs":1}}`,
		`"result":{"a": 1, "_meta":{"io/serverInfo":{},"b":2,"io/subscriptionId":3}}`:                `"result":{"a": 1, "_meta":{"b":2}}`,
		`"result":{"_meta":{"io/serverInfo":{}, "io/related-task":{"taskId":"t"}},"resultType":"x"}`: `"result":{"_meta":{"io/related-task":{"taskId":"t"}}}`,
		`"result":{"resultType":"complete","_meta":{}}`:                                              `"result":{"_meta":{}}`,
	} {
		m := response(t, was)
		got := protocol.ToLegacy(m)
		if is == "" {
			if &got.Raw()[0] != &m.Raw()[0] {
				t.Errorf("%s became %s", was, got.Raw())
			}
		} else if want := response(t, is); string(got.Raw()) != string(want.Raw()) {
			t.Errorf("%s\nbecame %s\nnot    %s", was, got.Raw(), want.Raw())
		}
	}
}

func TestErrorToLegacy(t *testing.T) {
	for _, tt := range []struct{ uri, was, is string }{
		{"u:1", `"error":{"code":-32602, "message":"\u00e9","data":{"uri":"u:1"}}`,
			`"error":{"code":-32002, "message":"\u00e9","data":{"uri":"u:1"}}`},
		{"u:2", `"error":{"code":-32602,"data":{"uri":"u:1"}}`,
			`"error":{"code":-32602,"data":{"uri":"u:1"}}`},
		{"", `"error":{"code":-32602,"data":{"uri":""}}`,
			`"error":{"code":-32602,"data":{"uri":""}}`},
		{"u:1", `"error":{"code":-32602,"data":7}`, `"error":{"code":-32602,"data":7}`},
		{"u:1", `"error":{"code":-32603,"data":{"uri":"u:1"}}`,
			`"error":{"code":-32603,"data":{"uri":"u:1"}}`},
		{"u:1", `"result":{}`, `"result":{}`},
	} {
		got := protocol.ErrorToLegacy(response(t, tt.was), tt.uri)
		if want := response(t, tt.is); string(got.Raw()) != string(want.Raw()) {
			t.Errorf("%s: %s, want %s", tt.was, got.Raw(), want.Raw())
		}
	}
}

// A result that is converted to the modern generation and back is unchanged.
func TestResultsRoundTrip(t *testing.T) {
	for i, result := range []string{`{}`, `{"tools":[{"n":1e400}],"nextCursor":"c"}`,
		`{"_meta":{"a":1},"content":[]}`} {
		fromModern := i%2 == 0
		m := protocol.ToLegacy(protocol.ToModern(wire.NewResult("1", []byte(result)), "tools/list",
			[]byte(`{}`), fromModern))
		if got := string(m.Part(wire.PartResult)); got != result {
			t.Errorf("%s became %s", result, got)
		}
	}
}

// BenchmarkToModern compares the conversion of responses of both generations with one scan of the
// same JSON.
func BenchmarkToModern(b *testing.B) {
	const row = `{"id":12345,"ok":true,"path":"src/a.go","score":0.25,"tags":["a","bc"],"next":null},`
	for name, content := range map[string]string{
		"text 4KiB": `{"type":"text","text":"` +
			strings.Repeat(`line 17 of a file, with an escape\n`, 4<<10/35) + `"}`,
		"structure 3MiB": strings.Repeat(row, 3<<20/len(row)) + `{}`,
	} {
		m := response(b, `"result":{"content":[`+content+`],"isError":false}`)
		run := func(name string, do func()) {
			b.Run(name, func(b *testing.B) {
				b.SetBytes(int64(len(m.Raw())))
				b.ReportAllocs()
				for b.Loop() {
					do()
				}
			})
		}
		run(name+"/Modern", func() {
			protocol.ToModern(m, "tools/call", []byte(`{"name":"g"}`), false)
		})
		run(name+"/from a modern server", func() {
			protocol.ToModern(m, "tools/call", []byte(`{"name":"g"}`), true)
		})
		run(name+"/one walk", func() { _, _ = wire.Parse(m.Raw()) })
	}
}
