package audit

import (
	"bytes"
	"encoding/json"
	"strings"

	"mcpgateway/internal/secrets"
)

// redactedJSON replaces a secret JSON value that is not a string.
const redactedJSON = `"***"`

// redact replaces the secrets in the JSON text raw:
//
//   - values under the name of a secret, as defined by package secrets;
//   - secrets that mask finds in other strings, keys and numbers, in any escaping;
//   - values after names of secrets, and tokens, within strings. Strings that contain JSON, such as
//     the text of most tool results, are redacted recursively.
//
// All other bytes stay unchanged. raw is never modified, and is returned if it contains no secret.
//
// Valid JSON stays valid. Truncated or invalid JSON is redacted as far as possible, in one pass
// over the tokens. The pass needs no stack, because only a key is followed by a colon.
func redact(raw []byte, mask func(string) string) []byte {
	all := jsonEdits(raw, mask, true)
	if len(all) == 0 {
		return raw
	}
	return []byte(applyEdits(string(raw), all))
}

// jsonEdits returns the edits of redact. A number in which mask finds a secret is replaced as a
// whole if isJSON is true.
func jsonEdits(raw []byte, mask func(string) string, isJSON bool) []replacement {
	var all []replacement
	headers := 0 // end of the last object of HTTP headers
	for i := 0; i < len(raw); {
		end := secrets.TokenEnd(raw, i)
		switch token := raw[i:end]; {
		case token[0] == '"':
			text, inside := stringEdits(token, mask)
			all = append(all, shiftEdits(inside, i)...)
			value, ok := secrets.MemberValue(raw, end)
			switch {
			case !ok:
				value, ok = flagArgument(raw, end, text)
			case value < headers:
				ok = secrets.IsSecretHeader(text)
			case isHeaders(text) && value < len(raw) && raw[value] == '{':
				headers, ok = secrets.ValueEnd(raw, value), false
			default:
				ok = secrets.IsSecretName(text)
			}
			if !ok {
				break
			}
			if to := secrets.ValueEnd(raw, value); isSecret(text, raw[value:to], value < headers) {
				end = to
				all = append(all, valueEdit(raw, value, to))
			}
		case isJSON && isNumber(token) && mask(string(token)) != string(token):
			all = append(all, replacement{i, end, redactedJSON})
		}
		i = end
	}
	return all
}

// valueEdit returns the edit that masks the value raw[from:to]. It keeps the quotes of a string.
func valueEdit(raw []byte, from, to int) replacement {
	if raw[from] != '"' {
		return replacement{from, to, redactedJSON}
	}
	if from++; to > from && raw[to-1] == '"' {
		to--
	}
	return replacement{from, to, secrets.Redacted}
}

// isSecret reports whether value, under the name of a secret or of an HTTP header, is a secret.
// Objects and arrays under such a name are secrets, booleans are not.
func isSecret(name string, value []byte, header bool) bool {
	if len(value) == 0 {
		return false
	}
	if value[0] == '{' || value[0] == '[' {
		return true
	}
	text := string(value)
	if value[0] == '"' {
		text, _ = decodeString(value)
	}
	if header {
		return secrets.FindHeader(name, text[:min(len(text), maxPlain)]) != nil
	}
	return len(text) > maxPlain || secrets.IsSecret(name, text)
}

// isHeaders reports whether key names an object of HTTP headers.
func isHeaders(key string) bool { return strings.HasSuffix(strings.ToLower(key), "headers") }

// flagArgument returns the offset of the string that follows a flag in an array of arguments, if
// the flag is the name of a secret.
func flagArgument(raw []byte, i int, flag string) (int, bool) {
	i = secrets.SkipSpace(raw, i)
	if !strings.HasPrefix(flag, "-") || len(flag) > maxName || i == len(raw) || raw[i] != ',' ||
		!secrets.IsSecretName(flag) {
		return 0, false
	}
	i = secrets.SkipSpace(raw, i+1)
	if i+1 >= len(raw) || raw[i] != '"' || raw[i+1] == '-' {
		return 0, false
	}
	_, isKey := secrets.MemberValue(raw, secrets.TokenEnd(raw, i))
	return i, !isKey
}

func isNumber(token []byte) bool {
	return token[0] == '-' || '0' <= token[0] && token[0] <= '9'
}

// stringEdits returns the text of a JSON string, and the edits of its bytes that mask secrets:
// secrets found by mask, secrets in JSON within the text, values after names of secrets, and
// tokens. Each search uses the original text, because a secret found by mask may contain characters
// that would end the value after a name. An invalid string is searched undecoded.
func stringEdits(token []byte, mask func(string) string) (text string, inside []replacement) {
	text, ok := decodeString(token)
	all := maskEdits(text, mask(text))
	if ok && strings.IndexByte(text, '"') >= 0 {
		all = append(all, jsonEdits([]byte(text), mask, json.Valid([]byte(text)))...)
	}
	all = append(all, textEdits(text)...)
	if len(all) == 0 {
		return text, nil
	}
	if ok {
		all = escapeEdits(token[1:], mergeOverlapping(all))
	}
	return text, shiftEdits(all, 1)
}

// decodeString returns the text of a JSON string, even if the string is truncated within an escape.
// For an invalid string it returns the bytes between the quotes, and false. These bytes must not be
// searched for JSON again, because each quote in them could add a level of recursion. The recursion
// into decoded texts is bounded: each further level needs at least 5 more bytes per quote
// (\u005cu0022), so that the depth is proportional to the square root of the size, about 115 levels
// for payloadLimit.
func decodeString(token []byte) (string, bool) {
	body := token[1:]
	if len(body) > 0 && body[len(body)-1] == '"' {
		body = body[:len(body)-1]
	}
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	for n := range min(len(body), len(`\u0000`)) {
		var s string
		if json.Unmarshal([]byte(`"`+string(body[:len(body)-n])+`"`), &s) == nil {
			return s, true
		}
	}
	return string(body), false
}
