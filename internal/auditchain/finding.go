package auditchain

import "fmt"

// A FindingKind is the kind of a Finding.
type FindingKind string

// The kinds. All but the notes are problems.
const (
	changed    FindingKind = "changed"
	removed    FindingKind = "removed"
	inserted   FindingKind = "inserted"
	moved      FindingKind = "moved"
	restarted  FindingKind = "restarted"  // the chain begins again
	noHead     FindingKind = "head"       // the wanted head does not occur
	unreadable FindingKind = "unreadable" // a file
	incomplete FindingKind = "incomplete" // a note
	notLinked  FindingKind = "not_linked" // a note
)

// A Finding is a place at which the records are not a complete chain.
type Finding struct {
	Kind FindingKind `json:"kind"`
	Note bool        `json:"note"` // does not show that records were changed, removed or inserted
	File string      `json:"file"`
	Line int         `json:"line"` // from 1; 0 = not a line
	// Time is the time of the record in the line, as written there; "" = unknown.
	Time string `json:"time,omitempty"`
	// Lines is the number of consecutive lines to which the finding applies.
	Lines int    `json:"lines"`
	Text  string `json:"text"`
}

// find reports a finding, unless it continues the finding before.
func (v *ChainVerifier) find(k FindingKind, at position, format string, args ...any) {
	f := Finding{Kind: k, Note: k == incomplete || k == notLinked, File: at.file, Line: at.line,
		Time: at.time, Lines: 1, Text: fmt.Sprintf(format, args...)}
	if !f.Note {
		v.result.Problems++
	}
	if p := v.pending; p != nil && p.Kind == k && (k == moved || k == inserted) &&
		p.File == f.File && p.Line+p.Lines == f.Line {
		p.Lines++
		return
	}
	if p := v.pending; p != nil && p.Kind == k && p.File == f.File && p.Line == f.Line {
		return // the link of the next record shows the same change
	}
	v.flush()
	v.pending = &f
}

// flush reports the finding that further lines might have continued.
func (v *ChainVerifier) flush() {
	if v.pending != nil {
		v.report(*v.pending)
		v.pending = nil
	}
}

func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

func lines(n int) string {
	if n == 1 {
		return "1 line was"
	}
	return fmt.Sprintf("%d lines were", n)
}

func records(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("record %d was", from)
	}
	return fmt.Sprintf("records %d to %d were", from, to)
}
