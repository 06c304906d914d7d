package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var traceMembers = []Member{
	{Key: "traceparent", Text: []byte(`"00-aa-bb-01"`)}, {Key: "tracestate", Text: []byte(`"k=v"`)},
}

const traceText = `"traceparent":"00-aa-bb-01","tracestate":"k=v"`

// TestSetMeta compares the whole text: only the members of _meta differ from the original.
func TestSetMeta(t *testing.T) {
	call := func(params string) string {
		return `{"jsonrpc":"2.0", "id" :7,"method":"tools/call","params":` + params + ` ,"x":1e400}`
	}
	long := `"arguments":{"text":"` + strings.Repeat("a", 2*minShared) + `"}`
	for _, c := range []struct{ name, before, after string }{
		{"no _meta", `{ "name":"echo"}`, `{"_meta":{` + traceText + `}, "name":"echo"}`},
		{"empty params", `{ }`, `{"_meta":{` + traceText + `} }`},
		{"empty _meta", `{"_meta":{ },"name":"echo"}`, `{"_meta":{` + traceText + ` },"name":"echo"}`},
		{"null _meta", `{"_meta":null,"name":"echo"}`,
			`{"_meta":{` + traceText + `},"name":"echo"}`},
		{"other members", `{"name":"echo","_meta": {"progressToken": 1.50 , "y":"\u003c"}}`,
			`{"name":"echo","_meta": {` + traceText + `,"progressToken": 1.50 , "y":"\u003c"}}`},
		{"replaced at its place",
			`{"_meta":{"y":1, "traceparent" : "00-cc-dd-00" ,"progressToken":"p"},"name":"echo"}`,
			`{"_meta":{"tracestate":"k=v","y":1, "traceparent" : "00-aa-bb-01" ,` +
				`"progressToken":"p"},"name":"echo"}`},
		{"both replaced, in another order",
			`{"_meta":{"tracestate":[], "z":[ ],"traceparent":{"a":1}},"name":"echo"}`,
			`{"_meta":{"tracestate":"k=v", "z":[ ],"traceparent":"00-aa-bb-01"},"name":"echo"}`},
		{"a key with an escape", `{"_meta":{"trace\u0070arent":1,"tracestate":""}}`,
			`{"_meta":{"trace\u0070arent":"00-aa-bb-01","tracestate":"k=v"}}`},
		{"a key twice", `{"_meta":{"traceparent":1, "z":1.0, "traceparent":2}}`,
			`{"_meta":{` + traceText + `,"z":1.0}}`},
		{"long, shared end", `{"_meta":{"progressToken":5},` + long + `}`,
			`{"_meta":{` + traceText + `,"progressToken":5},` + long + `}`},
		{"long, shared beginning", `{` + long + `,"_meta":{"progressToken":5}}`,
			`{` + long + `,"_meta":{` + traceText + `,"progressToken":5}}`},
		{"_meta is no object", `{"_meta":"x"}`, `{"_meta":"x"}`},
		{"params are no object", `[1]`, `[1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parseOrFail(t, call(c.before))
			got := m.SetMeta(traceMembers...)
			if string(got.Raw()) != call(c.after) {
				t.Errorf("got  %.300s\nwant %.300s", got.Raw(), call(c.after))
			}
			if string(m.Raw()) != call(c.before) {
				t.Errorf("the original has changed: %.300s", m.Raw())
			}
			same(t, got)
			// a text in two pieces is changed in the same way
			spliced := m.Splice(Edit{PartID, []byte("4711")}).SetMeta(traceMembers...)
			want := strings.Replace(call(c.after), `"id" :7`, `"id" :4711`, 1)
			if string(spliced.Raw()) != want {
				t.Errorf("after Splice: got  %.300s\nwant %.300s", spliced.Raw(), want)
			}
			same(t, spliced)
		})
	}
}

// TestSetMetaOfOtherMessages does not change responses, notifications and requests without params.
func TestSetMetaOfOtherMessages(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{"_meta":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":{},"progress":1}}`,
	} {
		if got := parseOrFail(t, text).SetMeta(traceMembers...); string(got.Raw()) != text {
			t.Errorf("%s became %s", text, got.Raw())
		}
	}
}

func FuzzSetMeta(f *testing.F) {
	seed(func(text string) { f.Add([]byte(text), []byte(`"00-aa-bb-01"`)) })
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"traceparent":1,"a":2}}}`),
		[]byte(`"x"`))
	f.Fuzz(func(t *testing.T, text, value []byte) {
		m, err := Parse(text)
		if err != nil || m.Kind() != Request || !json.Valid(value) || !bytes.Equal(value,
			bytes.TrimSpace(value)) || value[0] != '"' || !utf8.Valid(value) || depth(text) > 90 {
			return
		}
		got := m.SetMeta(Member{Key: "traceparent", Text: value})
		same(t, got)
		params := m.Part(PartParams)
		if meta := m.Part(PartMeta); !IsObject(params) || meta != nil && !IsNull(meta) &&
			!IsObject(meta) {
			if !bytes.Equal(got.Raw(), text) {
				t.Fatalf("%s became %s", text, got.Raw())
			}
			return
		}
		if set, _ := Lookup(got.Part(PartMeta), "traceparent"); !bytes.Equal(set, value) {
			t.Fatalf("%s became %s", text, got.Raw())
		}
		for _, p := range []Part{PartID, PartMethod, PartName, PartArguments, PartToken} {
			if !bytes.Equal(got.Part(p), m.Part(p)) {
				t.Fatalf("part %d of %s became %s", p, text, got.Part(p))
			}
		}
	})
}
