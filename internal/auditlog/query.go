package auditlog

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/protocol"
)

// A Query selects records. A zero field selects all records; of several patterns, one has to match.
// Patterns are globs, in which * also matches slashes.
type Query struct {
	Since, Until time.Time     // end of the call: from Since, before Until
	Slower       time.Duration // calls that took at least as long, including the time in queues

	Clients    []string // name/version, or name
	Principals []string
	Sessions   []string // the id, or its beginning
	Tools      []string // exposed or own name of the tool or prompt, or URI
	Backends   []string
	Outcomes   []string // see Outcomes and Failed
	Methods    []string // MCP methods
	IDs        []string // id of the call, of the client, of the backend or of the trace
}

// Outcomes are the outcomes of records.
var Outcomes = []string{
	string(audit.OK), string(audit.ToolError), string(audit.RPCError), string(audit.Cancelled),
	string(audit.Timeout), string(audit.BackendLost), string(audit.NotRun), string(audit.Rejected),
	string(audit.InputRequired),
}

// Failed is a value of Query.Outcomes: the outcomes for which IsFailure returns true.
const Failed = "failed"

// IsFailure reports whether an outcome is a failure: the client got neither a result without
// isError nor a question, and has not cancelled the call itself.
func IsFailure(outcome []byte) bool {
	switch audit.Outcome(outcome) {
	case audit.OK, audit.Cancelled, audit.InputRequired:
		return false
	}
	return true
}

// manyNeedles bounds the texts for which a block of lines is searched. With more, the lines are
// decoded instead.
const manyNeedles = 4

// A matcher decides which records a Query selects.
type matcher struct {
	since, until int64 // microseconds since 1970; 0 = no limit
	slower       time.Duration
	conditions   []condition
	// Each selected line contains one of the needles, as they are in the file; empty = not known.
	needles  [][]byte
	logLines bool // lines that are not audit records are selected too
}

// A condition is that one of the patterns matches one of the fields.
type condition struct {
	fields      []Attribute
	patterns    []pattern
	absent      string // value of a record without the fields; "" = none
	beforeSlash bool   // the part of the value before a slash may match instead
}

// A pattern is a glob.
type pattern struct {
	text   string
	isGlob bool
}

func newMatcher(q *Query) (*matcher, error) {
	m := &matcher{slower: q.Slower}
	if !q.Since.IsZero() {
		m.since = q.Since.UnixMicro()
	}
	if !q.Until.IsZero() {
		m.until = q.Until.UnixMicro()
	}
	outcomes, err := checkOutcomes(q.Outcomes)
	if err != nil {
		return nil, err
	}
	sessions := slices.Clone(q.Sessions)
	for i, s := range sessions {
		sessions[i] = s + "*"
	}
	for _, c := range []struct {
		condition
		texts []string
	}{
		{condition{fields: []Attribute{Client}, beforeSlash: true}, q.Clients},
		{condition{fields: []Attribute{Principal}}, q.Principals},
		{condition{fields: []Attribute{Session}}, sessions},
		{condition{fields: []Attribute{Tool, BackendTool}}, q.Tools},
		{condition{fields: []Attribute{Backend}}, q.Backends},
		{condition{fields: []Attribute{Outcome}}, outcomes},
		{condition{fields: []Attribute{Method}, absent: protocol.MethodToolsCall}, q.Methods},
		{condition{fields: []Attribute{Call, ID, BackendID, TraceID}}, idTexts(q.IDs)},
	} {
		if len(c.texts) == 0 {
			continue
		}
		for _, text := range c.texts {
			if _, err := path.Match(text, ""); err != nil {
				return nil, fmt.Errorf("%q is not a pattern: %w", text, err)
			}
			isGlob := strings.ContainsAny(text, `*?[\`)
			c.patterns = append(c.patterns, pattern{withoutSlashes(text, isGlob), isGlob})
		}
		m.conditions = append(m.conditions, c.condition)
		if c.absent == "" {
			m.addNeedles(c.texts)
		}
	}
	return m, nil
}

// idTexts adds to ids the form in which an id that is a string is recorded.
func idTexts(ids []string) (all []string) {
	for _, id := range ids {
		all = append(all, id, `"`+id+`"`)
	}
	return all
}

// checkOutcomes replaces Failed, and returns an error for a pattern that matches no outcome.
func checkOutcomes(patterns []string) (all []string, err error) {
	for _, p := range patterns {
		if p == Failed {
			for _, o := range Outcomes {
				if IsFailure([]byte(o)) {
					all = append(all, o)
				}
			}
			continue
		}
		matches := func(outcome string) bool { ok, _ := path.Match(p, outcome); return ok }
		if !slices.ContainsFunc(Outcomes, matches) {
			return nil, &UnknownOutcomeError{p}
		}
		all = append(all, p)
	}
	return all, nil
}

// An UnknownOutcomeError is the error of a Query with an outcome that no record can have.
type UnknownOutcomeError struct{ Outcome string }

func (e *UnknownOutcomeError) Error() string { return fmt.Sprintf("no outcome is %q", e.Outcome) }

// addNeedles replaces the needles by those of patterns if these are longer.
func (m *matcher) addNeedles(patterns []string) {
	var all [][]byte
	shortest := 0
	for _, p := range patterns {
		needle := literalOf(p)
		if len(needle) < 3 {
			return
		}
		if slices.ContainsFunc(all, func(n []byte) bool { return string(n) == needle }) {
			continue
		}
		all = append(all, []byte(needle))
		if shortest == 0 || len(needle) < shortest {
			shortest = len(needle)
		}
	}
	if len(all) > manyNeedles {
		return
	}
	for _, n := range m.needles {
		if len(n) >= shortest {
			return
		}
	}
	m.needles = all
}

// literalOf returns the longest text that each line with a match of a pattern contains, whatever
// the format of the line: characters that may be escaped in a line are not part of it.
func literalOf(p string) (longest string) {
	isPlain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '_' || c == '-' || c == '.'
	}
	if at := strings.IndexAny(p, `[\`); at >= 0 {
		p = p[:at]
	}
	for from := 0; from < len(p); {
		to := from
		for to < len(p) && isPlain(p[to]) {
			to++
		}
		if to-from > len(longest) {
			longest = p[from:to]
		}
		from = to + 1
	}
	return longest
}

// withoutSlashes replaces slashes in a glob, and in a value that is compared with it, because they
// have a meaning for path.Match.
func withoutSlashes(s string, isGlob bool) string {
	if !isGlob {
		return s
	}
	return strings.ReplaceAll(s, "/", "\x00")
}

func (p pattern) matches(value []byte) bool {
	if !p.isGlob {
		return string(value) == p.text
	}
	ok, _ := path.Match(p.text, withoutSlashes(string(value), true))
	return ok
}

func (c *condition) matches(r *RecordLine) bool {
	found := false
	for _, f := range c.fields {
		if !r.Has(f) {
			continue
		}
		found = true
		value := r.bytes(f)
		if c.matchesValue(value) {
			return true
		}
		if c.beforeSlash {
			if at := bytes.IndexByte(value, '/'); at >= 0 && c.matchesValue(value[:at]) {
				return true
			}
		}
	}
	return !found && c.absent != "" && c.matchesValue([]byte(c.absent))
}

func (c *condition) matchesValue(value []byte) bool {
	for _, p := range c.patterns {
		if p.matches(value) {
			return true
		}
	}
	return false
}

// matches reports whether a record is selected.
func (m *matcher) matches(r *RecordLine) bool {
	if !m.logLines && !r.isCall() {
		return false
	}
	if m.since != 0 || m.until != 0 {
		us, ok := micros(r.bytes(Time))
		if !ok || us < m.since || m.until != 0 && us >= m.until {
			return false
		}
	}
	if m.slower > 0 && r.Duration() < m.slower {
		return false
	}
	for i := range m.conditions {
		if !m.conditions[i].matches(r) {
			return false
		}
	}
	return true
}

// Literal returns the pattern that matches only text.
func Literal(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(text)
}

// Check returns an error if a pattern is not valid: an *UnknownOutcomeError for an outcome.
func (q *Query) Check() error {
	_, err := newMatcher(q)
	return err
}
