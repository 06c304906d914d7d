package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func parseOrFail(t testing.TB, text string) Message {
	t.Helper()
	m, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%s): %v", text, err)
	}
	return m
}

// same fails if a message differs from the result of Parse for its text.
func same(t testing.TB, m Message) {
	t.Helper()
	again, err := Parse(m.Raw())
	if err != nil {
		t.Fatalf("%s cannot be parsed: %v", m.Raw(), err)
	}
	if got, want := describe(m), describe(again); got != want {
		t.Errorf("the parts of %s\n got %s\nwant %s", m.Raw(), got, want)
	}
	if m.hasTask != again.hasTask || m.hasStructured != again.hasStructured ||
		m.isVersion2 != again.isVersion2 || m.hasUnknownMembers != again.hasUnknownMembers {
		t.Errorf("%q: wrong notes", m.Raw())
	}
	if m.multiline != again.multiline {
		t.Errorf("%q: multiline is %v", m.Raw(), m.multiline)
	}
}

// members of a call, in any order
var members = []string{
	`"jsonrpc" :"2.0"`, `"id":7 `, `"method":"tools/call"`,
	"\"params\":{ \"name\":\"gh__search\", \"x\":1e400,\n\"_meta\":{\"progressToken\":\"p\",\"y\":\"\\u003c\"},\"arguments\":{\"id\":7} }",
}

func permute(all []string, visit func([]string)) {
	var from func(int)
	from = func(n int) {
		if n == len(all) {
			visit(all)
			return
		}
		for i := n; i < len(all); i++ {
			all[n], all[i] = all[i], all[n]
			from(n + 1)
			all[n], all[i] = all[i], all[n]
		}
	}
	from(0)
}

// TestSpliceEveryOrder replaces id, token and name of a call, for every order of the members and of
// the edits: the text differs only in these parts, and the parts of the result equal the parts that
// Parse finds.
func TestSpliceEveryOrder(t *testing.T) {
	old := map[string]string{"id": `7`, "token": `"p"`, "name": `"gh__search"`}
	parts := map[string]Part{"id": PartID, "token": PartToken, "name": PartName}
	for _, with := range []map[string]string{
		{"id": `4211`, "token": `4211`, "name": `"search"`},
		{"id": `""`, "token": `0`, "name": `"a name that is longer than the one before"`},
	} {
		permute(members, func(members []string) {
			text := "{" + strings.Join(members, ",") + "}"
			want := strings.NewReplacer(
				`"id":`+old["id"]+` `, `"id":`+with["id"]+` `, `:`+old["token"], `:`+with["token"],
				old["name"], with["name"]).Replace(text)
			m := parseOrFail(t, text)
			permute([]string{"id", "token", "name"}, func(order []string) {
				var edits []Edit
				for _, name := range order {
					edits = append(edits, Edit{parts[name], []byte(with[name])})
				}
				got := m.Splice(edits...)
				if string(got.Raw()) != want {
					t.Errorf("Splice(%v) of %s\n got %s\nwant %s", order, text, got.Raw(), want)
				}
				same(t, got)
				if edits[0].Part != parts[order[0]] {
					t.Error("Splice changed its arguments")
				}
				if back := got.Splice(Edit{PartName, []byte(old["name"])},
					Edit{PartID, []byte(old["id"])},
					Edit{PartToken, []byte(old["token"])}); string(back.Raw()) != text {
					t.Errorf("round trip\n got %s\nwant %s", back.Raw(), text)
				}
			})
			if string(m.Raw()) != text {
				t.Error("Splice changed its receiver")
			}
		})
	}
}

func TestSplice(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","_meta":{"progressToken":2}}}`
	tests := []struct {
		name, text string
		edits      []Edit
		want       string
	}{
		{"nothing", call, nil, call},
		{"absent part", call, []Edit{{PartCursor, []byte(`"c"`)}, {PartID, []byte(`9`)}},
			strings.Replace(call, `"id":1`, `"id":9`, 1)},
		{"the id of a result", `{"jsonrpc":"2.0","id":4211,"result":{"isError":true,"id":4211}}`,
			[]Edit{{PartID, []byte(`"x"`)}},
			`{"jsonrpc":"2.0","id":"x","result":{"isError":true,"id":4211}}`},
		{"the id after a result", `{"result":{"isError":true},"id":4211,"jsonrpc":"2.0"}`,
			[]Edit{{PartID, []byte(`1`)}},
			`{"result":{"isError":true},"id":1,"jsonrpc":"2.0"}`},
		{"the id of a cancellation",
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ä","reason":"é"}}`,
			[]Edit{{PartRequestID, []byte(`4211`)}},
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4211,"reason":"é"}}`},
		{"the token of progress",
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":4211}}`,
			[]Edit{{PartToken, []byte(`"p"`)}},
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"p"}}`},
		{"all of params", call, []Edit{{PartParams, []byte(`{"cursor":"c","_meta":{}}`)}},
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"cursor":"c","_meta":{}}}`},
		{"all of _meta", call, []Edit{{PartMeta, []byte(`{"a":1,"progressToken":3}`)},
			{PartID, []byte(`22`)}},
			`{"jsonrpc":"2.0","id":22,"method":"m","params":{"name":"a","_meta":{"a":1,"progressToken":3}}}`},
		{"all of a result", `{"jsonrpc":"2.0","id":1,"result":{"isError":true}}`,
			[]Edit{{PartResult, []byte(`{}`)}}, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"overlapping edits: the outer one applies", call,
			[]Edit{{PartName, []byte(`"b"`)}, {PartParams, []byte(`{}`)}, {PartToken, []byte(`5`)}},
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`},
		{"two edits of a part: the first applies", call,
			[]Edit{{PartID, []byte(`8`)}, {PartID, []byte(`9`)}},
			strings.Replace(call, `"id":1`, `"id":8`, 1)},
		{"a text with line breaks", call, []Edit{{PartArguments, nil}, {PartName, []byte("[\n]")}},
			strings.Replace(call, `"a"`, "[\n]", 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := parseOrFail(t, tt.text).Splice(tt.edits...)
			if string(got.Raw()) != tt.want {
				t.Errorf("\n got %s\nwant %s", got.Raw(), tt.want)
			}
			same(t, got)
		})
	}
}

// The text of a long message with a new id shares the unchanged beginning or end of the old text.
func TestSplice_SharesALongText(t *testing.T) {
	long := `{"text":"` + strings.Repeat("x", 2*minShared) + `"}`
	for text, shared := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"result":` + long + `}`:                                       1,
		`{"jsonrpc":"2.0","result":` + long + `,"id":1}`:                                       0,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","arguments":` + long + `}}`: 1,
		`{"method":"m","params":{"arguments":` + long + `,"name":"n"},"id":1,"jsonrpc":"2.0"}`: 0,
	} {
		m := parseOrFail(t, text)
		got := m.Splice(Edit{PartID, []byte(`"abc"`)}, Edit{PartName, []byte(`"name"`)})
		want := strings.NewReplacer(`"id":1`, `"id":"abc"`, `"n"`, `"name"`).Replace(text)
		if string(got.Raw()) != want || string(m.Raw()) != text {
			t.Errorf("%.50s: got %.50s", text, got.Raw())
		}
		same(t, got)
		pieces := got.Text()
		own := pieces[1-shared]
		if len(own) > 100 || !bytes.Contains(m.Raw(), pieces[shared]) ||
			testing.AllocsPerRun(10, func() { got.Text() }) != 0 {
			t.Errorf("%.50s: %d bytes were copied", text, len(own))
		}
		if back := got.Splice(Edit{PartID, []byte(`1`)},
			Edit{PartName, []byte(`"n"`)}); string(back.Raw()) != text {
			t.Errorf("%.50s: the way back leads to %.50s", text, back.Raw())
		}
		for what, m := range map[string]Message{"OneLine": got.OneLine(), "a batch": parseOrFail(t,
			string(parseOrFail(t, string(NewBatch([]Message{got}).Raw())).Elements()[0]))} {
			if string(m.Raw()) != want {
				t.Errorf("%.50s: %s is %.50s", text, what, m.Raw())
			}
		}
		drop := func(key string) bool { return key == "other" }
		if edited := got.EditResult(drop); string(edited.Raw()) != want {
			t.Errorf("%.50s: EditResult returns %.50s", text, edited.Raw())
		}
	}
}

func TestRawCannotBeAppendedTo(t *testing.T) {
	m := parseOrFail(t, `{"jsonrpc":"2.0","id":1,"method":"m"}`).Splice(Edit{PartCursor,
		[]byte("room")})
	a, b := append(m.Raw(), 'a'), append(m.Raw(), 'b')
	if a[len(a)-1] != 'a' || b[len(b)-1] != 'b' {
		t.Error("appending to Raw changes shared memory")
	}
}

func TestNewMessages(t *testing.T) {
	tests := []struct {
		got  Message
		want string
	}{
		{NewRequest("1", "m", nil), `{"jsonrpc":"2.0","id":1,"method":"m"}`},
		{NewRequest(`"a"`, "quo\"te<", []byte(`{}`)),
			`{"jsonrpc":"2.0","id":"a","method":"quo\"te<","params":{}}`},
		{NewNotification("n/m", []byte(`{"name":1}`)),
			`{"jsonrpc":"2.0","method":"n/m","params":{"name":1}}`},
		{NewResult("null", []byte(`{"isError":true}`)),
			`{"jsonrpc":"2.0","id":null,"result":{"isError":true}}`},
		{NewErrorResponse("", Errorf(-1, "%d<", 5)),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"5<"}}`},
		{NewErrorResponse("0", &Error{Code: 2, Data: []byte(`{"a": 1}`)}),
			`{"jsonrpc":"2.0","id":0,"error":{"code":2,"message":"","data":{"a":1}}}`},
	}
	for _, tt := range tests {
		if string(tt.got.Raw()) != tt.want {
			t.Errorf("got %s, want %s", tt.got.Raw(), tt.want)
		}
		same(t, tt.got)
	}
}

// NewBatch accepts a message of maxDepth levels, although it is one level deeper in the batch.
func TestNewBatchOfDeepMessages(t *testing.T) {
	deep := parseOrFail(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%s}`, nested(maxDepth-1)))
	lines := parseOrFail(t, "{\"jsonrpc\":\"2.0\",\n\"method\":\"m\"}")
	b := NewBatch([]Message{deep, lines})
	if want := "[" + string(deep.Raw()) + "," + string(lines.Raw()) +
		"]"; string(b.Raw()) != want || b.Kind() != Batch {
		t.Errorf("got %s", b.Raw())
	}
	if strings.Contains(string(b.OneLine().Raw()), "\n") {
		t.Error("OneLine left a line break")
	}
	same(t, NewBatch([]Message{lines, lines}))
	same(t, NewBatch(nil))
}

// Params that were not params of a received message may have members that Parse rejects.
func TestParseRequest(t *testing.T) {
	long := `"` + strings.Repeat("x", maxID) + `"`
	tests := []struct{ params, request, notification string }{
		{`{"name":"a"}`, "", ""},
		{`{"name":"a","name":"b"}`, `"name" occurs twice in params`,
			`"name" occurs twice in params`},
		{`{"Cursor":1}`, `"Cursor" in params differs from a known member only in case`,
			`"Cursor" in params differs from a known member only in case`},
		{`{"_meta":{"progressToken":` + long + `}}`, "a progress token has at most 4096 bytes",
			"a progress token has at most 4096 bytes"},
		{`{"progressToken":` + long + `}`, "", "a progress token has at most 4096 bytes"},
	}
	for _, tt := range tests {
		m, err := ParseRequest("7", "m", []byte(tt.params))
		checkComposed(t, Request, tt.params, tt.request, m, err)
		m, err = ParseNotification("m", []byte(tt.params))
		checkComposed(t, Notification, tt.params, tt.notification, m, err)
	}
	if m, err := ParseRequest("7", "m", nil); err != nil || m.Part(PartParams) != nil {
		t.Errorf("without params: %s, %v", m.Raw(), err)
	}
}

func checkComposed(t *testing.T, kind MessageKind, params, problem string, m Message, err error) {
	t.Helper()
	switch {
	case problem != "" && (err == nil || err.Error() != "Invalid request: "+problem):
		t.Errorf("%.40s: %v, want %s", params, err, problem)
	case problem == "" && (err != nil || m.Kind() != kind || string(m.Part(PartParams)) != params):
		t.Errorf("%.40s: %s, %v", params, m.Raw(), err)
	}
}

func TestReadError(t *testing.T) {
	tests := []struct {
		text string
		want Error
	}{
		{`{"code":-32042,"message":"no\n","data":{"x": 1e400}}`,
			Error{Code: -32042, Message: "no\n", Data: []byte(`{"x": 1e400}`)}},
		{`{"code":"E1","message":"m","Code":7,"data":null}`,
			Error{Message: "m", Data: []byte(`null`)}},
		{`{"code":1.5,"message":["m"]}`, Error{}},
		{`{"code":99999999999999999999}`, Error{}},
		{`"boom"`, Error{}}, {`null`, Error{}}, {``, Error{}},
	}
	for _, tt := range tests {
		e := ReadError([]byte(tt.text))
		if e.Code != tt.want.Code || e.Message != tt.want.Message ||
			string(e.Data) != string(tt.want.Data) {
			t.Errorf("ReadError(%s): %+v", tt.text, *e)
		}
	}
}

func TestEditResult(t *testing.T) {
	drop := func(key string) bool { return key == "x" }
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":7,"result":{}}`,
		`{"result":{"isError":true,"x":1},"jsonrpc":"2.0","id":"\u0069"}`,
		`{ "jsonrpc":"2.0" , "result" : { "a":[ 1 ], "is\u0045rror" : true, "y":{"isError":false}} , "id":7 }`,
		`{"jsonrpc":"2.0","result":{"isError":false,"iserror":false,"isError":true},"id":null}`,
		"{\"jsonrpc\":\"2.0\",\"result\":{\"a\":\n1},\"id\":7}",
		`{"jsonrpc":"2.0","id":7,"result":7}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":1}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"name":"x"}}`,
	} {
		for _, put := range [][]Member{nil, {{"isError", []byte("true")}},
			{{"z", []byte("{\n}")}, {"a", []byte("1")}}} {
			checkEditResult(t, parseOrFail(t, text), drop, put...)
		}
	}
	m := parseOrFail(t, `{"jsonrpc":"2.0","id":7,"error":{"code":1}}`)
	if got := m.EditResult(nil, Member{"a", []byte("1")}); string(got.Raw()) != string(m.Raw()) {
		t.Errorf("error response: %s", got.Raw())
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct {
		name, in, text string
		path           []string
		want           string // "" = not ok
	}{
		{"exchanged",
			`{"jsonrpc":"2.0","method":"m","params":{"a":1.0, "ref":{"type":"x","name":"\u0061"},"z":[1]}}`, `"b"`,
			[]string{"params", "ref", "name"},
			`{"jsonrpc":"2.0","method":"m","params":{"a":1.0, "ref":{"type":"x","name":"b"},"z":[1]}}`},
		{"added", `{"jsonrpc":"2.0","method":"m","params":{ "level":"info"}}`, `"l"`,
			[]string{"params", "logger"},
			`{"jsonrpc":"2.0","method":"m","params":{"logger":"l", "level":"info"}}`},
		{"added to an empty object", `{"jsonrpc":"2.0","method":"m","params":{}}`, `"l"`,
			[]string{"params", "logger"}, `{"jsonrpc":"2.0","method":"m","params":{"logger":"l"}}`},
		{"missing parent", `{"jsonrpc":"2.0","method":"m","params":{"ref":3}}`, `"l"`,
			[]string{"params", "ref", "name"}, ""},
		{"empty message", `{"jsonrpc":"2.0","method":"m"}`, `"l"`,
			[]string{"params", "ref", "name"}, ""},
		{"twice", `{"jsonrpc":"2.0","method":"m","params":{"x":1,"\u0078":2}}`, `"l"`,
			[]string{"params", "x"}, ""},
		{"duplicate parent", `{"jsonrpc":"2.0","method":"m","params":{"x":{"y":1},"x":{"y":2}}}`,
			`"l"`, []string{"params", "x", "y"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := m.Set([]byte(c.text), c.path...)
			switch {
			case ok != (c.want != ""):
				t.Errorf("ok = %v", ok)
			case ok && string(got.Raw()) != c.want:
				t.Errorf("got  %s\nwant %s", got.Raw(), c.want)
			case !ok && string(got.Raw()) != c.in:
				t.Errorf("changed: %s", got.Raw())
			case ok:
				if value, _ := Lookup(got.Raw(), c.path...); string(value) != c.text {
					t.Errorf("Lookup returns %s", value)
				}
			}
		})
	}
}
