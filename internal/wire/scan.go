package wire

import (
	"bytes"
	"fmt"
	"math"
)

const (
	// maxDepth bounds the nesting of arrays and objects in a message that is received, because the
	// scanner is recursive.
	maxDepth = 1000
	// maxComposedDepth bounds the nesting in a text that contains parts of received messages. The
	// conversions of package protocol put a part at most three levels deeper than it was, and
	// NewBatch one level. The levels do not add up, because a part is only converted between its
	// receipt and the next write.
	maxComposedDepth = maxDepth + 16
	// maxText bounds a text that is received, in bytes.
	maxText = 1 << 30
	// maxComposedText bounds a text that contains parts of received messages, in bytes, so that
	// offsets in the text and in the result of Splice fit into an int32.
	maxComposedText = math.MaxInt32 - 1<<20
)

// bounds are the bounds of a text.
type bounds struct{ depth, length int }

var (
	received = bounds{maxDepth, maxText}
	composed = bounds{maxComposedDepth, maxComposedText}
)

// A scanner scans JSON text (RFC 8259) once. It has no field for the current offset: each method
// takes an offset and returns the next one, so that the offset stays in a register. The scanner
// keeps the first error. A method that fails returns the end of the text as the next offset, where
// no method finds a token, so that callers check err only once, at the end.
type scanner struct {
	b            []byte
	levels       int  // further levels of nesting that are allowed
	keyAt        span // the key of the current member, with its quotation marks
	escaped      bool // the current key has escapes
	multiline    bool // there is a line break between tokens
	badUTF8      bool // a string is not valid UTF-8; the rest may be valid
	manyIDs      bool // the message has more than one id
	allowDeep    bool // values that nest too deep set foundTooDeep and are skipped; false = err
	foundTooDeep bool // a value that nests too deep was skipped
	problem      string
	version      span   // "jsonrpc"
	paramsToken  span   // params.progressToken
	buf          []byte // the last unescaped key
	err          error
}

// scan returns a scanner of a text that may be composed.
func scan(text []byte) (s scanner) {
	s.open(text, composed)
	return s
}

// open sets the text of a zero scanner, and its bounds.
func (s *scanner) open(text []byte, limit bounds) {
	if s.levels = limit.depth; len(text) > limit.length {
		s.err = fmt.Errorf("byte 0: the text is longer than %d bytes", limit.length)
		return
	}
	s.b = text
}

func (s *scanner) fail(i int, format string, args ...any) (end int) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: "+format, append([]any{i}, args...)...)
	}
	return len(s.b)
}

// peek skips white space and returns the next byte, or 0 at the end, and its offset.
func (s *scanner) peek(i int) (at int, c byte) {
	if i < len(s.b) && s.b[i] > ' ' {
		return i, s.b[i]
	}
	return s.skipSpace(i)
}

func (s *scanner) skipSpace(i int) (at int, c byte) {
	for ; i < len(s.b); i++ {
		switch c := s.b[i]; c {
		case ' ', '\t':
		case '\n', '\r':
			s.multiline = true
		default:
			return i, c
		}
	}
	return i, 0
}

// value scans a value of any type that begins at i.
func (s *scanner) value(i int) (end int) {
	if i >= len(s.b) {
		return s.fail(i, "the text ends where a value is expected")
	}
	switch c := s.b[i]; {
	case c == '"':
		end, _ = s.str(i)
		return end
	case c == '{':
		i, ok := s.enterObject(i)
		for ok {
			i, ok = s.nextMember(s.value(i))
		}
		return i
	case c == '[':
		i, ok := s.enterArray(i)
		for ok {
			i, ok = s.nextElement(s.value(i))
		}
		return i
	case c == '-' || '0' <= c && c <= '9':
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	default:
		return s.fail(i, "%q where a value is expected", c)
	}
}

// enterObject enters the object at i and returns the offset of its first member's value. nextMember
// returns the offset of the following member's value, and key returns the key of the current
// member. enterObject and nextMember return false after the closing brace and after an error.
func (s *scanner) enterObject(i int) (at int, ok bool) {
	i, c := s.openBracket(i, '{')
	if c == '}' {
		return s.closeBracket(i)
	}
	return s.keyAndColon(i)
}

func (s *scanner) nextMember(i int) (at int, ok bool) {
	switch i, c := s.peek(i); c {
	case ',':
		i, _ = s.peek(i + 1)
		return s.keyAndColon(i)
	case '}':
		return s.closeBracket(i)
	default:
		return s.fail(i, "expected a comma or }"), false
	}
}

// enterArray returns the offset of the first element of the array at i, and nextElement the offset
// of the following element. Both return false after the closing bracket and after an error.
func (s *scanner) enterArray(i int) (at int, ok bool) {
	i, c := s.openBracket(i, '[')
	if c == ']' {
		return s.closeBracket(i)
	}
	return i, s.err == nil
}

func (s *scanner) nextElement(i int) (at int, ok bool) {
	switch i, c := s.peek(i); c {
	case ',':
		i, _ = s.peek(i + 1)
		return i, true
	case ']':
		return s.closeBracket(i)
	default:
		return s.fail(i, "expected a comma or ]"), false
	}
}

// openBracket steps over an opening bracket and returns the offset and the byte that follow it.
// Beyond the allowed levels it fails or, if allowDeep is set, skips the content and returns the
// closing bracket and its offset.
func (s *scanner) openBracket(i int, bracket byte) (at int, c byte) {
	i, c = s.peek(i)
	if c != bracket {
		return s.fail(i, "expected %q", bracket), 0
	}
	if s.levels--; s.levels < 0 {
		if s.allowDeep {
			return s.skipTooDeep(i)
		}
		return s.fail(i, "nested too deep"), 0
	}
	return s.peek(i + 1)
}

// skipTooDeep returns the closing bracket that matches the opening bracket at i, and its offset. It
// does not recurse, and it checks only strings and the number of brackets.
func (s *scanner) skipTooDeep(i int) (at int, c byte) {
	s.foundTooDeep = true
	closing := s.b[i] + 2 // in ASCII ']' is '[' + 2, and '}' is '{' + 2
	for open := 0; i < len(s.b); i++ {
		switch c := s.b[i]; c {
		case '"':
			end, _ := s.str(i)
			i = end - 1
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 && c == closing {
				return i, c
			} else if open == 0 {
				return s.fail(i, "expected %q", closing), 0
			}
		}
	}
	return s.fail(i, "the text ends in a value"), 0
}

// closeBracket steps over a closing bracket and returns false, because no member or element
// follows.
func (s *scanner) closeBracket(i int) (at int, ok bool) {
	s.levels++
	return i + 1, false
}

// keyAndColon scans a member's key and colon and returns the offset of its value.
func (s *scanner) keyAndColon(i int) (at int, ok bool) {
	if i >= len(s.b) || s.b[i] != '"' {
		return s.fail(i, "expected a member's key"), false
	}
	end, escaped := s.str(i)
	s.keyAt, s.escaped = span{int32(i), int32(end)}, escaped
	i, c := s.peek(end)
	if c != ':' {
		return s.fail(i, "expected a colon"), false
	}
	i, _ = s.peek(i + 1)
	return i, true
}

// key returns the key of the current member. The result is valid until the next call of key.
// Escapes are decoded, so that "m\u0065thod" is recognized as "method".
func (s *scanner) key() []byte {
	key := s.b[s.keyAt.lo+1 : s.keyAt.hi-1]
	if s.escaped {
		s.buf = unescape(s.buf[:0], key)
		return s.buf
	}
	return key
}

func (s *scanner) number(i int) (end int) {
	if s.b[i] == '-' {
		i++
	}
	if i < len(s.b) && s.b[i] == '0' {
		i++
	} else {
		i = s.digits(i)
	}
	if i < len(s.b) && s.b[i] == '.' {
		i = s.digits(i + 1)
	}
	if i < len(s.b) && s.b[i]|0x20 == 'e' {
		i++
		if i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		i = s.digits(i)
	}
	return i
}

func (s *scanner) digits(i int) (end int) {
	lo := i
	for i < len(s.b) && '0' <= s.b[i] && s.b[i] <= '9' {
		i++
	}
	if i == lo {
		return s.fail(i, "expected a digit")
	}
	return i
}

func (s *scanner) literal(i int, word string) (end int) {
	if !bytes.HasPrefix(s.b[i:], []byte(word)) {
		return s.fail(i, "expected %q", word)
	}
	return i + len(word)
}

// expectEnd checks that only white space is left.
func (s *scanner) expectEnd(i int) {
	if i, _ := s.peek(i); i < len(s.b) {
		s.fail(i, "text after the end of the message")
	}
}
