package pins

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"mcpgateway/internal/wire"
)

// A canonicalMember is a member of a JSON object. Its value is canonical.
type canonicalMember struct {
	name  string
	value []byte
}

// members returns the members of a JSON object, sorted by name. Members with the same name stay in
// their order. ok is false if the value is not a valid object.
func members(object []byte) (all []canonicalMember, ok bool) {
	ok = wire.Members(object, func(key string, value []byte, _ int) {
		all = append(all, canonicalMember{key, appendCanonical(nil, value)})
	})
	slices.SortStableFunc(all,
		func(a, b canonicalMember) int { return strings.Compare(a.name, b.name) })
	return all, ok
}

// appendCanonical appends a JSON value in a form that is the same for equal values: without white
// space, with sorted members, and with one spelling for each string and number. Characters that are
// not printable are escaped, so that a reader of the file sees them. A value that is not valid JSON
// becomes a string.
func appendCanonical(b, value []byte) []byte {
	if len(value) == 0 {
		return appendString(b, "")
	}
	switch c := value[0]; {
	case c == '{':
		if all, ok := members(value); ok {
			return appendObject(b, all)
		}
	case c == '[':
		start := len(b)
		b = append(b, '[')
		ok := wire.EachElement(value, func(element []byte) bool {
			if len(b) > start+1 {
				b = append(b, ',')
			}
			b = appendCanonical(b, element)
			return true
		})
		if ok {
			return append(b, ']')
		}
		b = b[:start]
	case c == '"':
		return appendString(b, wire.Unquote(value))
	case c == '-' || '0' <= c && c <= '9':
		return append(b, canonicalNumber(string(value))...)
	case string(value) == "true" || string(value) == "false" || string(value) == "null":
		return append(b, value...)
	}
	return appendString(b, string(value))
}

func appendObject(b []byte, all []canonicalMember) []byte {
	b = append(b, '{')
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendString(b, m.name), ':'), m.value...)
	}
	return append(b, '}')
}

// appendString appends a JSON string literal.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for s != "" {
		plain := 0 // length of the plain text before the next other character
		for plain < len(s) && isPlain(s[plain]) {
			plain++
		}
		b = append(b, s[:plain]...)
		if s = s[plain:]; s == "" {
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch high, low := utf16.EncodeRune(r); {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(r):
			b = append(b, string(r)...)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	return append(b, '"')
}

// isPlain reports whether a byte is a printable ASCII character that is not escaped in a string.
func isPlain(c byte) bool { return ' ' <= c && c <= '~' && c != '"' && c != '\\' }

// canonicalNumber returns one spelling for all spellings of a JSON number: 1, 1.0 and 10e-1 are 1.
// A number with an exponent of more than nine digits is returned unchanged.
func canonicalNumber(text string) string {
	rest, negative := strings.CutPrefix(text, "-")
	mantissa, power := rest, 0
	if at := strings.IndexAny(rest, "eE"); at >= 0 {
		var err error
		if power, err = strconv.Atoi(rest[at+1:]); err != nil || power > 1e9 || power < -1e9 {
			return text
		}
		mantissa = rest[:at]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	power -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	power += len(digits) - len(trimmed)
	digits = trimmed
	if digits == "" {
		return "0"
	}
	sign := ""
	if negative {
		sign = "-"
	}
	const longest = 21 // digits before an exponent is used
	switch point := len(digits) + power; {
	case power >= 0 && point <= longest:
		return sign + digits + strings.Repeat("0", power)
	case power < 0 && point > 0:
		return sign + digits[:point] + "." + digits[point:]
	case power < 0 && point > -6:
		return sign + "0." + strings.Repeat("0", -point) + digits
	case len(digits) == 1:
		return fmt.Sprintf("%s%se%d", sign, digits, point-1)
	default:
		return fmt.Sprintf("%s%s.%se%d", sign, digits[:1], digits[1:], point-1)
	}
}
