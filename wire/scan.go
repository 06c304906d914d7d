package wire

import (
	"bytes"
	"fmt"
)

const (
	// maxDepth bounds how deep arrays and objects may nest: the scanner recurses.
	maxDepth = 1000
	// maxText bounds a text, in bytes, so that a place in it, and in what Splice
	// makes of it, fits into an int32.
	maxText = 1 << 30
)

// A scanner walks JSON text (RFC 8259) once. The first error sticks: after it
// every step is a no-op, so that callers test err once, at the end.
type scanner struct {
	b         []byte
	i         int
	depth     int
	keyAt     span // the key of the member at hand, in its quotes
	escaped   bool // that key has escapes
	multiline bool // a line break stands between tokens
	badUTF8   bool // the text is JSON but for a string that is not UTF-8
	manyIDs   bool // a message has more than one id
	problem   string
	buf       []byte // the last key that was unescaped
	err       error
}

func scan(text []byte) scanner {
	s := scanner{b: text}
	if len(text) > maxText {
		s.fail("the text is longer than %d bytes", maxText)
	}
	return s
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: "+format, append([]any{s.i}, args...)...)
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c > ' ':
			return c
		case c == '\n' || c == '\r':
			s.multiline = true
		case c != ' ' && c != '\t':
			return c
		}
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
		for ok := s.enter(); ok; ok = s.next() {
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

// enter steps into the object at hand, to the value of its first member; next
// goes on to the following one, and key returns that member's key. Both answer
// false behind the closing brace, and after an error.
func (s *scanner) enter() bool {
	if !s.down('{') {
		return false
	}
	if s.peek() == '}' {
		return s.up()
	}
	return s.colon()
}

func (s *scanner) next() bool {
	switch c := s.peek(); {
	case s.err != nil:
	case c == ',':
		s.i++
		s.peek()
		return s.colon()
	case c == '}':
		return s.up()
	default:
		s.fail("a comma or } should stand here")
	}
	return false
}

// open and more are enter and next for arrays.
func (s *scanner) open() bool {
	if !s.down('[') {
		return false
	}
	if s.peek() == ']' {
		return s.up()
	}
	return true
}

func (s *scanner) more() bool {
	switch c := s.peek(); {
	case s.err != nil:
	case c == ',':
		s.i++
		return true
	case c == ']':
		return s.up()
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

// up returns false: there is no member, no element any more.
func (s *scanner) up() bool {
	s.i++
	s.depth--
	return false
}

// colon walks over a member's key and its colon.
func (s *scanner) colon() bool {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		s.fail("a member's key should stand here")
		return false
	}
	lo := s.i
	s.escaped = s.str()
	s.keyAt = span{int32(lo), int32(s.i)}
	if s.peek() != ':' {
		s.fail("a colon should stand here")
	}
	s.i++
	return s.err == nil
}

// key returns the key of the member at hand, until the next call. Escapes are
// resolved, so that "m\u0065thod" is not a way around a check for "method".
func (s *scanner) key() []byte {
	key := s.b[s.keyAt.lo+1 : s.keyAt.hi-1]
	if s.escaped {
		s.buf = unescape(s.buf[:0], key)
		return s.buf
	}
	return key
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
