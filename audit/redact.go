package audit

import (
	"bytes"
	"encoding/json"
	"strings"

	"mcpgateway/internal/secrets"
)

// hidden stands where a secret value stood.
const hidden = `"***"`

// redact returns the JSON text raw with secrets replaced: the value under the name of a secret, as package secrets has
// them, and inside every other string, key and number whatever mask knows, however it was escaped. Strings are searched
// for names of secrets and for tokens; those that hold JSON, as the text of most tool results does, are redacted likewise.
// All other bytes stay what they are; raw itself is returned if nothing was found, and never changed.
//
// Valid JSON stays valid. From what is cut short or no JSON at all it takes what it can, up to the end: one flat pass
// over the tokens, which needs no stack, since only a key is followed by a colon.
func redact(raw []byte, mask func(string) string) []byte {
	var out []byte
	copied := 0
	headers := 0 // where the last object of HTTP headers ends
	replace := func(from, to int, with []byte) {
		out = append(append(out, raw[copied:from]...), with...)
		copied = to
	}
	for i := 0; i < len(raw); {
		end := tokenEnd(raw, i)
		switch token := raw[i:end]; {
		case token[0] == '"':
			text, masked := unquote(token, mask)
			if masked != text {
				replace(i, end, quote(masked))
			}
			value, ok := valueOf(raw, end)
			switch {
			case !ok:
				value, ok = argumentOf(raw, end, text)
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
				replace(value, end, []byte(hidden))
			}
		case isNumber(token) && mask(string(token)) != string(token):
			replace(i, end, []byte(hidden))
		}
		i = end
	}
	if copied == 0 {
		return raw
	}
	return append(out, raw[copied:]...)
}

// isSecret reports whether value, under the name of a secret or of an HTTP header, is one. An object or array is, and a
// boolean is not.
func isSecret(name string, value []byte, header bool) bool {
	if len(value) == 0 || value[0] == '{' || value[0] == '[' {
		return true
	}
	text := string(value)
	if value[0] == '"' {
		text, _ = decode(value)
	}
	if header {
		return secrets.FindHeader(name, text[:min(len(text), maxPlain)]) != nil
	}
	return len(text) > maxPlain || secrets.Pair(name, text)
}

// isHeaders reports whether key names an object of HTTP headers.
func isHeaders(key string) bool { return strings.HasSuffix(strings.ToLower(key), "headers") }

// argumentOf returns where the string begins that follows the flag text in an array of arguments, if the flag is the
// name of a secret.
func argumentOf(raw []byte, i int, flag string) (int, bool) {
	i = skipSpace(raw, i)
	if !strings.HasPrefix(flag, "-") || len(flag) > maxName || i == len(raw) || raw[i] != ',' || !secrets.Name(flag) {
		return 0, false
	}
	i = skipSpace(raw, i+1)
	if i+1 >= len(raw) || raw[i] != '"' || raw[i+1] == '-' {
		return 0, false
	}
	_, isKey := valueOf(raw, tokenEnd(raw, i))
	return i, !isKey
}

// valueOf returns where the value begins, if what ended at i was a key.
func valueOf(raw []byte, i int) (int, bool) {
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

// unquote returns the text of a string and what is left of it when secrets are out: it is masked and, if there may be
// JSON in it, redacted. A string that cannot be read is masked as it stands.
func unquote(token []byte, mask func(string) string) (text, masked string) {
	text, ok := decode(token)
	masked = text
	if ok && strings.IndexByte(text, '"') >= 0 {
		masked = string(redact([]byte(text), mask))
	}
	return text, mask(redactText(masked))
}

// decode returns the text of a string, of one that was cut short, perhaps amid an escape, the text of what is there. If
// it cannot be read, it returns the bytes between the quotes and false: searched for JSON once more, those might be cut
// into strings that cannot be read either, a level for every quote. What was read has half its backslashes, at most.
func decode(token []byte) (string, bool) {
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

// quote is json.Marshal without the HTML escapes, which would rewrite innocent bytes.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // strings always encode
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
