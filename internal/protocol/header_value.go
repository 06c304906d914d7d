package protocol

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// A value that a header cannot have as it is stands there between these two, in Base64.
const (
	encodedBegin = "=?base64?"
	encodedEnd   = "?="
)

// encodeHeader returns text as the value of Mcp-Name or of Mcp-Param-*: as it is, if
// that is safe. "" is not: go-sdk 1.8 takes a header that is empty for one that is
// missing, and everybody decodes what is encoded.
func encodeHeader(text string) string {
	if isSafe(text) {
		return text
	}
	return encodedBegin + base64.StdEncoding.EncodeToString([]byte(text)) + encodedEnd
}

func isSafe(text string) bool {
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

// decodeHeader returns the text that the value of a header stands for. Without both
// markers it stands for itself, be it UTF-8 that should have been encoded: go-sdk 1.8
// sends names so.
func decodeHeader(value string) (text string, ok bool) {
	inner, begins := strings.CutPrefix(value, encodedBegin)
	inner, ends := strings.CutSuffix(inner, encodedEnd)
	if !begins || !ends {
		return value, true
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(decoded), err == nil
}

// headerText returns an argument as a header says it, before it is encoded. Only
// strings, booleans and integers can be said, the latter up to 2^53-1.
func headerText(value []byte) (text string, ok bool) {
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		return wire.Unquote(value), true
	case string(value) == "true" || string(value) == "false":
		return string(value), true
	}
	n, ok := integer(string(value))
	return strconv.FormatInt(n, 10), ok
}

// says reports whether text, from a header, says an argument that [headerText] can
// say. Integers are compared as such: 42.0 says 42.
func says(text string, value []byte) bool {
	want, ok := headerText(value)
	if value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return ok && text == want
	}
	n, given := integer(text)
	return ok && given && strconv.FormatInt(n, 10) == want
}

// integer reads a decimal number that is an integer of at most 2^53-1, which is what
// a reader that has but doubles reads exactly.
func integer(text string) (n int64, ok bool) {
	for i := 0; i < len(text); i++ {
		if c := text[i]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53-1 {
		return 0, false
	}
	return int64(f), true
}
