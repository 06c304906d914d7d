package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

var kinds = map[MessageKind]string{Invalid: "invalid", Request: "request",
	Notification: "notification",
	Response:     "response", Batch: "batch"}

var partNames = [...]string{
	PartID: "id", PartMethod: "method", PartParams: "params", PartName: "name",
	PartArguments: "arguments",
	PartMeta:      "meta", PartToken: "token", PartRequestID: "requestId", PartCursor: "cursor",
	PartInputResponses: "inputResponses", PartRequestState: "requestState",
	PartResult: "result", PartError: "error",
}

// describe returns the kind and the parts of a message as text, in the order of Part.
func describe(m Message) string {
	var b strings.Builder
	b.WriteString(kinds[m.Kind()])
	for p, name := range partNames {
		if text := m.Part(Part(p)); text != nil {
			fmt.Fprintf(&b, " %s=%s", name, text)
		}
	}
	if m.IsToolError() {
		b.WriteString(" failed")
	}
	return b.String()
}

// outcome returns the result of Parse as text: the message, or the error code and the id.
func outcome(t *testing.T, text string) string {
	t.Helper()
	m, err := Parse([]byte(text))
	if err == nil {
		return describe(m)
	}
	e, ok := err.(*Error)
	if !ok {
		t.Fatalf("Parse(%s): the error is a %T, not a *Error", text, err)
	}
	if m.Kind() != Invalid {
		t.Errorf("Parse(%s): an error, but the kind is %s", text, kinds[m.Kind()])
	}
	if m.ID() != "" {
		return fmt.Sprintf("%d id=%s", e.Code, m.ID())
	}
	return fmt.Sprint(e.Code)
}

type parseCase struct{ name, text, want string }

func testParse(t *testing.T, cases []parseCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := outcome(t, c.text); got != c.want {
				t.Errorf("Parse(%s)\n got %s\nwant %s", c.text, got, c.want)
			}
		})
	}
}

func TestParseSetsKind(t *testing.T) {
	testParse(t, []parseCase{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `request id=1 method="ping"`},
		{"notification", `{"jsonrpc":"2.0","method":"a/b"}`, `notification method="a/b"`},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, `response id=1 result={"a":1}`},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`,
			`response id=1 error={"code":1,"message":""}`},
		{"error without an id", `{"jsonrpc":"2.0","id":null,"error":{}}`,
			`response id=null error={}`},
		{"result not an object", `{"jsonrpc":"2.0","id":1,"result":[]}`, `response id=1 result=[]`},
		{"result null", `{"jsonrpc":"2.0","id":1,"result":null}`, `response id=1 result=null`},
		{"batch", `[{"jsonrpc":"2.0","method":"a"},17]`, `batch`},
		{"empty batch", ` [ ] `, `batch`},
		{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, `request id=1 method=""`},
		{"unknown members", `{"x":{"id":9},"jsonrpc":"2.0","id":1,"method":"m","id2":2}`,
			`request id=1 method="m"`},
		{"white space everywhere",
			"\r\n\t{ \"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"method\" : \"m\" } \n",
			`request id=1 method="m"`},
		{"escapes in keys", `{"jsonrpc":"\u0032.0","\u0069d":1,"m\u0065thod":"\u006d"}`,
			`request id=1 method="\u006d"`},
	})
}

// An id is text: numbers are not rounded, types are not confused (case ID-05), and a message with
// the id null is a request.
func TestParseKeepsIDs(t *testing.T) {
	for _, id := range []string{
		`0`, `-1`, `-0`, `1`, `"1"`, `""`, `9007199254740993`, `1e400`, `1.0`, `-1E+2`, `null`,
		`"null"`, `"ä ☃ 𝄞"`,
		`"\u00e4\ud834\udd1e"`, `"\ud834"`, `"\"id\":2"`, `"init-1"`,
		`"` + strings.Repeat("x", maxID-2) + `"`,
	} {
		for _, form := range []string{
			`{"jsonrpc":"2.0","id":%s,"method":"initialize"}`,
			`{"method":"m","id": %s ,"jsonrpc":"2.0"}`,
			`{"jsonrpc":"2.0","id":%s,"result":{}}`, `{"error":{},"jsonrpc":"2.0","id":%s}`,
		} {
			if m, err := Parse(fmt.Appendf(nil, form, id)); err != nil || m.ID() != ID(id) {
				t.Errorf(form+": got id %s, %v", id, m.ID(), err)
			}
		}
	}
	testParse(t, []parseCase{
		{"true", `{"jsonrpc":"2.0","id":true,"method":"m"}`, `-32600`},
		{"an object", `{"jsonrpc":"2.0","id":{},"method":"m"}`, `-32600`},
		{"an array", `{"jsonrpc":"2.0","id":[1],"method":"m"}`, `-32600`},
		{"too long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID-1) + `","method":"m"}`,
			`-32600`},
	})
}

func TestParseReadsTheIDOfInvalidRequests(t *testing.T) {
	testParse(t, []parseCase{
		{"no version", `{"id":7,"method":"m"}`, `-32600 id=7`},
		{"another version", `{"jsonrpc":"1.0","id":"a","method":"m"}`, `-32600 id="a"`},
		{"version as number", `{"jsonrpc":2.0,"id":7,"method":"m"}`, `-32600 id=7`},
		{"no method", `{"jsonrpc":"2.0","id":7}`, `-32600 id=7`},
		{"method null", `{"jsonrpc":"2.0","id":7,"method":null}`, `-32600 id=7`},
		{"method a number", `{"jsonrpc":"2.0","id":7,"method":1}`, `-32600 id=7`},
		{"method and result", `{"jsonrpc":"2.0","id":7,"method":"m","result":{}}`, `-32600 id=7`},
		{"method and error", `{"jsonrpc":"2.0","id":7,"method":"m","error":{}}`, `-32600 id=7`},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, `-32600`},
		{"id after the problem", `{"jsonrpc":"2.0","method":"a","method":"b","id":7}`,
			`-32600 id=7`},
		{"invalid id after another problem", `{"jsonrpc":"2.0","method":"a","method":"b","id":{}}`,
			`-32600`},
		{"invalid id before a valid one", `{"jsonrpc":"2.0","id":[7],"ID":7,"method":"m"}`,
			`-32600`},
		{"id too long, and another problem", `{"jsonrpc":"2.0","id":"` +
			strings.Repeat("x", maxID) + `","Method":"m"}`, `-32600`},
		{"null", `null`, `-32600`}, {"a number", `17`, `-32600`}, {"a string", `"{}"`, `-32600`},
		{"true", `true`, `-32600`},
		{"an empty object", `{}`, `-32600`},
	})
}

// A message is rejected if a case-insensitive reader, or a reader that uses the first duplicate,
// would read it differently.
func TestParseRejectsAmbiguousMessages(t *testing.T) {
	testParse(t, []parseCase{
		{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, `-32600`},
		{"three ids", `{"jsonrpc":"2.0","id":1,"id":1,"method":"m","id":1}`, `-32600`},
		{"two ids, one escaped", `{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"m"}`, `-32600`},
		{"two versions", `{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}`, `-32600 id=1`},
		{"two methods", `{"jsonrpc":"2.0","id":1,"method":"m","method":"m"}`, `-32600 id=1`},
		{"two params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a"},"params":{}}`,
			`-32600 id=1`},
		{"two results", `{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`, `-32600 id=1`},
		{"two names", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}`,
			`-32600 id=1`},
		{"two arguments",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{},"arguments":{}}}`,
			`-32600 id=1`},
		{"two _meta", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{},"_meta":{}}}`,
			`-32600 id=1`},
		{"two tokens",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":1}}}`, `-32600 id=1`},
		{"Method", `{"jsonrpc":"2.0","id":1,"Method":"m"}`, `-32600 id=1`},
		{"Method and method", `{"jsonrpc":"2.0","id":1,"method":"m","METHOD":"n"}`, `-32600 id=1`},
		{"M\\u0065thod", `{"jsonrpc":"2.0","id":1,"method":"m","M\u0065thod":"n"}`, `-32600 id=1`},
		{"ID and id", `{"jsonrpc":"2.0","id":1,"ID":2,"method":"m"}`, `-32600 id=1`},
		{"jſonrpc, a long s", `{"jsonrpc":"2.0","jſonrpc":"1.0","id":1,"method":"m"}`,
			`-32600 id=1`},
		{"Name", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","Name":"b"}}`,
			`-32600 id=1`},
		{"Arguments", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","Arguments":{}}}`,
			`-32600 id=1`},
		{"ProgressToken",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"ProgressToken":1}}}`,
			`-32600 id=1`},
		{"the Kelvin sign",
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"_meta\":{\"progressTo\u212aen\":1}}}", `-32600 id=1`},
		{"the Kelvin sign, escaped",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressTo\u212aen":1}}}`,
			`-32600 id=1`},
	})
	testParse(t, []parseCase{
		{"arguments are not parsed",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"id":1,"ID":2,"id":3}}}`,
			`request id=1 method="m" params={"arguments":{"id":1,"ID":2,"id":3}} arguments={"id":1,"ID":2,"id":3}`},
		{"results are not parsed, except isError",
			`{"jsonrpc":"2.0","id":1,"result":{"Name":1,"Name":2,"IsError":true,"isError":true,"isError":false}}`,
			`response id=1 result={"Name":1,"Name":2,"IsError":true,"isError":true,"isError":false}`},
	})
}

func TestParseFindsParams(t *testing.T) {
	testParse(t, []parseCase{
		{"call",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":[1,{"name":2}]},"_meta":{"progressToken":"p","x":1}}}`,
			`request id=1 method="tools/call" params={"name":"t","arguments":{"a":[1,{"name":2}]},"_meta":{"progressToken":"p","x":1}} name="t" arguments={"a":[1,{"name":2}]} meta={"progressToken":"p","x":1} token="p"`},
		{"array", `{"jsonrpc":"2.0","id":1,"method":"m","params":[{"name":"x"}]}`,
			`request id=1 method="m" params=[{"name":"x"}]`},
		{"null", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`,
			`request id=1 method="m" params=null`},
		{"a string", `{"jsonrpc":"2.0","id":1,"method":"m","params":"p"}`,
			`request id=1 method="m" params="p"`},
		{"empty", `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`,
			`request id=1 method="m" params={}`},
		{"space before params",
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\" :\n {\"name\": \"t\"} }",
			"request id=1 method=\"m\" params={\"name\": \"t\"} name=\"t\""},
		{"_meta not an object",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":[{"progressToken":1}]}}`,
			`request id=1 method="m" params={"_meta":[{"progressToken":1}]} meta=[{"progressToken":1}]`},
		{"params before the method",
			`{"params":{"cursor":"c"},"method":"tools/list","id":1,"jsonrpc":"2.0"}`,
			`request id=1 method="tools/list" params={"cursor":"c"} cursor="c"`},
		{"cancellation",
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1","reason":"r"}}`,
			`notification method="notifications/cancelled" params={"requestId":"1","reason":"r"} requestId="1"`},
	})
}

func TestParseFindsTheProgressToken(t *testing.T) {
	testParse(t, []parseCase{
		{"request: in _meta",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":0}}}`,
			`request id=1 method="m" params={"_meta":{"progressToken":0}} meta={"progressToken":0} token=0`},
		{"request: not in params",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"progressToken":1}}`,
			`request id=1 method="m" params={"progressToken":1}`},
		{"request: both",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"progressToken":1,"_meta":{"progressToken":2}}}`,
			`request id=1 method="m" params={"progressToken":1,"_meta":{"progressToken":2}} meta={"progressToken":2} token=2`},
		{"notification: in params",
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4211,"progress":1}}`,
			`notification method="notifications/progress" params={"progressToken":4211,"progress":1} token=4211`},
		{"notification: both",
			`{"jsonrpc":"2.0","method":"m","params":{"progressToken":1,"_meta":{"progressToken":2}}}`,
			`notification method="m" params={"progressToken":1,"_meta":{"progressToken":2}} meta={"progressToken":2} token=1`},
		{"null", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":null}}}`,
			`request id=1 method="m" params={"_meta":{"progressToken":null}} meta={"progressToken":null}`},
		{"too long", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"` +
			strings.Repeat("x", maxID-1) + `"}}}`, `-32600 id=1`},
	})
}

func TestParseReadsResponses(t *testing.T) {
	testParse(t, []parseCase{
		{"failed tool", `{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`,
			`response id=1 result={"content":[],"isError":true} failed`},
		{"not failed",
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"isError":true}],"isError":false}}`,
			`response id=1 result={"content":[{"isError":true}],"isError":false}`},
		{"JSON-RPC 1.0: result", `{"jsonrpc":"2.0","id":1,"error":null,"result":{"isError":true}}`,
			`response id=1 result={"isError":true} failed`},
		{"JSON-RPC 1.0: error", `{"jsonrpc":"2.0","id":"é","result":null,"error":{"code":5}}`,
			`response id="é" error={"code":5}`},
		{"JSON-RPC 1.0: both null", `{"jsonrpc":"2.0","id":1,"result":null,"error":null}`,
			`response id=1 result=null`},
		{"both", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, `-32600 id=1`},
		{"only error null", `{"jsonrpc":"2.0","id":1,"error":null}`, `response id=1 error=null`},
		{"error a string", `{"jsonrpc":"2.0","id":1,"error":"boom"}`, `response id=1 error="boom"`},
		{"error a string, result null", `{"jsonrpc":"2.0","id":1,"result":null,"error":"boom"}`,
			`response id=1 error="boom"`},
	})
}

func TestParseRejectsInvalidJSON(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `[`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`,
		`{a:1}`, `{'a':1}`, `[1,]`, `[,1]`, `[1 2]`, `[1`,
		`nul`, `nullx`, `True`, `NaN`, `Infinity`, `undefined`, `01`, `-`, `+1`, `.5`, `1.`, `1e`,
		`1e+`, `-a`, `0x1`, `1_0`,
		`"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\"`, "\"a\nb\"", "\"\x00\"", "\"\t\"", "\x00",
		"{\"a\":1}\x00",
		`{} {}`, `{}x`, `[]]`, `{}//c`, `/**/{}`, "\xEF\xBB\xBF{}", "\u00a0{}",
		`{"jsonrpc":"2.0","method":"m"},`,
	} {
		if got := outcome(t, text); got != "-32700" {
			t.Errorf("Parse(%q): got %s", text, got)
		}
	}
}

func TestParseNamesInvalidUTF8(t *testing.T) {
	for _, bad := range []string{"\xb0\xa1", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
		"\xe2\x82"} {
		for _, form := range []string{
			`{"jsonrpc":"2.0","id":1,"result":{"text":"a%sb"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"%s":1}}`, `["%s"]`, `"\n%s"`,
			`{"jsonrpc":"2.0","id":"%s","method":"m"}`, `"0123456789abcdef%s"`,
		} {
			text := fmt.Sprintf(form, bad)
			_, err := Parse([]byte(text))
			if e, ok := err.(*Error); !ok || e.Code != CodeParseError || !errors.Is(err, ErrUTF8) {
				t.Errorf("Parse(%q): got %v", text, err)
			}
			if _, err := Parse(ReplaceInvalidUTF8([]byte(text))); errors.Is(err, ErrUTF8) {
				t.Errorf("Parse(ReplaceInvalidUTF8(%q)): got %v", text, err)
			}
		}
	}
	if _, err := Parse([]byte("{\"\xff\"")); errors.Is(err, ErrUTF8) {
		t.Error("invalid JSON with invalid UTF-8 counts as repairable")
	}
}

func TestParseAcceptsUnusualMessages(t *testing.T) {
	testParse(t, []parseCase{
		{"huge numbers",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1e400,"b":-1e-400,"c":123456789012345678901234567890}}}`,
			`request id=1 method="m" params={"arguments":{"a":1e400,"b":-1e-400,"c":123456789012345678901234567890}} arguments={"a":1e400,"b":-1e-400,"c":123456789012345678901234567890}`},
		{"lone surrogates",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"\ud800","arguments":"\udc00\ud800x"}}`,
			`request id=1 method="m" params={"name":"\ud800","arguments":"\udc00\ud800x"} name="\ud800" arguments="\udc00\ud800x"`},
		{"noncharacters, NUL and DEL",
			"{\"jsonrpc\":\"2.0\",\"id\":\"\uffff\x7f\\u0000\u2028\",\"method\":\"m\"}",
			"request id=\"\uffff\x7f\\u0000\u2028\" method=\"m\""},
	})
}
