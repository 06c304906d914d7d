package auditlog

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/callid"
)

// Each condition selects its records; several values of one are alternatives, and all conditions
// must hold.
func TestConditions(t *testing.T) {
	all := calls(0, 10)
	all[1].Client, all[1].Session = "cursor/1.0", "abcdef"
	all[2].Principal = "ci"
	all[3].Tool, all[3].Backend, all[3].BackendTool = "docs__echo", "docs", "echo"
	all[4].Outcome, all[4].ID = audit.Timeout, `"text-id"`
	all[5].Outcome, all[5].Dur = audit.ToolError, time.Second
	all[6].Method, all[6].Tool, all[6].BackendTool = "resources/read", "file:///a/b", "file:///a/b"
	all[7].Method, all[7].Tool = "prompts/get", "plan"
	all[8].Outcome = audit.Cancelled
	all[9].BackendID = "31415"
	for name, text := range map[string]string{
		"json": lines(t, all...), "text": textLines(t, all...),
	} {
		path := filepath.Join(t.TempDir(), name)
		store(t, path, text)
		l := open(t, path)
		for _, c := range []struct {
			name string
			q    Query
			want string
		}{
			{"all", Query{}, "0 1 2 3 \"text-id\" 5 6 7 8 9"},
			{"client", Query{Clients: []string{"cursor"}}, "1"},
			{"client with version", Query{Clients: []string{"cursor/1.0"}}, "1"},
			{"client by pattern", Query{Clients: []string{"cur*"}}, "1"},
			{"version only", Query{Clients: []string{"1.0"}}, ""},
			{"session", Query{Sessions: []string{"abcdef"}}, "1"},
			{"beginning of a session", Query{Sessions: []string{"abc"}}, "1"},
			{"principal", Query{Principals: []string{"ci"}}, "2"},
			{"tool", Query{Tools: []string{"docs__echo"}}, "3"},
			{"own name of a tool", Query{Tools: []string{"echo"}}, "3"},
			{"tools by pattern", Query{Tools: []string{"docs__*"}}, "3"},
			{"URI by pattern", Query{Tools: []string{"file://*"}}, "6"},
			{"several tools", Query{Tools: []string{"plan", "docs__echo"}}, "3 7"},
			{"backend", Query{Backends: []string{"docs"}}, "3"},
			{"two backends", Query{Backends: []string{"docs", "gh"}}, "0 1 2 3 \"text-id\" 5 6 7 8 9"},
			{"outcome", Query{Outcomes: []string{"timeout"}}, `"text-id"`},
			{"outcomes", Query{Outcomes: []string{"timeout", "tool_error"}}, `"text-id" 5`},
			{"outcomes by pattern", Query{Outcomes: []string{"*_error"}}, "5"},
			{"failed", Query{Outcomes: []string{Failed}}, `"text-id" 5`},
			{"call id", Query{IDs: []string{callid.Text(3)}}, "2"},
			{"client's id", Query{IDs: []string{"7"}}, "7"},
			{"client's id that is a string", Query{IDs: []string{"text-id"}}, `"text-id"`},
			{"backend's id", Query{IDs: []string{"31415"}}, "9"},
			{"slower", Query{Slower: 900 * time.Millisecond}, "5"},
			{"method", Query{Methods: []string{"prompts/get"}}, "7"},
			{"methods by pattern", Query{Methods: []string{"*/[gr]e*"}}, "6 7"},
			{"calls of tools", Query{Methods: []string{"tools/call"}}, "0 1 2 3 \"text-id\" 5 8 9"},
			{"since", Query{Since: began.Add(7 * time.Second)}, "7 8 9"},
			{"until", Query{Until: began.Add(2 * time.Second)}, "0 1"},
			{"all conditions", Query{Tools: []string{"docs__echo"}, Outcomes: []string{"timeout"}}, ""},
			{"both conditions", Query{Backends: []string{"gh"}, Outcomes: []string{"timeout"}},
				`"text-id"`},
		} {
			if got := ids(t, l, c.q, LinePosition{}); got != c.want {
				t.Errorf("%s, %s: got %s, want %s", name, c.name, got, c.want)
			}
		}
		if l.Skipped != (Skipped{}) {
			t.Errorf("%s: skipped %+v", name, l.Skipped)
		}
	}
}

// An outcome that does not exist is an error, and so is a pattern that is none.
func TestInvalidQueries(t *testing.T) {
	for _, outcome := range []string{"okay", "time*x", "OK"} {
		q := Query{Outcomes: []string{outcome}}
		var unknown *UnknownOutcomeError
		if err := q.Check(); !errors.As(err, &unknown) || unknown.Outcome != outcome {
			t.Errorf("%s: %v", outcome, err)
		}
	}
	q := Query{Tools: []string{"a[b"}}
	if err := q.Check(); err == nil || !strings.Contains(err.Error(), `"a[b" is not a pattern`) {
		t.Errorf("%v", err)
	}
}

// The search for text in blocks excludes no record that the patterns match.
func FuzzNeedles(f *testing.F) {
	f.Add("gh__*", "gh__find", "echo")
	f.Add(`a\*[b-d]?`, "a*cx", "é/\"")
	f.Add("find", "x find y", "\\")
	f.Fuzz(func(t *testing.T, pattern, tool, own string) {
		q := Query{Tools: []string{pattern}}
		m, err := newMatcher(&q)
		if err != nil {
			return
		}
		r := call(1)
		r.Tool, r.BackendTool = tool, own
		for _, text := range []string{lines(t, r), textLines(t, r)} {
			found := func(m *matcher) (n int) {
				s := lineScanner{matcher: m}
				_ = s.scan([]byte(text), func(*RecordLine, int) error { n++; return nil })
				return n
			}
			plain := *m
			plain.needles = nil
			if found(m) != found(&plain) {
				t.Errorf("pattern %q excludes %s by %q", pattern, text, m.needles)
			}
		}
	})
}

// The lines of a log about a backend at a time are found in both formats, without audit records.
func TestLogLines(t *testing.T) {
	for name, text := range map[string]string{
		"text": "time=2026-11-29T12:00:01.000Z level=WARN msg=\"stderr: one\" backend=gh\n" +
			"time=2026-11-29T12:00:01.500Z level=INFO msg=other backend=docs\n" +
			textLines(t, call(2)) + "panic: not a line of the log\n" +
			"time=2026-11-29T13:00:03.000+01:00 level=INFO msg=two backend=gh\n" +
			"time=2026-11-29T12:00:09.000Z level=INFO msg=late backend=gh\n",
		"json": `{"time":"2026-11-29T12:00:01.000000Z","level":"WARN","msg":"one","backend":"gh"}` +
			"\n" + lines(t, call(2)) +
			`{"time":"2026-11-29T12:00:03.000000Z","level":"INFO","msg":"two","backend":"gh"}` + "\n" +
			`{"time":"2026-11-29T12:00:03.000000Z","level":"INFO","msg":"no backend"}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		store(t, path, text)
		l := open(t, path)
		var got []string
		err := l.EachLogLine(t.Context(), "gh", began, began.Add(5*time.Second),
			func(r *RecordLine) error { got = append(got, r.Text(Msg)); return nil })
		if joined := strings.TrimPrefix(strings.Join(got, "|"), "stderr: "); err != nil ||
			joined != "one|two" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
