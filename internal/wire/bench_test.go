package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// texts are typical messages of a gateway: a small call, a call with a page of text, and results
// that are large because of their strings or because of their structure.
var texts = []struct{ name, text string }{
	{"call 32B",
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"gh__search","arguments":{"query":"thirty-two bytes"},"_meta":{"progressToken":7}}}`},
	{"call 4KiB",
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"gh__search","arguments":{"text":"` + lines(4<<10) + `"}}}`},
	{"response 32B",
		`{"jsonrpc":"2.0","id":4211,"result":{"content":[{"type":"text","text":"0123456789abcdef0123456789abcdef"}]}}`},
	{"code 64KiB", `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` +
		strings.Repeat(
			`\tif err != nil {\n\t\treturn fmt.Errorf(\"reading %q: %w\", name, err)\n\t}\n`,
			64<<10/78) + `"}]}}`},
	{"base64 1MiB",
		`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 1<<20/24) + `"}]}}`},
	{"strings 1MiB", `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` +
		lines(1<<20) + `"}],"isError":false}}`},
	{"structure 64KiB", `{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":[` +
		manyMembers(64<<10) + `]}}`},
	{"pretty 64KiB", pretty(`{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":[` +
		manyMembers(32<<10) + `]}}`)},
	{"non-ASCII 64KiB", `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` +
		strings.Repeat("Größe ☃ und Maß, ", 64<<10/22) + `"}]}}`},
}

// lines returns n bytes of text like that of tools, with an escape in each line.
func lines(n int) string {
	return strings.Repeat(
		`The quick brown fox jumps over the lazy dog, as it is written in line 17.\n`, n/75)
}

func manyMembers(n int) string {
	const row = `{"id":12345,"ok":true,"path":"src/a.go","score":0.25,"tags":["a","bc"],"next":null}`
	return strings.Repeat(row+",", n/len(row)) + row
}

func pretty(text string) string {
	b, err := json.MarshalIndent(json.RawMessage(text), "", "  ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// BenchmarkParse compares Parse with json.Valid, which only validates, and with the rejected
// alternative: decoding the envelope.
func BenchmarkParse(b *testing.B) {
	for _, bb := range texts {
		text := []byte(bb.text)
		b.Run(bb.name+"/Parse", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bb.name+"/json.Valid", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if !json.Valid(text) {
					b.Fatal("no JSON")
				}
			}
		})
		b.Run(bb.name+"/json.Unmarshal", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				var m struct{ ID, Params, Result json.RawMessage }
				if json.Unmarshal(text, &m) != nil {
					b.Fatal("no JSON")
				}
			}
		})
	}
}

// BenchmarkSplice compares Splice with the rejected alternative: decoding and encoding the
// envelope, which also loses the order of its members.
func BenchmarkSplice(b *testing.B) {
	for _, bb := range texts {
		m := parseOrFail(b, bb.text)
		ours, name := []byte(`4211`), []byte(`"search"`)
		b.Run(bb.name+"/Splice", func(b *testing.B) {
			b.SetBytes(int64(len(bb.text)))
			b.ReportAllocs()
			for b.Loop() {
				m.Splice(Edit{PartID, ours}, Edit{PartToken, ours}, Edit{PartName, name})
			}
		})
		b.Run(bb.name+"/json.Marshal", func(b *testing.B) {
			b.SetBytes(int64(len(bb.text)))
			b.ReportAllocs()
			for b.Loop() {
				var envelope map[string]json.RawMessage
				if json.Unmarshal(m.Raw(), &envelope) != nil {
					b.Fatal("no JSON")
				}
				envelope["id"] = ours
				if _, err := json.Marshal(envelope); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSkimmer(b *testing.B) {
	for _, bb := range texts {
		text := []byte(bb.text)
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				var s Skimmer
				s.Write(text)
				if s.ID() == "" {
					b.Fatal("no id")
				}
			}
		})
	}
}

func BenchmarkOneLine(b *testing.B) {
	for _, bb := range texts {
		m := parseOrFail(b, bb.text)
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.text)))
			b.ReportAllocs()
			for b.Loop() {
				m.OneLine()
			}
		})
	}
}

// Reading parts of a message does not allocate. Replacing the id of a short message allocates only
// the new text, and that of a long message one of the two pieces of its text and a pointer.
func TestAllocations(t *testing.T) {
	ours, name := []byte(`4211`), []byte(`"search"`)
	for _, tt := range texts {
		text := []byte(tt.text)
		m := parseOrFail(t, tt.text)
		pieces := 1.0
		if len(text) >= minShared {
			pieces = 2
		}
		for _, c := range []struct {
			what string
			max  float64
			do   func()
		}{
			{"Parse", 0, func() { Parse(text) }},
			{"Splice", pieces, func() {
				m.Splice(Edit{PartID, ours}, Edit{PartToken, ours}, Edit{PartName, name})
			}},
			{"OneLine", 1, func() { m.OneLine() }},
			{"Part, IsToolError", 0, func() {
				m.Part(PartParams)
				m.Part(PartToken)
				m.IsToolError()
			}},
		} {
			if n := testing.AllocsPerRun(20, c.do); n > c.max {
				t.Errorf("%s of %s: %v allocations, not %v", c.what, tt.name, n, c.max)
			}
		}
	}
	// Escapes in a key need one small buffer.
	escaped := fmt.Appendf(nil,
		`{"jsonrpc":"2.0","\u0069d":1,"meth\u006fd":"m","x":[{"\u0069d":2}]}`)
	if n := testing.AllocsPerRun(20, func() { Parse(escaped) }); n > 2 {
		t.Errorf("Parse with escaped keys: %v allocations", n)
	}
}
