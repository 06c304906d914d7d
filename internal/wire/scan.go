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

// A scanner walks JSON text (RFC 8259) once. Where it is stands in no field: each
// step is told a place in the text and returns the one behind what it has walked
// over, which keeps it in a register. The first error sticks, and the place behind
// it is the end of the text, where nothing else can be found: callers test err
// once, at the end.
type scanner struct {
	b         []byte
	depth     int
	keyAt     span // the key of the member at hand, in its quotes
	escaped   bool // that key has escapes
	multiline bool // a line break stands between tokens
	badUTF8   bool // the text is JSON but for a string that is not UTF-8
	manyIDs   bool // a message has more than one id
	passDeep  bool // a value beyond maxDepth is passed over, and deep is set, instead of failing
	deep      bool // a value beyond maxDepth was passed over
	problem   string
	buf       []byte // the last key that was unescaped
	err       error
}

func scan(text []byte) scanner {
	if len(text) > maxText {
		return scanner{err: fmt.Errorf("byte 0: the text is longer than %d bytes", maxText)}
	}
	return scanner{b: text}
}

func (s *scanner) fail(i int, format string, args ...any) (end int) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: "+format, append([]any{i}, args...)...)
	}
	return len(s.b)
}

// peek skips white space and returns the next byte, or 0 at the end, and where
// it stands.
func (s *scanner) peek(i int) (at int, c byte) {
	if i < len(s.b) && s.b[i] > ' ' {
		return i, s.b[i]
	}
	return s.space(i)
}

func (s *scanner) space(i int) (at int, c byte) {
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

// value walks over one value of any type, in front of which no white space stands.
func (s *scanner) value(i int) (end int) {
	if i >= len(s.b) {
		return s.fail(i, "the text ends where a value should stand")
	}
	switch c := s.b[i]; {
	case c == '"':
		end, _ = s.str(i)
		return end
	case c == '{':
		i, ok := s.enter(i)
		for ok {
			i, ok = s.next(s.value(i))
		}
		return i
	case c == '[':
		i, ok := s.open(i)
		for ok {
			i, ok = s.more(s.value(i))
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
		return s.fail(i, "%q where a value should stand", c)
	}
}

// enter steps into the object that stands at i, to the value of its first member;
// next goes on to the following one, and key returns that member's key. Both answer
// false behind the closing brace, and after an error.
func (s *scanner) enter(i int) (at int, ok bool) {
	i, c := s.down(i, '{')
	if c == '}' {
		return s.up(i)
	}
	return s.colon(i)
}

func (s *scanner) next(i int) (at int, ok bool) {
	switch i, c := s.peek(i); c {
	case ',':
		i, _ = s.peek(i + 1)
		return s.colon(i)
	case '}':
		return s.up(i)
	default:
		return s.fail(i, "a comma or } should stand here"), false
	}
}

// open and more are enter and next for arrays.
func (s *scanner) open(i int) (at int, ok bool) {
	i, c := s.down(i, '[')
	if c == ']' {
		return s.up(i)
	}
	return i, s.err == nil
}

func (s *scanner) more(i int) (at int, ok bool) {
	switch i, c := s.peek(i); c {
	case ',':
		i, _ = s.peek(i + 1)
		return i, true
	case ']':
		return s.up(i)
	default:
		return s.fail(i, "a comma or ] should stand here"), false
	}
}

// down steps over a bracket, to what stands behind it.
func (s *scanner) down(i int, bracket byte) (at int, c byte) {
	i, c = s.peek(i)
	if c != bracket {
		return s.fail(i, "%q should stand here", bracket), 0
	}
	if s.depth++; s.depth > maxDepth {
		if s.passDeep {
			return s.pass(i)
		}
		return s.fail(i, "nested deeper than %d", maxDepth), 0
	}
	return s.peek(i + 1)
}

// pass returns the bracket that closes the one at i, and its position. It does not recurse, and
// does not check what stands between the two, apart from strings and the number of brackets.
func (s *scanner) pass(i int) (at int, c byte) {
	s.deep = true
	closing := s.b[i] + 2 // in ASCII ] is [ + 2, and } is { + 2
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
				return s.fail(i, "%q should stand here", closing), 0
			}
		}
	}
	return s.fail(i, "the text ends in a value"), 0
}

// up returns false: there is no member, no element any more.
func (s *scanner) up(i int) (at int, ok bool) {
	s.depth--
	return i + 1, false
}

// colon walks over a member's key and its colon, to its value.
func (s *scanner) colon(i int) (at int, ok bool) {
	if i >= len(s.b) || s.b[i] != '"' {
		return s.fail(i, "a member's key should stand here"), false
	}
	end, escaped := s.str(i)
	s.keyAt, s.escaped = span{int32(i), int32(end)}, escaped
	i, c := s.peek(end)
	if c != ':' {
		return s.fail(i, "a colon should stand here"), false
	}
	i, _ = s.peek(i + 1)
	return i, true
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
		return s.fail(i, "a digit should stand here")
	}
	return i
}

func (s *scanner) literal(i int, word string) (end int) {
	if !bytes.HasPrefix(s.b[i:], []byte(word)) {
		return s.fail(i, "%q should stand here", word)
	}
	return i + len(word)
}

// end checks that nothing but white space is left.
func (s *scanner) end(i int) {
	if i, _ := s.peek(i); i < len(s.b) {
		s.fail(i, "text after the end of the message")
	}
}
