package logging

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// encodingDepth is the number of nested encodings in which a secret is found: a URL in the query
// of a URL in the query of a URL, or JSON in a JSON string.
const encodingDepth = 3

// A decoder decodes text. The decoded text is searched, because a secret can be encoded in several
// ways: encoders differ in the characters that they encode, in the case of the digits, and in the
// encoding of a space. In the decoded text each + is replaced by a space.
type decoder struct {
	markers string // an encoded text contains at least one of these bytes
	// decodeUnit decodes s[at:next], one byte or escape, to unit[:n].
	decodeUnit func(s string, at int) (unit [4]byte, n, next int)
	// nested are texts that indicate a further encoding: a text that is still encoded after
	// decoding contains at least one of them.
	nested []string
}

var (
	percent = &decoder{"%+", percentUnit, []string{"%25", "%5c", "%5C", `\`}}
	escapes = &decoder{`\`, escapeUnit, []string{`\\`, "%", `\u0025`, `\u005c`, `\u005C`}}
)

// percentUnit decodes one byte or one escape %HH of a percent-encoded text; + becomes a space.
func percentUnit(s string, at int) (unit [4]byte, n, next int) {
	c := s[at]
	if c == '%' && at+2 < len(s) {
		if high, low := hexDigit(s[at+1]), hexDigit(s[at+2]); high|low < 16 {
			c, at = high<<4|low, at+2
		}
	}
	unit[0] = plusAsSpace(c)
	return unit, 1, at + 1
}

// escapeUnit decodes one byte or one escape of a JSON string: \uHHHH, or a backslash and a
// character. It also decodes the escapes of strings of Go, Python and shells; + becomes a space.
func escapeUnit(s string, at int) (unit [4]byte, n, next int) {
	c, next := s[at], at+1
	if c == '\\' && next < len(s) {
		switch e := s[next]; {
		case e == 'u' || e == 'U':
			if r, end := escapedRune(s, at); end > at {
				if r == '+' {
					r = ' '
				}
				return unit, utf8.EncodeRune(unit[:], r), end
			}
		case e == 'x':
			if r, ok := parseHex(s, next+1, 2); ok {
				c, next = byte(r), next+3
			}
		default:
			if i := strings.IndexByte(escapeLetters, e); i >= 0 {
				c, next = escapedBytes[i], next+1
			} else if e < utf8.RuneSelf && !isLetterOrDigit(e) {
				c, next = e, next+1
			}
		}
	}
	unit[0] = plusAsSpace(c)
	return unit, 1, next
}

const escapeLetters, escapedBytes = "abfnrtv", "\a\b\f\n\r\t\v"

// escapedRune decodes \uHHHH, a surrogate pair of two such escapes, or \UHHHHHHHH at s[at]. It
// returns the offset after the escape, or at if there is no such escape.
func escapedRune(s string, at int) (r rune, end int) {
	digits := 4
	if s[at+1] == 'U' {
		digits = 8
	}
	r, ok := parseHex(s, at+2, digits)
	if !ok {
		return 0, at
	}
	end = at + 2 + digits
	if utf16.IsSurrogate(r) && strings.HasPrefix(s[end:], `\u`) {
		if low, ok := parseHex(s, end+2, 4); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
			return utf16.DecodeRune(r, low), end + 6
		}
	}
	return r, end
}

// parseHex parses the given number of hexadecimal digits at s[at]; ok is false if there are fewer.
func parseHex(s string, at, digits int) (r rune, ok bool) {
	if at+digits > len(s) {
		return 0, false
	}
	for _, c := range []byte(s[at : at+digits]) {
		d := hexDigit(c)
		if d > 15 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func isLetterOrDigit(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

func plusAsSpace(c byte) byte {
	if c == '+' {
		return ' '
	}
	return c
}

// hexDigit returns the value of a hexadecimal digit, 16 for other bytes.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

// find appends all occurrences of secrets in s: plain, truncated and encoded.
func (k *maskState) find(spans []textRange, s string) []textRange {
	for _, text := range k.encodings {
		spans = appendAll(spans, s, text)
	}
	spans = appendTruncated(spans, s, k.encodings, k.encodingsFilter)
	return append(spans, k.findEncoded(s, encodingDepth)...)
}

// findEncoded finds the secrets that are encoded in s, with up to levels nested encodings. It
// allocates only if a decoded part begins like a secret or may be encoded again.
func (k *maskState) findEncoded(s string, levels int) []textRange {
	if levels == 0 {
		return nil
	}
	var all []textRange
	for _, e := range [...]*decoder{percent, escapes} {
		if !k.decodedFilter.mayContainEncoded(s, e) {
			continue
		}
		plain := e.decode(s)
		var spans []textRange
		for _, text := range k.decodedEncodings {
			spans = appendAll(spans, plain, text)
		}
		spans = appendTruncated(spans, plain, k.decodedEncodings, k.decodedFilter)
		if len(plain) != len(s) {
			spans = append(spans, k.findEncoded(plain, levels-1)...)
		}
		all = append(all, e.toSource(s, spans)...)
	}
	return all
}

func (e *decoder) decode(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		unit, n, next := e.decodeUnit(s, i)
		b = append(b, unit[:n]...)
		i = next
	}
	return string(b)
}

// hasMarker reports whether s contains one of the markers. It is faster than strings.ContainsAny.
func (e *decoder) hasMarker(s string) bool {
	for i := range len(e.markers) {
		if strings.IndexByte(s, e.markers[i]) >= 0 {
			return true
		}
	}
	return false
}

// mayContainEncoded reports whether s may contain an encoding of one of the texts of h.
func (h *prefixFilter) mayContainEncoded(s string, e *decoder) bool {
	if !e.hasMarker(s) {
		return false
	}
	if slices.ContainsFunc(e.nested, func(part string) bool { return strings.Contains(s, part) }) {
		return true
	}
	last := uint32(0)
	for i, decoded := 0, 0; i < len(s); {
		unit, n, next := e.decodeUnit(s, i)
		for _, c := range unit[:n] {
			last = last<<8&0xffffff | uint32(c)
			decoded++
			if decoded >= 3 && h.contains(last) {
				return true
			}
		}
		i = next
	}
	return false
}

// toSource converts spans of the decoded text to spans of s. A span that contains a part of a
// unit is extended to the whole unit.
func (e *decoder) toSource(s string, spans []textRange) []textRange {
	type end struct {
		at *int
		to bool
	}
	ends := make([]end, 0, 2*len(spans))
	for i := range spans {
		ends = append(ends, end{&spans[i].from, false}, end{&spans[i].to, true})
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(*a.at, *b.at) })
	decoded, source, before := 0, 0, 0
	for _, end := range ends {
		for decoded < *end.at {
			_, n, next := e.decodeUnit(s, source)
			decoded, before, source = decoded+n, source, next
		}
		if decoded > *end.at && !end.to {
			*end.at = before
		} else {
			*end.at = source
		}
	}
	return spans
}

// truncationMark ends a text that the gateway has truncated.
const truncationMark = "…"

// appendTruncated appends beginnings of secrets in front of a truncationMark, because a truncation
// may split a secret. It may also split an escape.
func appendTruncated(spans []textRange, s string, texts []string, h *prefixFilter) []textRange {
	for at := 0; ; {
		n := strings.Index(s[at:], truncationMark)
		if n < 0 {
			return spans
		}
		end := at + n
		whole := end - truncatedEscape(s[at:end])
		for ; at+minSecret <= whole; at++ {
			if !h.contains(uint32(s[at])<<16 | uint32(s[at+1])<<8 | uint32(s[at+2])) {
				continue
			}
			begins := func(text string) bool {
				return len(text) > whole-at &&
					(strings.HasPrefix(text, s[at:end]) || strings.HasPrefix(text, s[at:whole]))
			}
			if slices.ContainsFunc(texts, begins) {
				spans = append(spans, textRange{at, end})
				break
			}
		}
		at = end + len(truncationMark)
	}
}

// truncatedEscape returns the length of the incomplete escape at the end of s, 0 if there is none.
func truncatedEscape(s string) int {
	i := strings.LastIndexAny(s, `\%`)
	if i < 0 || len(s)-i > len(`\u000`) {
		return 0
	}
	rest := s[i+1:]
	if s[i] == '\\' {
		rest = strings.TrimLeft(rest, "uUx")
	}
	isOther := func(c rune) bool { return c > 'f' || hexDigit(byte(c)) > 15 }
	if strings.IndexFunc(rest, isOther) >= 0 || s[i] == '%' && len(rest) > 1 {
		return 0
	}
	return len(s) - i
}
