package protocol

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// Markers around a header value that is encoded in Base64.
const (
	encodedBegin = "=?base64?"
	encodedEnd   = "?="
)

// encodeHeaderValue returns text as a value of Mcp-Name or Mcp-Param-*, encoded if necessary. An
// empty text is encoded as well, because go-sdk 1.8 treats an empty header as a missing header, and
// every implementation can decode values.
func encodeHeaderValue(text string) string {
	if isPlainHeaderValue(text) {
		return text
	}
	return encodedBegin + base64.StdEncoding.EncodeToString([]byte(text)) + encodedEnd
}

func isPlainHeaderValue(text string) bool {
	if text == "" || text[0] == ' ' || text[len(text)-1] == ' ' {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return !strings.HasPrefix(text, encodedBegin) || !strings.HasSuffix(text, encodedEnd)
}

// decodeHeaderValue returns the text of a header value. A value without both markers is literal,
// even if it contains UTF-8 that should have been encoded, because go-sdk 1.8 sends names in this
// way. ok is false if the text between the markers is not valid Base64.
func decodeHeaderValue(value string) (text string, ok bool) {
	inner, begins := strings.CutPrefix(value, encodedBegin)
	inner, ends := strings.CutSuffix(inner, encodedEnd)
	if !begins || !ends {
		return value, true
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(decoded), err == nil
}

// headerValue returns an argument as header text, before encoding. Only strings, booleans and
// integers with an absolute value of at most 2^53-1 have a header form.
func headerValue(value []byte) (text string, ok bool) {
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		return wire.Unquote(value), true
	case string(value) == "true" || string(value) == "false":
		return string(value), true
	}
	n, ok := parseSafeInteger(string(value))
	return strconv.FormatInt(n, 10), ok
}

// headerEquals reports whether header text represents an argument with a header form, see
// [headerValue]. Integers are compared by value: 42.0 equals 42.
func headerEquals(text string, value []byte) bool {
	want, ok := headerValue(value)
	if value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return ok && text == want
	}
	n, given := parseSafeInteger(text)
	return ok && given && strconv.FormatInt(n, 10) == want
}

// parseSafeInteger reads a decimal number that is an integer with an absolute value of at most
// 2^53-1, the range that a double represents exactly.
func parseSafeInteger(text string) (n int64, ok bool) {
	for i := 0; i < len(text); i++ {
		if c := text[i]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' &&
			c != 'E' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53-1 {
		return 0, false
	}
	return int64(f), true
}
