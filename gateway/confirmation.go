package gateway

import (
	"fmt"
	"strings"

	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

// A confirmation is the state of the question whether a call may run (tools.confirm).
type confirmation uint8

const (
	confirmationNotNeeded  confirmation = iota
	confirmationAsked                   // the call continues with the client's next request
	confirmationAccepted                // by the user
	confirmationDeclined                // by the user
	confirmationCancelled               // the user has dismissed the question
	confirmationUnanswered              // no answer in time, or an error instead of one
	confirmationImpossible              // the client cannot be asked
)

// String returns the state as in audit records, "" for confirmationNotNeeded.
func (c confirmation) String() string {
	return [...]string{"", "asked", "accepted", "declined", "cancelled", "unanswered",
		"impossible"}[c]
}

// readAnswer reads the client's response to an elicitation with these params: accepted, declined or
// cancelled. A form of the gateway is accepted only if its field is true. An unknown action counts
// as cancelled.
func readAnswer(params, response []byte) confirmation {
	action, _ := wire.Lookup(response, "action")
	switch wire.Unquote(action) {
	case "accept":
		mode, _ := wire.Lookup(params, "mode")
		confirmed, _ := wire.Lookup(response, "content", "confirm")
		if wire.Unquote(mode) == "url" || string(confirmed) == "true" {
			return confirmationAccepted
		}
		return confirmationDeclined
	case "decline":
		return confirmationDeclined
	}
	return confirmationCancelled
}

// confirmationSchema is the form. It has a field, because VS Code cannot submit a form without
// fields; and the field has no default, because some clients fill in defaults without asking.
const confirmationSchema = `{"type":"object","properties":{"confirm":{"type":"boolean",` +
	`"title":"Run this call?","description":"Yes runs the call once, with these arguments."}},` +
	`"required":["confirm"]}`

const (
	// maxShownArguments bounds the arguments in the question, in bytes.
	maxShownArguments = 4 << 10
	// maxMaskedArguments bounds the arguments in which secrets are masked for the question, in
	// bytes.
	maxMaskedArguments = 16 << 10
)

// A confirmationForm is the question whether a call may run.
//
// The names and the arguments are untrusted text. They are JSON on one line each, with escapes
// instead of characters that are not visible, and are indented by four spaces, which clients that
// render Markdown show as code. Therefore they cannot imitate another line of the question. The
// message has no label ([backend]), which the elicitations of backends have: so a backend cannot
// imitate the question of the gateway.
type confirmationForm struct {
	backend, tool string // tool is the backend's own name
	arguments     []byte // nil = none
	mask          func(string) string
}

// params returns the params of the elicitation.
func (f confirmationForm) params() []byte {
	shown, isCut := f.shownArguments()
	message := fmt.Sprintf("The gateway requires that you confirm this call before it runs:\n\n"+
		"    backend: %s\n    tool: %s\n    arguments: %s\n",
		f.backend, text.Escape(truncate(f.mask(string(wire.Quote(f.tool))))), shown)
	if isCut {
		message += fmt.Sprintf("\nThe arguments have %d bytes. Only their beginning is shown.\n",
			len(f.arguments))
	}
	return wire.EditObject(nil, nil, wire.Member{Key: "message", Text: wire.Quote(message)},
		wire.Member{Key: "requestedSchema", Text: []byte(confirmationSchema)})
}

// shownArguments returns the arguments for the message. isCut is true if not all are shown.
func (f confirmationForm) shownArguments() (shown string, isCut bool) {
	if f.arguments == nil {
		return "none", false
	}
	compact, isCut := compactJSON(f.arguments, maxMaskedArguments)
	if isCut {
		compact += "…" // a secret in front of it is masked even if its end is missing
	}
	shown = text.Escape(f.mask(compact))
	if len(shown) > maxShownArguments {
		return text.Truncate(shown, maxShownArguments), true
	}
	return shown, isCut
}

// compactJSON returns JSON text without the white space between its tokens, and at most the first
// limit bytes of this text.
func compactJSON(value []byte, limit int) (compact string, isCut bool) {
	var b strings.Builder
	inString, escaped := false, false
	for _, c := range value {
		switch {
		case inString:
			inString = c != '"' || escaped
			escaped = c == '\\' && !escaped
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			continue
		default:
			inString = c == '"'
		}
		if b.Len() == limit {
			return strings.ToValidUTF8(b.String(), ""), true
		}
		b.WriteByte(c)
	}
	return b.String(), false
}
