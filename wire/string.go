package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// str walks over the string that stands at i and tells whether it holds escapes.
func (s *scanner) str(i int) (end int, escaped bool) {
	lo, ascii := i, true
	i++
	for i < len(s.b) {
		var a bool
		i, a = plain(s.b, i)
		ascii = ascii && a
		switch {
		case i >= len(s.b):
		case s.b[i] == '"':
			if !ascii && !utf8.Valid(s.b[lo:i]) {
				s.badUTF8 = true
			}
			return i + 1, escaped
		case s.b[i] == '\\':
			escaped = true
			n := escape(s.b[i:])
			if n == 0 {
				return s.fail(i, "not an escape of JSON"), escaped
			}
			i += n
		default:
			return s.fail(i, "a control character in a string"), escaped
		}
	}
	return s.fail(i, "the text ends in a string"), escaped
}

const (
	each = 0x0101010101010101 // times c: c in each of eight bytes
	tops = 0x8080808080808080
)

// stops has the top bit of each byte of w set that does not stand for itself in a
// string, being quote, backslash or control character, if all of w is ASCII; also
// that of a byte above one of these, at times, and nothing of use in the other bits.
// A byte c is a quote or a control character if c^2 < 0x21, for '"' is 0x22.
func stops(w uint64) uint64 {
	return (w ^ each*2 - each*0x21) | (w ^ each*'\\' - each)
}

// plain returns how many bytes at the start of text stand for themselves in a
// string, being neither quote nor backslash nor control character, and whether
// all of them are ASCII. It looks at eight bytes at a time.
func plain(text []byte, n int) (end int, ascii bool) {
	lo, seen := n, uint64(0)
	for ; n+8 <= len(text); n += 8 {
		w := binary.LittleEndian.Uint64(text[n : n+8])
		stop := stops(w) &^ w & tops
		if stop != 0 {
			seen |= w & (stop - 1) // what stands before the first stop
			return n + bits.TrailingZeros64(stop)/8, seen&tops == 0
		}
		seen |= w
		if n == lo+8 {
			n = letters(text, n+8) - 8
		}
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

// letters is plain for long texts, and stops at what is not ASCII, too: it looks
// at 32 bytes at a time, and returns a multiple of that.
func letters(text []byte, n int) (end int) {
	for ; n+16 <= len(text); n += 16 {
		t := text[n : n+16]
		a, b := binary.LittleEndian.Uint64(t), binary.LittleEndian.Uint64(t[8:])
		if (stops(a)|a|stops(b)|b)&tops != 0 {
			break
		}
	}
	return n
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
