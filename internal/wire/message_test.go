package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"
)

// The comment of Message explains the size.
func TestSizeOfAMessageIsAMultipleOf16(t *testing.T) {
	if size := unsafe.Sizeof(Message{}); math.MaxInt > math.MaxInt32 && size%16 != 0 {
		t.Errorf("%d bytes", size)
	}
}

func TestLineIsTheTextOfOneLine(t *testing.T) {
	for _, text := range []string{`{"jsonrpc":"2.0","method":"m"}`,
		"{\"jsonrpc\":\"2.0\",\r\n\"method\":\"m\"}\n"} {
		m := parseOrFail(t, text)
		line := m.Line().Bytes()
		if string(line) != string(m.OneLine().Raw()) || cap(line) != len(line) {
			t.Errorf("%q, want %q", line, m.OneLine().Raw())
		}
	}
}

func TestOneLine(t *testing.T) {
	pretty := "\r\n{\r\n  \"jsonrpc\": \"2.0\",\n\t\"id\": 1.50,\r \"result\": {\n\"isError\": true, \"t\": \"a\\n\\u2028\u2028<\"\n}}\n"
	m := parseOrFail(t, pretty)
	flat := m.OneLine()
	if bytes.ContainsAny(flat.Raw(), "\r\n") {
		t.Errorf("a line break is left: %q", flat.Raw())
	}
	if want := strings.NewReplacer("\n", " ", "\r",
		" ").Replace(strings.TrimRight(pretty, "\n")); string(flat.Raw()) != want {
		t.Errorf("other bytes have changed: %q", flat.Raw())
	}
	same(t, flat)
	if string(m.Raw()) != pretty {
		t.Error("OneLine changed its receiver")
	}
	if again := flat.OneLine(); &again.Raw()[0] != &flat.Raw()[0] {
		t.Error("a message without line breaks was copied")
	}
	for _, text := range []string{"[1,\n2]", "{\n}", "\n17"} {
		m, _ := Parse([]byte(text))
		if flat := m.OneLine(); bytes.Contains(flat.Raw(), []byte("\n")) ||
			flat.Kind() != m.Kind() {
			t.Errorf("OneLine of %q: %q", text, flat.Raw())
		}
	}
}

func TestElements(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{`[]`, nil}, {` [ ] `, nil}, {`[1]`, []string{`1`}},
		{" [ 1 ,\n\"a,b\\\"]\" , [2,[3]],{\"x\":[4]} , null ] ",
			[]string{`1`, `"a,b\"]"`, `[2,[3]]`, `{"x":[4]}`, `null`}},
		{`{}`, nil}, {``, nil}, {`[1`, nil}, {`[1,]`, nil}, {`[1]]`, nil}, {`[1] 2`, nil},
		{"[\"\xff\"]", nil},
	}
	for _, tt := range tests {
		var got []string
		for _, e := range Elements([]byte(tt.text)) {
			got = append(got, string(e))
			if _ = append(e, '!'); cap(e) != len(e) {
				t.Errorf("Elements(%q): appending to %s changes the array", tt.text, e)
			}
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Elements(%q): %q, want %q", tt.text, got, tt.want)
		}
	}
	n := 0
	if !EachElement([]byte(`[1,2,3,nonsense`), func([]byte) bool { n++; return n < 2 }) || n != 2 {
		t.Errorf("EachElement did not stop after 2 elements, but after %d", n)
	}
}

func TestMembers(t *testing.T) {
	text := []byte(` { "a" : 1 , "\u0061":[2], "é\n":{"a":3},"":"" } `)
	want := []string{"a=1", "a=[2]", `é\n={"a":3}`, `=""`}
	var got []string
	ok := Members(text, func(key string, value []byte, at int) {
		got = append(got, fmt.Sprintf("%s=%s", strings.ReplaceAll(key, "\n", `\n`), value))
		if !bytes.HasPrefix(text[at:], value) {
			t.Errorf("%s is not at offset %d", value, at)
		}
	})
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v", got, ok)
	}
	for text, want := range map[string]bool{
		`{}`: true, "{}\n": true, `{"a":1,"a":1}`: true,
		``: false, `[]`: false, `null`: false, `{`: false, `{"a":1`: false, `{"a":1,}`: false,
		`{"a":1}}`: false, "{\"a\":\"\xff\"}": false,
	} {
		if got := Members([]byte(text), func(string, []byte, int) {}); got != want {
			t.Errorf("Members(%q): %v", text, got)
		}
	}
}

func TestIsObjectAndIsNull(t *testing.T) {
	for _, text := range []string{`{}`, " \n{"} {
		if !IsObject([]byte(text)) {
			t.Errorf("IsObject(%q) is true", text)
		}
	}
	for _, text := range []string{``, ` `, `[{}]`, `"{"`, `null`} {
		if IsObject([]byte(text)) {
			t.Errorf("IsObject(%q) is false", text)
		}
	}
	if !IsNull(nil) || !IsNull([]byte(`null`)) || IsNull([]byte(`"null"`)) || IsNull([]byte(`{}`)) {
		t.Error("IsNull")
	}
}

var literals = []string{
	``, `"`, `""`, `"a"`, `"ä☃𝄞"`, `"\"\\\/\b\f\n\r\t"`, `"\u0041\u00e4\u2603"`, `"\ud834\udd1e"`,
	`"\uD834\uDD1E!"`,
	`"\ud834"`, `"\ud834x"`, `"\ud834\n"`, `"\udd1e\ud834"`, `"\ud834\ud834\udd1e"`,
	`"\ud834\u0041"`, `"\u0000"`, `"\uffff\ufffd"`,
	`"a\"`, `"a"b"`, `"a`, `a"`, `"\x"`, `"\u12"`, "\"\n\"", "\"\xff\"", `1`, `null`, `true`, `{}`,
	`["a"]`, `"a" `, `12345678"`,
}

// TestUnquote compares with encoding/json, which replaces invalid UTF-8 and skips white space; a
// part of a message has neither.
func TestUnquote(t *testing.T) {
	for _, literal := range literals {
		var want string
		if json.Unmarshal([]byte(literal), &want) != nil || strings.HasSuffix(literal, " ") ||
			strings.Contains(literal, "\xff") {
			want = ""
		}
		if got := Unquote([]byte(literal)); got != want {
			t.Errorf("Unquote(%s): %q, want %q", literal, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"": `""`, "plain-Name_1": `"plain-Name_1"`, "<a> & 'b'": `"<a> & 'b'"`, "\"\\": `"\"\\"`,
		"\x00\n": `"\u0000\n"`,
		"ä☃𝄞":    `"ä☃𝄞"`, "\xff": `"\ufffd"`, "12345678\"": `"12345678\""`,
	} {
		if got := string(Quote(s)); got != want {
			t.Errorf("Quote(%q): %s, want %s", s, got, want)
		}
	}
	if got := string(Encode(map[string]any{"a": "<\n>",
		"b": json.RawMessage("[1,\n2]")})); got != `{"a":"<\n>","b":[1,2]}` {
		t.Errorf("Encode: %s", got)
	}
}

func TestEncodePanicsOnMistakes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Encode(func() {})
}

// TestPlain inserts each byte at each offset, alone and before other bytes, and compares the result
// with a scan byte by byte.
func TestPlain(t *testing.T) {
	slow := func(text []byte) (n int, ascii bool) {
		for ascii = true; n < len(text) && text[n] != '"' && text[n] != '\\' &&
			text[n] >= ' '; n++ {
			ascii = ascii && text[n] < 0x80
		}
		return n, ascii
	}
	for _, size := range []int{1, 7, 8, 9, 16, 17, 31, 32, 33, 49} {
		for at := range size {
			for c := range 256 {
				text := bytes.Repeat([]byte{'x'}, size)
				text[at] = byte(c)
				for _, last := range []byte{'x', '"', '\\', 0x1f, 0x20, 0x23, 0x80, 0xff, 0xa2,
					0xdc, 0} {
					text[size-1] = last
					n, ascii := skipPlain(text, 0)
					if wantN, want := slow(text); n != wantN || ascii != want {
						t.Fatalf("skipPlain(%q): %d, %v; want %d, %v", text, n, ascii, wantN, want)
					}
				}
			}
		}
	}
}

// TestStrings inserts each pair of valid and invalid pieces of a string at each offset, and
// compares the result with encoding/json.
func TestStrings(t *testing.T) {
	pieces := []string{`a`, `abcdefgh`, `\\`, `\"`, `\n`, `\/`, `\u0041`, `\u00g0`, `\x`, `\`, `"`,
		`]`, `#`, "\n", "\x1f", "\x7f", `ä`, `☃`, "\xff", "\x80"}
	for at := range 35 {
		for _, one := range pieces {
			for _, other := range pieces {
				for _, between := range []string{"", "xyz", `\t`, `\t\t`} {
					text := []byte(`["` + strings.Repeat("x", at) + one + between + other + `y","` +
						"z" + `"]`)
					got, want := Elements(text) != nil, json.Valid(text) && utf8.Valid(text)
					if got != want {
						t.Fatalf("%q: read %v, valid %v", text, got, want)
					}
				}
			}
		}
	}
}

func TestAccessorsUnquoteNamesAndKeepIDs(t *testing.T) {
	m := parseOrFail(t,
		`{"jsonrpc":"2.0","id":"\u0069","method":"a\/b","params":{"name":"\u00e4","requestId":-0,"_meta":{"progressToken":"\u0070"}}}`)
	if m.Method() != "a/b" || m.Name() != "ä" || m.ID() != `"\u0069"` || m.RequestID() != `-0` ||
		m.Token() != `"\u0070"` {
		t.Errorf("method %s, name %s, id %s, requestId %s, token %s", m.Method(), m.Name(), m.ID(),
			m.RequestID(), m.Token())
	}
	m = parseOrFail(t, `{"jsonrpc":"2.0","id":1,"result":{"name":"x"}}`)
	if m.Method() != "" || m.Name() != "" || m.RequestID() != "" || m.Token() != "" ||
		m.IsToolError() {
		t.Error("a response has parts of a request")
	}
}

// Creating an invalid message is a mistake in the program and panics.
func TestNewMessagesMustBeJSON(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewResult("1", []byte(`{`))
}
