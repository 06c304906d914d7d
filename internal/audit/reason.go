package audit

import (
	"encoding/json"
	"strings"
	"unicode"
)

const (
	maxReason    = 300     // bytes of a reason that are logged
	maskedReason = 4 << 10 // bytes of it that are masked, so that a secret is seen whole where the reason is cut
)

// reason returns why a call has no result, or none but an error. The text of a backend's answer is a
// payload: it is used only if results are logged.
func (e *entry) reason(mask func(string) string) string {
	text := e.Reason
	if text == "" && e.Result != nil {
		text = e.responseText()
	}
	if text == "" {
		return ""
	}
	if len(text) > maskedReason {
		text = text[:maskedReason] + "…" // where mask knows the beginning of a secret
	}
	text = strings.Map(replaceControl, mask(text))
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

// responseText returns the first text of a result with isError, or the message of an error.
func (e *entry) responseText() string {
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

// replaceControl replaces characters that control a terminal or hide text.
func replaceControl(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
		return ' '
	}
	return r
}
