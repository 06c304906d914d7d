package audit

import (
	"bytes"
	"encoding/json"
	"strings"

	"mcpgateway/internal/secrets"
)

// redactedJSON stands where a secret value stood that is no text.
const redactedJSON = `"***"`

// redact returns the JSON text raw with secrets replaced: the value under the name of a secret, as package secrets has
// them, and inside every other string, key and number whatever mask knows, however it was escaped. Strings are searched
// for names of secrets and for tokens; those that hold JSON, as the text of most tool results does, are redacted likewise.
// All other bytes stay what they are; raw itself is returned if nothing was found, and never changed.
//
// Valid JSON stays valid. From what is cut short or no JSON at all it takes what it can, up to the end: one flat pass
// over the tokens, which needs no stack, since only a key is followed by a colon.
func redact(raw []byte, mask func(string) string) []byte {
	all := jsonEdits(raw, mask, true)
	if len(all) == 0 {
		return raw
	}
	return []byte(applyEdits(string(raw), all))
}

// jsonEdits returns what redact changes in raw. A number in which mask finds something is replaced as a whole if isJSON.
func jsonEdits(raw []byte, mask func(string) string, isJSON bool) []edit {
	var all []edit
	headers := 0 // where the last object of HTTP headers ends
	for i := 0; i < len(raw); {
		end := tokenEnd(raw, i)
		switch token := raw[i:end]; {
		case token[0] == '"':
			text, inside := stringEdits(token, mask)
			all = append(all, shiftEdits(inside, i)...)
			value, ok := memberValue(raw, end)
			switch {
			case !ok:
				value, ok = flagArgument(raw, end, text)
			case value < headers:
				ok = secrets.Header(text)
			case isHeaders(text) && value < len(raw) && raw[value] == '{':
				headers, ok = valueEnd(raw, value), false
			default:
				ok = secrets.Name(text)
			}
			if !ok {
				break
			}
			if to := valueEnd(raw, value); isSecret(text, raw[value:to], value < headers) {
				end = to
				all = append(all, valueEdit(raw, value, to))
			}
		case isJSON && isNumber(token) && mask(string(token)) != string(token):
			all = append(all, edit{i, end, redactedJSON})
		}
		i = end
	}
	return all
}

// valueEdit is the edit that hides the value raw[from:to]. The quotes of a string stay.
func valueEdit(raw []byte, from, to int) edit {
	if raw[from] != '"' {
		return edit{from, to, redactedJSON}
	}
	if from++; to > from && raw[to-1] == '"' {
		to--
	}
	return edit{from, to, redacted}
}

// isSecret reports whether value, under the name of a secret or of an HTTP header, is one. An object or array is, and a
// boolean is not.
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
	return len(text) > maxPlain || secrets.Pair(name, text)
}

// isHeaders reports whether key names an object of HTTP headers.
func isHeaders(key string) bool { return strings.HasSuffix(strings.ToLower(key), "headers") }

// flagArgument returns where the string begins that follows the flag text in an array of arguments, if the flag is the
// name of a secret.
func flagArgument(raw []byte, i int, flag string) (int, bool) {
	i = skipSpace(raw, i)
	if !strings.HasPrefix(flag, "-") || len(flag) > maxName || i == len(raw) || raw[i] != ',' || !secrets.Name(flag) {
		return 0, false
	}
	i = skipSpace(raw, i+1)
	if i+1 >= len(raw) || raw[i] != '"' || raw[i+1] == '-' {
		return 0, false
	}
	_, isKey := memberValue(raw, tokenEnd(raw, i))
	return i, !isKey
}

// memberValue returns where the value begins, if what ended at i was a key.
func memberValue(raw []byte, i int) (int, bool) {
	i = skipSpace(raw, i)
	if i == len(raw) || raw[i] != ':' {
		return 0, false
	}
	return skipSpace(raw, i+1), true
}

// valueEnd returns where the value that begins at i ends.
func valueEnd(raw []byte, i int) int {
	for depth := 0; i < len(raw); {
		switch raw[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth < 0 {
			return i // there was no value
		}
		i = tokenEnd(raw, i)
		if depth == 0 {
			return i
		}
	}
	return i
}

// tokenEnd returns where the token at i ends: a string, a punctuation mark, a space, or a run of anything else.
func tokenEnd(raw []byte, i int) int {
	if raw[i] == '"' {
		for i++; i < len(raw); i++ {
			switch raw[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(raw)
	}
	switch n := bytes.IndexAny(raw[i:], "{}[]:,\" \t\r\n"); n {
	case -1:
		return len(raw)
	case 0:
		return i + 1
	default:
		return i + n
	}
}

func skipSpace(raw []byte, i int) int {
	return len(raw) - len(bytes.TrimLeft(raw[i:], " \t\r\n"))
}

func isNumber(token []byte) bool {
	return token[0] == '-' || '0' <= token[0] && token[0] <= '9'
}

// stringEdits returns the text of a string, and the edits of its bytes that take the secrets out: what mask finds in the
// text, what is JSON in it and redacted, and names of secrets and tokens in it. Each is looked for in the text as it was,
// for a secret that mask knows may have in it what ends the value after a name. A string that cannot be read is searched
// as it stands.
func stringEdits(token []byte, mask func(string) string) (text string, inside []edit) {
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

// decodeString returns the text of a string, of one that was cut short, perhaps amid an escape, the text of what is there. If
// it cannot be read, it returns the bytes between the quotes and false: searched for JSON once more, those might be cut
// into strings that cannot be read either, a level for every quote. What was read has half its backslashes, at most.
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
