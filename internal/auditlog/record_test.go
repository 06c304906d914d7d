package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/callid"
)

// The fields of a record are read from both formats.
func TestFieldsOfRecords(t *testing.T) {
	full := call(7)
	full.Principal, full.ID, full.Outcome, full.Code = "ci", `"a\"b"`, audit.RPCError, -32602
	full.Reason, full.Confirmation, full.Counts = "no = such \"x\"", "accepted", audit.Counts{
		Rounds: 1, Progress: 2, Reconnects: 3}
	full.Arguments, full.Result = []byte(`{"q":"a b","n":[1,{"x":"}"}]}`), []byte(`[]`)
	for _, text := range []string{lines(t, full), textLines(t, full)} {
		r, ok := Parse([]byte(strings.TrimSpace(text)))
		if !ok || !r.isCall() {
			t.Fatalf("not a record: %s", text)
		}
		for f, want := range map[Attribute]string{
			Call: callid.Text(8), Session: "5e55", Client: "claude/2.0", Principal: "ci",
			ID: `"a\"b"`, BackendID: "1007", Tool: "gh__find", Backend: "gh", BackendTool: "find",
			Outcome: "rpc_error", Code: "-32602", Reason: "no = such \"x\"", Rounds: "1",
			Progress: "2", Reconnects: "3", Confirmation: "accepted", BytesIn: "10",
			BytesOut: "20", Arguments: `{"q":"a b","n":[1,{"x":"}"}]}`, Result: "[]", Method: "",
		} {
			if got := r.Text(f); got != want {
				t.Errorf("field %d: got %q, want %q in %s", f, got, want, text)
			}
		}
		if r.Duration() != 3*time.Millisecond || r.Queued() != time.Millisecond ||
			r.Number(Code) != -32602 || r.MethodName() != "tools/call" {
			t.Errorf("%v, %v, %d in %s", r.Duration(), r.Queued(), r.Number(Code), text)
		}
		if at := r.TimeOf(Time); !at.Equal(full.Time) {
			t.Errorf("time %v in %s", at, text)
		}
	}
}

func TestTimesEqualThoseOfPackageTime(t *testing.T) {
	for at := time.Date(1969, 12, 30, 23, 59, 59, 999_999_000, time.UTC); at.Year() < 2105; at =
		at.Add(1234567 * time.Second) {
		text := at.Format("2006-01-02T15:04:05.000000Z")
		if us, ok := micros([]byte(text)); !ok || us != at.UnixMicro() {
			t.Fatalf("%s: %d, want %d", text, us, at.UnixMicro())
		}
	}
	for text, want := range map[string]int64{
		"2026-11-29T12:00:00+01:00":   began.Add(-time.Hour).UnixMicro(),
		"2026-02-31T12:00:00.000000Z": -1, "2026-11-29T24:00:00.000000Z": -1, "": -1,
		"2026-11-2xT12:00:00.000000Z": -1, "yesterday": -1,
	} {
		if us, ok := micros([]byte(text)); ok != (want >= 0) || ok && us != want {
			t.Errorf("%s: %d, %t", text, us, ok)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Millisecond, "0.069": 69 * time.Microsecond,
		"12.5": 12500 * time.Microsecond,
		"-1":   -time.Millisecond, "1e3": time.Second, "1.2345": 1234500 * time.Nanosecond,
		"x": 0, "": 0, ".5": 500 * time.Microsecond, "1e400": 0, "99999999999999": 0,
	} {
		r := RecordLine{Line: []byte(text + " "), isText: true}
		r.values[DurMS] = valueRange{0, int32(len(text))}
		if got := r.duration(DurMS); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Whatever a line contains, it is a record or not; the fields of a JSON object are those that
// encoding/json finds, if no key occurs twice.
func FuzzParse(f *testing.F) {
	f.Add([]byte(lines(f, call(1))))
	f.Add([]byte(textLines(f, call(1))))
	for _, text := range []string{"", "{}", "{", `{"id":`, `{"id":"\`, `{"id":"\\"}`, `{"id":1,}`,
		`{"id":{"a":[}]}}`, "time=", `time=x msg="`, `{ "id" : 1 , "id":2 }`, `{"i\u0064":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		line = bytes.ReplaceAll(line, []byte("\n"), nil)
		r, ok := Parse(line)
		if ok {
			for f := range numFields {
				_, _, _ = r.Text(f), r.Number(f), r.TimeOf(f)
			}
			r.Duration()
		}
		var want map[string]json.RawMessage
		d := json.NewDecoder(bytes.NewReader(line))
		if len(line) == 0 || line[0] != '{' || line[len(line)-1] != '}' || !json.Valid(line) ||
			d.Decode(&want) != nil || bytes.Count(line, []byte(`"id"`)) > 1 ||
			bytes.Contains(line, []byte(`\u`)) {
			return
		}
		if !ok {
			t.Fatalf("not a record: %q", line)
		}
		if id, has := want["id"]; has != r.Has(ID) || has && !bytes.Equal(id, r.raw(ID)) {
			t.Errorf("id %q, want %q in %q", r.raw(ID), id, line)
		}
	})
}

// A quantile differs from the exact one by at most 1.6 %.
func TestQuantilesAreWithinTheStatedError(t *testing.T) {
	var h durationHistogram
	const n = 100_000
	for i := 1; i <= n; i++ {
		h.add(time.Duration(i) * 77 * time.Microsecond)
	}
	for _, q := range []float64{0.5, 0.95, 0.99, 1} {
		exact := q * n * 77
		got := float64(h.quantile(q).Microseconds())
		if got < exact*0.984 || got > exact*1.016 {
			t.Errorf("quantile %v: %v, want %v", q, got, exact)
		}
	}
	for _, d := range []time.Duration{-1, 0, 63 * time.Microsecond, 1 << 62} {
		var one durationHistogram
		one.add(d)
		want := max(0, min(d, longestDuration))
		if got := one.quantile(0.5); got < want*98/100 || got > want*102/100 {
			t.Errorf("%v: %v", d, got)
		}
	}
	var empty durationHistogram
	if empty.quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	h = durationHistogram{}
	for i := range uint64(64) {
		h.add(1 << i)
	}
	if size := len(h.counts) * 4; size > 6<<10 {
		t.Errorf("%d bytes", size)
	}
}

// Groups are bounded: further names are counted together.
func TestGroupsAreBounded(t *testing.T) {
	stats, err := NewStats("tool")
	if err != nil {
		t.Fatal(err)
	}
	for n := range maxGroups + 100 {
		one := call(n)
		one.Tool = fmt.Sprint("tool", n)
		r, _ := Parse([]byte(strings.TrimSpace(lines(t, one))))
		stats.Add(&r)
	}
	groups := stats.Groups()
	if len(groups) != maxGroups+1 || groups[0].Name != OtherGroup || groups[0].Calls != 100 {
		t.Errorf("%d groups, the first %+v", len(groups), groups[0])
	}
}
