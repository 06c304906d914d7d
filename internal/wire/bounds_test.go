package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func TestParseBoundsTheDepth(t *testing.T) {
	for _, form := range []string{`{"jsonrpc":"2.0","id":1,"result":%s}`, `[%s]`} {
		if _, err := Parse(fmt.Appendf(nil, form, nested(maxDepth-1))); err != nil {
			t.Errorf(form+": at the bound: %v", "…", err)
		}
		if _, err := Parse(fmt.Appendf(nil, form, nested(maxDepth))); err == nil {
			t.Errorf(form+": no error beyond the bound", "…")
		}
	}
	objects := strings.Repeat(`{"a":`, maxComposedDepth) + "1" +
		strings.Repeat("}", maxComposedDepth)
	if !Members([]byte(objects), func(string, []byte, int) {}) {
		t.Error("objects at the bound are rejected")
	}
	if Members([]byte(`{"a":`+objects+"}"), func(string, []byte, int) {}) {
		t.Error("objects beyond the bound are accepted")
	}
	if got := outcome(t, strings.Repeat(`[{"a":`, 1<<20)); got != "-32700" {
		t.Errorf("deep and truncated: %s", got)
	}
}

// A part of a message that nests as deep as Parse allows may be put some levels deeper.
func TestComposedMessagesNestDeeper(t *testing.T) {
	const more = maxComposedDepth - maxDepth - 1 // a batch is one level deeper
	m := parseOrFail(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"a":%s}}`,
		nested(maxDepth-2)))
	deeper := func(part Part) []byte {
		return slices.Concat([]byte(strings.Repeat(`{"a":`, more)), m.Part(part),
			[]byte(strings.Repeat("}", more)))
	}
	result := m.Splice(Edit{PartResult, deeper(PartResult)})
	call := NewRequest("1", "m", deeper(PartResult))
	for _, composed := range []Message{
		result, call, NewResult("1", deeper(PartResult)), NewNotification("m", deeper(PartResult)),
		parseOrFail(t, `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`).
			Splice(Edit{PartParams, deeper(PartResult)}),
	} {
		if got := depth(composed.Raw()); got != maxComposedDepth-1 {
			t.Errorf("%d levels", got)
		}
		if _, err := Parse(composed.Raw()); err == nil {
			t.Error("Parse accepts the composed text from a peer")
		}
		part := PartResult
		if composed.Kind() != Response {
			part = PartParams
		}
		composed, ok := composed.Set([]byte("1"), "id")
		if members := 0; !ok || !Members(composed.Part(part), func(string, []byte, int) {
			members++
		}) || members != 1 {
			t.Errorf("Set: %t, then %d members", ok, members)
		}
		if string(EditObject(composed.Part(part), nil)) != string(deeper(PartResult)) {
			t.Error("EditObject changes a composed object")
		}
	}
	if n := len(NewBatch([]Message{result, call}).Elements()); n != 2 {
		t.Errorf("a batch of %d", n)
	}
	if value, _ := Lookup(call.Raw(), "params", "a", "a"); value == nil {
		t.Error("Lookup finds nothing in a composed message")
	}
}

// Parse finds the parts of a message that nests too deep, so that the error response has its id.
func TestParseTooDeep_F_DOOR_7(t *testing.T) {
	arrays, text := nested(1100), `{"]}\"":"[{"}`
	objects := strings.Repeat(`{"a":`, 1100) + text + strings.Repeat("}", 1100)
	mixed := strings.Repeat(`[1,{"b":`, 600) + text + strings.Repeat(` } , "]" ] `, 600)
	for _, deep := range []string{arrays, objects, mixed} {
		for _, form := range []string{
			`{"jsonrpc":"2.0","id":"x","method":"m","params":{"arguments":%s}}`,
			`{"params":%s,"method":"m","jsonrpc":"2.0","id":"x"}`,
			`{"jsonrpc":"2.0","id":"x","result":%s}`,
		} {
			if got := outcome(t, fmt.Sprintf(form, deep)); got != `-32600 id="x"` {
				t.Errorf(form+": %s", deep[:20], got)
			}
		}
		if got := outcome(t, "["+deep+"]"); got != "-32600" {
			t.Errorf("a batch: %s", got)
		}
		for _, bad := range []string{deep[:len(deep)-600], deep + "]", deep[:1500]} {
			if got := outcome(t, `{"jsonrpc":"2.0","id":"x","result":`+bad+`}`); got != "-32700" {
				t.Errorf("%.20s…, with a wrong closing bracket: %s", bad, got)
			}
		}
	}
	m, err := Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":%s}`, arrays))
	if err == nil || m.Method() != "m" {
		t.Errorf("the method of a request that nests too deep is %q, %v", m.Method(), err)
	}
}

func TestParseBoundsABatch(t *testing.T) {
	batch := func(n int) string { return "[1" + strings.Repeat(",1", n-1) + "]" }
	if got := outcome(t, batch(maxBatch)); got != "batch" {
		t.Errorf("at the bound: %s", got)
	}
	if got := outcome(t, batch(maxBatch+1)); got != "-32600" {
		t.Errorf("beyond the bound: %s", got)
	}
}

// No member makes Parse allocate in proportion to the message.
func TestParseCostIsLinear(t *testing.T) {
	for name, member := range map[string]string{
		"unknown":  `"x":0,`,
		"escaped":  `"\n":0,`,
		"re-cased": `"ID":0,`,
		"twice":    `"method":0,`,
	} {
		text := []byte("{" + strings.Repeat(member, 10_000) + `"id":1}`)
		if n := testing.AllocsPerRun(10, func() { Parse(text) }); n > 20 {
			t.Errorf("%s: %v allocations for 10,000 members", name, n)
		}
	}
}
