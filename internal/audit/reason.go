package audit

import (
	"encoding/json"
	"strings"
	"unicode"
)

const (
	maxReason  = 300     // bytes of a reason that are logged
	heldReason = 4 << 10 // bytes of it that are masked, so that a secret is seen whole where the reason is cut
)

// reason returns why a call has no result, or none but an error. The text of a backend's answer is a
// payload: it is used only if results are logged.
func (e *entry) reason(mask func(string) string) string {
	text := e.Reason
	if text == "" && e.Result != nil {
		text = e.said()
	}
	if text == "" {
		return ""
	}
	if len(text) > heldReason {
		text = text[:heldReason] + "…" // where mask knows the beginning of a secret
	}
	text = strings.Map(plain, mask(text))
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

// said returns the first text of a result with isError, or the message of an error.
func (e *entry) said() string {
	var answer struct {
		Message string
		Content []struct{ Text string }
	}
	if e.Outcome != ToolError && e.Outcome != RPCError || json.Unmarshal(e.Result, &answer) != nil {
		return ""
	}
	if e.Outcome == RPCError {
		return answer.Message
	}
	for _, c := range answer.Content {
		if c.Text != "" {
			return c.Text
		}
	}
	return ""
}

// plain replaces characters that control a terminal or hide text.
func plain(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
		return ' '
	}
	return r
}
