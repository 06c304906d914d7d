package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

const (
	payloadLimit  = 64 << 10 // bytes of a payload that are logged
	payloadMargin = 4 << 10  // bytes looked at beyond, so that a secret astride the cut is seen whole and blotted out
)

// payload is what is logged of raw, the head of a payload of size bytes: JSON as JSON (slog's JSON handler compacts it,
// so it stays on its line); what is cut or was never JSON, as a string.
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
		out = out[:max(0, len(out)-payloadMargin)] // a secret may begin here and end beyond
	}
	text := mask(string(out[:min(len(out), payloadLimit)]))
	return slog.StringValue(fmt.Sprintf("%s… [cut: %d bytes in all]", text, size))
}
