// Package text shortens text for logs and errors.
package text

import "strings"

// Truncate returns s if it has at most limit bytes, and otherwise its first limit bytes, without
// incomplete or invalid characters, followed by "…".
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
