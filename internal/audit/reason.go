package audit

import (
	"encoding/json"
	"strings"
	"unicode"

	"mcpgateway/internal/text"
)

const (
	maxReason = 300 // bytes of a reason that are logged
	// maskedReason is the number of bytes that are masked before the reason is truncated, so that a
	// secret that crosses the limit is found.
	maskedReason = 4 << 10
)

// reason returns an explanation of an error or a missing result. The text of a backend's response
// is a payload, so it is used only if results are logged.
func (e *queuedRecord) reason(mask func(string) string) string {
	reason := e.Reason
	if reason == "" && e.Result != nil {
		reason = e.responseText()
	}
	if reason == "" {
		return ""
	}
	if len(reason) > maskedReason {
		reason = reason[:maskedReason] + "…" // lets mask find a truncated secret
	}
	return text.Truncate(strings.Map(replaceControl, mask(reason)), maxReason)
}

// responseText returns the first text of a result with isError, or the message of a JSON-RPC error.
func (e *queuedRecord) responseText() string {
	var response struct {
		Message string
		Content []struct{ Text string }
	}
	if e.Outcome != ToolError && e.Outcome != RPCError ||
		json.Unmarshal(e.Result, &response) != nil {
		return ""
	}
	if e.Outcome == RPCError {
		return response.Message
	}
	for _, c := range response.Content {
		if c.Text != "" {
			return c.Text
		}
	}
	return ""
}

// replaceControl replaces characters that control a terminal or hide text by spaces.
func replaceControl(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
		return ' '
	}
	return r
}
