package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// seed adds the texts of the other tests to a fuzz test.
func seed(add func(text string)) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"q":"\u003c"},"_meta":{"progressToken":"p"}}}`,
		`{"params":{"_meta":{"progressToken":0},"progressToken":1,"requestId":2,"cursor":"c"},"method":"m","jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":"ä","result":{"content":[{"type":"text","text":"\ud834\udd1e"}],"isError":true}}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-32600,"message":"m","data":[1e400,-0]}}`,
		`{"jsonrpc":"2.0","\u0069d":1,"Method":"m","method":"m","progressTo\u212aen":1}`,
		`[{"jsonrpc":"2.0","method":"m"},{"id":1}]`, `{"id":{},"ID":[1]}`,
		"{\n\"jsonrpc\" :\"2.0\",\r\n\"id\": -1.50e+2 }", "{\"id\":\"\xff\"}",
		nested(20), `{"a":{"b":[{},[],"",true,false,null,0.1]}} x`,
	} {
		add(text)
	}
	for _, c := range skimCases {
		if len(c.text) < 100 {
			add(c.text)
		}
	}
	for _, literal := range literals {
		add(literal)
	}
}

// A pair is a member of an object as encoding/json reads it.
type pair struct {
	key   string
	value []byte
}

// pairs returns the members of an object, nil if text is not an object.
func pairs(text []byte) (all []pair) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, _ := d.Token(); t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		all = append(all, pair{key.(string), value})
	}
	return all
}

// only returns the value of the member with this name; clear is false if several members have this
// name, or if one differs from it only in case.
func only(object []pair, name string) (value []byte, clear bool) {
	clear = true
	for _, p := range object {
		if p.key == name {
			clear = clear && value == nil
			value = p.value
		} else if strings.EqualFold(p.key, name) {
			clear = false
		}
	}
	return value, clear
}

func depth(text []byte) (deepest int) {
	n, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			n++
			deepest = max(deepest, n)
		case c == ']' || c == '}':
			n--
		}
	}
	return deepest
}

// FuzzParse compares Parse with encoding/json. Parse must reject everything that encoding/json
// rejects, find the parts that a case-sensitive decoder finds, and accept nothing that a
// case-insensitive decoder would read differently.
func FuzzParse(f *testing.F) {
	seed(func(text string) { f.Add([]byte(text)) })
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse(text)
		valid := json.Valid(text) && utf8.Valid(text)
		if valid && depth(text) > maxDepth {
			if e, ok := err.(*Error); !ok || e.Code != CodeInvalidRequest {
				t.Fatalf("nested too deep: %v", err)
			}
			return
		}
		if e, ok := err.(*Error); err != nil &&
			(!ok || e.Code != CodeParseError && e.Code != CodeInvalidRequest) {
			t.Fatalf("the error is %T %v", err, err)
		} else if (ok && e.Code == CodeParseError) == valid {
			t.Fatalf("valid: %v, error: %v", valid, err)
		}
		if !valid {
			return
		}
		flat := m.OneLine()
		breaks := strings.NewReplacer("\n", " ", "\r", " ") // line breaks occur only between tokens
		if describe(flat) != breaks.Replace(describe(m)) || bytes.ContainsAny(flat.Raw(), "\r\n") ||
			!json.Valid(flat.Raw()) {
			t.Fatalf("OneLine: %q", flat.Raw())
		}
		if m.Kind() == Batch {
			var want []json.RawMessage
			got := m.Elements()
			if json.Unmarshal(text, &want) != nil || len(want) != len(got) {
				t.Fatalf("a batch of %d, not %d", len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], bytes.TrimSpace(want[i])) {
					t.Fatalf("element %d: %q, want %q", i, got[i], want[i])
				}
			}
			return
		}
		top := pairs(text)
		id, _ := only(top, "id")
		if got := m.ID(); got != "" && err != nil && (got != ID(id) || !scalar(id)) {
			t.Fatalf("rejected with id %s, but the id is %s", got, id)
		}
		if err == nil && string(m.Raw()) == string(text) { // neither rejected nor repaired
			check(t, m, top)
		}
	})
}

func check(t *testing.T, m Message, top []pair) {
	params, meta := []pair(nil), []pair(nil)
	part := func(object []pair, name string, p Part) []byte {
		want, clear := only(object, name)
		if got := m.Part(p); !bytes.Equal(got, want) || !clear {
			t.Fatalf("%s: %q, want %q, clear: %v", name, got, want, clear)
		}
		return want
	}
	if version, clear := only(top, "jsonrpc"); Unquote(version) != "2.0" || !clear {
		t.Fatalf("the version is %s", version)
	}
	id, method := part(top, "id", PartID), part(top, "method", PartMethod)
	params = pairs(part(top, "params", PartParams))
	meta = pairs(part(params, "_meta", PartMeta))
	part(params, "name", PartName)
	part(params, "arguments", PartArguments)
	part(params, "requestId", PartRequestID)
	part(params, "cursor", PartCursor)
	part(params, "inputResponses", PartInputResponses)
	part(params, "requestState", PartRequestState)
	result, failure := part(top, "result", PartResult), part(top, "error", PartError)

	kind := Response
	switch {
	case method != nil && id != nil:
		kind = Request
	case method != nil:
		kind = Notification
	case (result == nil) == (failure == nil) || id == nil:
		t.Fatal("neither a call nor a response")
	}
	if m.Kind() != kind {
		t.Fatalf("kind %s, want %s", kinds[m.Kind()], kinds[kind])
	}
	token, clear := only(meta, "progressToken")
	if top, topClear := only(params, "progressToken"); top != nil && kind == Notification {
		token, clear = top, clear && topClear
	}
	if IsNull(token) {
		token = nil
	}
	if kind != Response && (!bytes.Equal(m.Part(PartToken), token) || !clear) {
		t.Fatalf("the token is %s, want %s", m.Part(PartToken), token)
	}
}

// FuzzSplice replaces any three parts: the result differs only in these parts, and its parts equal
// the parts that Parse finds.
func FuzzSplice(f *testing.F) {
	seed(func(text string) {
		f.Add([]byte(text), byte(PartID), byte(PartName), byte(PartToken), []byte(`4211`),
			[]byte(`"ä"`))
		f.Add([]byte(text), byte(PartRequestID), byte(PartMeta), byte(PartCursor),
			[]byte(`{"a":1}`), []byte("[\n]"))
	})
	f.Fuzz(func(t *testing.T, text []byte, a, b, c byte, x, y []byte) {
		m, err := Parse(text)
		if err != nil || !json.Valid(x) || !json.Valid(y) || IsNull(bytes.TrimSpace(x)) {
			return
		}
		before := describe(m)
		parts := []Part{Part(a) % Part(len(partNames)), Part(b) % Part(len(partNames)),
			Part(c) % Part(len(partNames))}
		edits := []Edit{{parts[0], x}, {parts[1], y}, {parts[2], x}}
		for i, p := range parts {
			// Replacements that change the kind of the message, or make it invalid, are mistakes
			// of the caller.
			deep := p == PartParams || p == PartMeta || p == PartResult
			if deep || p == PartMethod || p == PartError || p == PartID && !scalar(edits[i].Text) ||
				p == PartToken && IsNull(bytes.TrimSpace(edits[i].Text)) {
				return
			}
		}
		for _, e := range edits {
			if len(e.Text) != len(bytes.TrimSpace(e.Text)) || !utf8.Valid(e.Text) ||
				depth(e.Text) > 900 || depth(text) > 90 || len(e.Text) > maxID {
				return
			}
		}
		got := m.Splice(edits...)
		same(t, got)
		if describe(m) != before || got.Kind() != m.Kind() {
			t.Fatalf("Splice changed its receiver")
		}
		for _, long := range [][2]string{{longSpace, ""}, {"", longSpace}} { // in two pieces
			padded, err := Parse(slices.Concat([]byte(long[0]), m.Raw(), []byte(long[1])))
			if err != nil {
				t.Fatalf("%s with white space: %v", text, err)
			}
			spliced := padded.Splice(edits...)
			same(t, spliced)
			if string(spliced.Raw()) != long[0]+string(got.Raw())+long[1] {
				t.Fatalf("%s with white space became %s", text, spliced.Raw())
			}
		}
		// The reverse edits restore the original text.
		for i := range edits {
			edits[i].Text = m.Part(edits[i].Part)
		}
		if back := got.Splice(edits...); !bytes.Equal(back.Raw(), m.Raw()) {
			t.Fatalf("%s became %s and %s", text, got.Raw(), back.Raw())
		}
	})
}

var longSpace = strings.Repeat(" ", minShared)

func scalar(id []byte) bool {
	id = bytes.TrimSpace(id)
	return isID(id)
}

// FuzzSkimmer compares a Skimmer, which gets the text in three pieces, with Parse.
func FuzzSkimmer(f *testing.F) {
	seed(func(text string) { f.Add([]byte(text), uint(3), uint(9)) })
	f.Fuzz(func(t *testing.T, text []byte, a, b uint) {
		a %= uint(len(text)) + 1
		b = a + b%(uint(len(text))-a+1)
		var s Skimmer
		s.Write(text[:a])
		s.Write(text[a:b])
		s.Write(text[b:])
		m, err := Parse(text)
		if e, ok := err.(*Error); ok && e.Code == CodeParseError {
			same(t, NewErrorResponse(s.ID(), e)) // any id that can be sent
		} else if m.Kind() == Batch && s.ID() != "" || m.Kind() != Batch && s.ID() != m.ID() {
			t.Fatalf("cut at %d and %d: id %s, Parse returns %s", a, b, s.ID(), m.ID())
		}
	})
}

// FuzzUnquote compares Unquote and Quote with encoding/json.
func FuzzUnquote(f *testing.F) {
	seed(func(text string) { f.Add([]byte(text)) })
	f.Fuzz(func(t *testing.T, text []byte) {
		want := ""
		if len(text) > 0 && text[0] == '"' && text[len(text)-1] == '"' && utf8.Valid(text) {
			if json.Unmarshal(text, &want) != nil {
				want = ""
			}
		}
		if got := Unquote(text); got != want {
			t.Fatalf("Unquote(%s): %q, want %q", text, got, want)
		}
		if s := string(text); Unquote(Quote(s)) != string([]rune(s)) {
			t.Fatalf("Quote(%q): %s", s, Quote(s))
		}
	})
}
