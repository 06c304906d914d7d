package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote returns the value of a JSON string literal, "" if literal is not a string literal. An
// unpaired surrogate becomes U+FFFD.
func Unquote(literal []byte) string {
	if len(literal) == 0 || literal[0] != '"' {
		return ""
	}
	s := scan(literal)
	end, escaped := s.str(0)
	switch {
	case s.err != nil || s.badUTF8 || end != len(literal):
		return ""
	case escaped:
		return string(unescape(nil, literal[1:len(literal)-1]))
	}
	return string(literal[1 : len(literal)-1])
}

// unescape appends the value of text to dst. text is the content of a string literal, without its
// quotation marks, that a scanner has accepted.
func unescape(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		c := text[i+1]
		text = text[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(text)
			text = text[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
					pair = utf16.DecodeRune(r, hex4(text[2:]))
				}
				if r = pair; r != utf8.RuneError {
					text = text[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default: // quotation mark, slash, backslash
			dst = append(dst, c)
		}
	}
}

func hex4(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16)
	return rune(n)
}

// Quote returns s as a JSON string literal, without the HTML escapes of encoding/json.
func Quote(s string) []byte {
	literal := append(append(make([]byte, 0, len(s)+2), '"'), s...)
	if n, ascii := skipPlain(literal, 1); ascii && n == len(literal) {
		return append(literal, '"')
	}
	return Encode(s)
}

// Encode returns v as JSON on one line, without HTML escapes. It is meant for values that the
// gateway itself creates, and panics if v cannot be encoded.
func Encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("wire: %T has no JSON: %v", v, err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// PrependString puts text in front of a JSON string literal without decoding the literal.
func PrependString(text string, literal []byte) []byte {
	front := Quote(text)
	return append(front[:len(front)-1:len(front)-1], literal[1:]...)
}
