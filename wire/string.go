package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// str walks over the string at hand and tells whether it holds escapes.
func (s *scanner) str() (escaped bool) {
	lo := s.i
	s.i++
	ascii := true
	for s.i < len(s.b) {
		n, a := plain(s.b[s.i:])
		s.i += n
		ascii = ascii && a
		switch {
		case s.i >= len(s.b):
		case s.b[s.i] == '"':
			if !ascii && !utf8.Valid(s.b[lo:s.i]) {
				s.badUTF8 = true
			}
			s.i++
			return escaped
		case s.b[s.i] == '\\':
			escaped = true
			n := escape(s.b[s.i:])
			if n == 0 {
				s.fail("not an escape of JSON")
				return escaped
			}
			s.i += n
		default:
			s.fail("a control character in a string")
			return escaped
		}
	}
	s.fail("the text ends in a string")
	return escaped
}

// plain returns how many bytes at the start of text stand for themselves in a
// string, being neither quote nor backslash nor control character, and whether
// all of them are ASCII. It looks at eight bytes at a time.
func plain(text []byte) (n int, ascii bool) {
	const (
		each = 0x0101010101010101 // times c: c in each of eight bytes
		tops = 0x8080808080808080
	)
	seen := uint64(0)
	for ; n+8 <= len(text); n += 8 {
		w := binary.LittleEndian.Uint64(text[n:])
		// To subtract 1 from a byte that is 0 sets its top bit, and that of no byte
		// below it; bytes above it do not matter, for the lowest one is looked for.
		quote, slash := w^each*'"', w^each*'\\'
		stop := ((quote-each)&^quote | (slash-each)&^slash | (w-each*' ')&^w) & tops
		if stop != 0 {
			k := bits.TrailingZeros64(stop) &^ 7
			seen |= w & (1<<k - 1)
			return n + k/8, seen&tops == 0
		}
		seen |= w
	}
	for ; n < len(text); n++ {
		c := text[n]
		if c == '"' || c == '\\' || c < ' ' {
			break
		}
		seen |= uint64(c)
	}
	return n, seen&tops == 0
}

// escape returns how long the escape is with which text begins, 0 if it begins
// with none.
func escape(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(text) >= 6 && isHex(text[2]) && isHex(text[3]) && isHex(text[4]) && isHex(text[5]) {
			return 6
		}
	}
	return 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}
