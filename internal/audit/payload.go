package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

const (
	payloadLimit = 64 << 10 // bytes of a payload that are logged
	// payloadMargin is the number of further bytes that are masked, so that a secret that crosses
	// the limit is found.
	payloadMargin = 4 << 10
)

// payload returns the value to log for raw, the beginning of a payload of size bytes. A JSON
// payload stays JSON, which slog's JSON handler writes on one line. A truncated payload and invalid
// JSON become a string.
func payload(raw []byte, size int, mask func(string) string) slog.Value {
	out := redact(raw, mask)
	whole := len(raw) == size
	if whole && len(out) <= payloadLimit {
		if json.Valid(raw) {
			return slog.AnyValue(json.RawMessage(bytes.ToValidUTF8(out, []byte("\ufffd"))))
		}
		return slog.StringValue(mask(string(out)))
	}
	if !whole {
		// A secret may begin in the margin and end beyond it.
		out = out[:max(0, len(out)-payloadMargin)]
	}
	text := mask(string(out[:min(len(out), payloadLimit)]))
	return slog.StringValue(fmt.Sprintf("%s… [cut: %d bytes in all]", text, size))
}
