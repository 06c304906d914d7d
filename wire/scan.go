package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds how deep arrays and objects may nest: the scanner recurses.
const maxDepth = 1000

// A scanner walks JSON text (RFC 8259) once. The first error sticks: after it
// every step is a no-op, so that callers test err once, at the end.
type scanner struct {
	b         []byte
	i         int
	depth     int
	multiline bool // a line break stands between tokens
	badUTF8   bool // the text is JSON but for a string that is not UTF-8
	err       error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: "+format, append([]any{s.i}, args...)...)
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t':
		case '\n', '\r':
			s.multiline = true
		default:
			return c
		}
		s.i++
	}
	return 0
}

// value walks over one value of any type and returns where it lies.
func (s *scanner) value() span {
	c := s.peek()
	lo := s.i
	if s.err != nil {
		return span{}
	}
	switch {
	case c == '"':
		s.str()
	case c == '{':
		for _, ok := s.enter(); ok; _, ok = s.next() {
			s.value()
		}
	case c == '[':
		for ok := s.open(); ok; ok = s.more() {
			s.value()
		}
	case c == '-' || '0' <= c && c <= '9':
		s.number()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	case s.i >= len(s.b):
		s.fail("the text ends where a value should stand")
	default:
		s.fail("%q where a value should stand", c)
	}
	return span{int32(lo), int32(s.i)}
}

// enter steps into the object at hand, to the value of its first member, and
// returns that member's key; next goes on to the following one. Both answer
// false behind the closing brace, and after an error.
func (s *scanner) enter() (key []byte, ok bool) {
	if !s.down('{') {
		return nil, false
	}
	if s.peek() == '}' {
		return nil, s.up()
	}
	return s.key()
}

func (s *scanner) next() (key []byte, ok bool) {
	switch c := s.peek(); {
	case s.err != nil:
	case c == ',':
		s.i++
		s.peek()
		return s.key()
	case c == '}':
		s.up()
	default:
		s.fail("a comma or } should stand here")
	}
	return nil, false
}

// open and more are enter and next for arrays.
func (s *scanner) open() bool {
	return s.down('[') && (s.peek() != ']' || s.up())
}

func (s *scanner) more() bool {
	switch c := s.peek(); {
	case s.err != nil:
	case c == ',':
		s.i++
		return true
	case c == ']':
		s.up()
	default:
		s.fail("a comma or ] should stand here")
	}
	return false
}

func (s *scanner) down(bracket byte) bool {
	if s.peek() != bracket || s.err != nil {
		s.fail("%q should stand here", bracket)
		return false
	}
	if s.depth++; s.depth > maxDepth {
		s.fail("nested deeper than %d", maxDepth)
		return false
	}
	s.i++
	return true
}

func (s *scanner) up() bool {
	s.i++
	s.depth--
	return false
}

// key reads a member's key and its colon. The key is unescaped only if it has
// escapes, so that "m\u0065thod" is not a way around a check for "method".
func (s *scanner) key() ([]byte, bool) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		s.fail("a member's key should stand here")
		return nil, false
	}
	lo := s.i
	escaped := s.str()
	key := s.b[lo:s.i]
	if s.peek() != ':' {
		s.fail("a colon should stand here")
	}
	s.i++
	if s.err != nil {
		return nil, false
	}
	if escaped {
		return []byte(Unquote(key)), true
	}
	return key[1 : len(key)-1], true
}

// str walks over the string at hand and tells whether it holds escapes.
func (s *scanner) str() (escaped bool) {
	lo := s.i
	high := byte(0)
	for i := s.i + 1; i < len(s.b); i++ {
		c := s.b[i]
		switch {
		case c == '"':
			if high >= utf8.RuneSelf && !utf8.Valid(s.b[lo:i]) {
				s.badUTF8 = true
			}
			s.i = i + 1
			return escaped
		case c == '\\':
			escaped = true
			n := s.escape(i)
			if n == 0 {
				s.i = i
				s.fail("not an escape of JSON")
				return
			}
			i += n
		case c < ' ':
			s.i = i
			s.fail("a control character in a string")
			return
		default:
			high |= c
		}
	}
	s.i = len(s.b)
	s.fail("the text ends in a string")
	return
}

// escape returns how many bytes follow the backslash at i, 0 if none rightly do.
func (s *scanner) escape(i int) int {
	if i+1 >= len(s.b) {
		return 0
	}
	switch s.b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if i+5 >= len(s.b) {
			return 0
		}
		for _, c := range s.b[i+2 : i+6] {
			if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
				return 0
			}
		}
		return 5
	}
	return 0
}

func (s *scanner) number() {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else {
		s.digits()
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		s.digits()
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		s.digits()
	}
}

func (s *scanner) digits() {
	lo := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == lo {
		s.fail("a digit should stand here")
	}
}

func (s *scanner) literal(word string) {
	if !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		s.fail("%q should stand here", word)
		return
	}
	s.i += len(word)
}

// end checks that nothing but white space is left.
func (s *scanner) end() {
	if s.peek(); s.i < len(s.b) {
		s.fail("text after the end of the message")
	}
}

// Unquote returns the string that a JSON string literal stands for, "" if it is
// none.
func Unquote(quoted []byte) string {
	if n := len(quoted); n >= 2 && quoted[0] == '"' && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : n-1])
	}
	var v string
	if json.Unmarshal(quoted, &v) != nil {
		return ""
	}
	return v
}

// Quote returns s as a JSON string literal, without the escapes for HTML that
// encoding/json would add.
func Quote(s string) []byte {
	return Encode(s)
}

// Encode returns v as JSON on one line, without escapes for HTML. It is for
// what the gateway itself says; a v that JSON cannot hold is a mistake in the
// program, and Encode panics.
func Encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("wire: %T has no JSON: %v", v, err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
