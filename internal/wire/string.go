package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// str scans the string at i and reports whether it contains escapes.
func (s *scanner) str(i int) (end int, escaped bool) {
	lo, ascii := i, true
	i++
	if i+8 <= len(s.b) { // shortcut for the majority of strings, which are short and plain
		w := binary.LittleEndian.Uint64(s.b[i : i+8])
		stop := firstStopBits(w) &^ w & highBits
		if k := bits.TrailingZeros64(stop) / 8; k < 8 && s.b[i+k] == '"' &&
			w&(stop-1)&highBits == 0 {
			return i + k + 1, false
		}
	}
	for {
		var a bool
		i, a = skipPlain(s.b, i)
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
			n := escapeLen(s.b[i:])
			if n == 0 {
				return s.fail(i, "invalid escape"), escaped
			}
			i, a = skipPlainAndEscapes(s.b, i+n)
			ascii = ascii && a
		default:
			return s.fail(i, "a control character in a string"), escaped
		}
	}
}

// The functions below process eight bytes at a time, as one number. A byte c is a quotation mark or
// a control character if c^2 < 0x21, because '"' is 0x22. It is a backslash if c^'\\' < 1. The top
// bit of each byte of the number is the result for this byte.
const (
	repeatByte = 0x0101010101010101 // repeatByte*c has the value c in each of its eight bytes
	highBits   = 0x8080808080808080
)

// firstStopBits sets the top bit of each byte of w that ends a run of plain ASCII in a string. Only
// the lowest set bit is reliable: a byte that is less than the subtracted value borrows from the
// next byte. Bits of non-ASCII bytes are not reliable either.
func firstStopBits(w uint64) uint64 {
	return (w ^ repeatByte*2 - repeatByte*0x21) | (w ^ repeatByte*'\\' - repeatByte)
}

// allStopBits sets exactly the top bits of the bytes of w that are a quotation mark, a backslash or
// a control character. It needs more operations than firstStopBits.
func allStopBits(w uint64) uint64 {
	low := w &^ highBits // so that no sum carries into the next byte
	return highBits &^ ((low^repeatByte*2+repeatByte*(0x80-0x21))&(low^repeatByte*'\\'+
		repeatByte*(0x80-1)) | w)
}

// skipPlain skips the bytes from i that are not a quotation mark, backslash or control character.
// ascii is true if all skipped bytes are ASCII.
func skipPlain(text []byte, i int) (end int, ascii bool) {
	lo, seen := i, uint64(0)
	for ; i+8 <= len(text); i += 8 {
		w := binary.LittleEndian.Uint64(text[i : i+8])
		if stop := firstStopBits(w) &^ w & highBits; stop != 0 {
			seen |= w & (stop - 1) // the bytes before the stop
			return i + bits.TrailingZeros64(stop)/8, seen&highBits == 0
		}
		seen |= w
		if i == lo+8 { // not a short string
			i = skipPlainFast(text, i+8) - 8
		}
	}
	for ; i < len(text); i++ {
		c := text[i]
		if c == '"' || c == '\\' || c < ' ' {
			break
		}
		seen |= uint64(c)
	}
	return i, seen&highBits == 0
}

// skipPlainFast is a variant of skipPlain for long strings that is twice as fast. It also stops at
// bytes that are not ASCII, and up to 31 bytes before the first byte that must not be skipped.
func skipPlainFast(text []byte, i int) (end int) {
	for ; i+32 <= len(text); i += 32 {
		t := text[i : i+32]
		v, w := binary.LittleEndian.Uint64(t), binary.LittleEndian.Uint64(t[8:])
		x, y := binary.LittleEndian.Uint64(t[16:]), binary.LittleEndian.Uint64(t[24:])
		if (firstStopBits(v)|firstStopBits(w)|firstStopBits(x)|firstStopBits(y)|
			v|w|x|y)&highBits != 0 {
			break
		}
	}
	return i
}

// skipPlainAndEscapes is a variant of skipPlain for text after an escape, where further escapes are
// likely, as in source code. It also skips escapes of two bytes. It may stop before the first byte
// that must not be skipped, and ascii may be false even if all skipped bytes are ASCII.
func skipPlainAndEscapes(text []byte, i int) (end int, ascii bool) {
	seen := uint64(0)
	for ; i+8 <= len(text); i += 8 {
		t := text[i : i+8]
		w := binary.LittleEndian.Uint64(t)
		seen |= w
		for stop := allStopBits(w); stop != 0; {
			k := bits.TrailingZeros64(stop) / 8
			if k == 7 || t[k] != '\\' || !shortEscapes[t[k+1]] {
				return i + k, seen&highBits == 0
			}
			stop &= ^uint64(0) << (8*k + 16) // the bits after the escape
		}
	}
	return i, seen&highBits == 0
}

// escapeLen returns the length of the escape at the start of text, 0 if it is invalid.
func escapeLen(text []byte) int {
	switch {
	case len(text) >= 2 && shortEscapes[text[1]]:
		return 2
	case len(text) >= 6 && text[1] == 'u' && isHex(text[2]) && isHex(text[3]) && isHex(text[4]) &&
		isHex(text[5]):
		return 6
	}
	return 0
}

// shortEscapes contains the bytes that follow the backslash in an escape of two bytes.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true,
	'r': true, 't': true}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}
