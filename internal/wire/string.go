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
	if i+8 <= len(s.b) { // most strings are short and plain, and end here
		w := binary.LittleEndian.Uint64(s.b[i : i+8])
		stop := firstStop(w) &^ w & tops
		if k := bits.TrailingZeros64(stop) / 8; k < 8 && s.b[i+k] == '"' && w&(stop-1)&tops == 0 {
			return i + k + 1, false
		}
	}
	for {
		var a bool
		i, a = plain(s.b, i)
		ascii = ascii && a
		if i >= len(s.b) {
			return s.fail(i, "the text ends in a string"), escaped
		}
		switch s.b[i] {
		case '"':
			if !ascii && !utf8.Valid(s.b[lo:i]) {
				s.badUTF8 = true
			}
			return i + 1, escaped
		case '\\':
			escaped = true
			n := escape(s.b[i:])
			if n == 0 {
				return s.fail(i, "not an escape of JSON"), escaped
			}
			i, a = dense(s.b, i+n)
			ascii = ascii && a
		default:
			return s.fail(i, "a control character in a string"), escaped
		}
	}
}

// What follows looks at eight bytes at a time, as one number: a byte c of it is a
// quote or a control character if c^2 < 0x21, for '"' is 0x22, and a backslash if
// c^'\\' < 1. The top bit of each byte tells.
const (
	each = 0x0101010101010101 // times c: c in each of eight bytes
	tops = 0x8080808080808080
)

// firstStop has a top bit set if a byte of w ends a run of ASCII that stands for
// itself in a string. The lowest one that is set is right. Those above it may not
// be, for a byte that is less than what is subtracted borrows from the next one;
// nor are those of bytes that are not ASCII.
func firstStop(w uint64) uint64 {
	return (w ^ each*2 - each*0x21) | (w ^ each*'\\' - each)
}

// allStops has the top bits set of all bytes of w that are quote, backslash or control
// character, and no others. It costs two steps more than firstStop.
func allStops(w uint64) uint64 {
	low := w &^ tops // so that no sum carries into the next byte
	return tops &^ ((low^each*2+each*(0x80-0x21))&(low^each*'\\'+each*(0x80-1)) | w)
}

// plain walks from i over bytes that stand for themselves in a string, being
// neither quote nor backslash nor control character, and tells whether all of
// them are ASCII.
func plain(text []byte, i int) (end int, ascii bool) {
	lo, seen := i, uint64(0)
	for ; i+8 <= len(text); i += 8 {
		w := binary.LittleEndian.Uint64(text[i : i+8])
		if stop := firstStop(w) &^ w & tops; stop != 0 {
			seen |= w & (stop - 1) // what stands before it
			return i + bits.TrailingZeros64(stop)/8, seen&tops == 0
		}
		seen |= w
		if i == lo+8 { // no short one
			i = letters(text, i+8) - 8
		}
	}
	for ; i < len(text); i++ {
		c := text[i]
		if c == '"' || c == '\\' || c < ' ' {
			break
		}
		seen |= uint64(c)
	}
	return i, seen&tops == 0
}

// letters is plain for long strings: it stops somewhat early, and at what is not
// ASCII, but gets on twice as fast.
func letters(text []byte, i int) (end int) {
	for ; i+16 <= len(text); i += 16 {
		t := text[i : i+16]
		v, w := binary.LittleEndian.Uint64(t), binary.LittleEndian.Uint64(t[8:])
		if (firstStop(v)|v|firstStop(w)|w)&tops != 0 {
			break
		}
	}
	return i
}

// dense is plain for what stands behind an escape, where more of them are likely,
// as in source code: those of two bytes it walks over, too. It stops somewhat early,
// and what it says is not ASCII may be.
func dense(text []byte, i int) (end int, ascii bool) {
	seen := uint64(0)
	for ; i+8 <= len(text); i += 8 {
		t := text[i : i+8]
		w := binary.LittleEndian.Uint64(t)
		seen |= w
		for stop := allStops(w); stop != 0; {
			k := bits.TrailingZeros64(stop) / 8
			if k == 7 || t[k] != '\\' || !short[t[k+1]] {
				return i + k, seen&tops == 0
			}
			stop &= ^uint64(0) << (8*k + 16) // those behind the escape
		}
	}
	return i, seen&tops == 0
}

// escape returns how long the escape is at whose backslash text begins, 0 if it is
// none.
func escape(text []byte) int {
	switch {
	case len(text) >= 2 && short[text[1]]:
		return 2
	case len(text) >= 6 && text[1] == 'u' && isHex(text[2]) && isHex(text[3]) && isHex(text[4]) && isHex(text[5]):
		return 6
	}
	return 0
}

// short tells what stands behind the backslash in an escape of two bytes.
var short = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}
