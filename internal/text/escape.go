package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Escape replaces characters that a reader would not see, or that change how other characters
// appear, by escapes as in JSON strings (\u202e): control and format characters, separators other
// than the space, bidirectional controls, and ignorable characters such as fillers and variation
// selectors. It replaces bytes that are not valid UTF-8 by U+FFFD. The result is one line.
func Escape(s string) string {
	isPlain := func(r rune) bool {
		return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
			unicode.Variation_Selector) && r != '\u2800' // the blank of Braille
	}
	if strings.IndexFunc(s, func(r rune) bool { return !isPlain(r) }) < 0 {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case isPlain(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
