package logs

import (
	"cmp"
	"slices"
	"strings"
)

// encodings is how many percent-encodings of a secret, one of another, are looked for: a URL in the query of a URL in
// the query of a URL.
const encodings = 3

// percentEncoded is the form in which a text is searched for percent-encoded secrets: each %HH is the byte that it
// stands for, and each + a space. Encoders differ in which bytes they encode, in the case of the digits, and in what
// they make of a space.
func percentEncoded(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		c, next := octet(s, i)
		b = append(b, c)
		i = next
	}
	return string(b)
}

// octet returns the byte that s[at:next] stands for.
func octet(s string, at int) (c byte, next int) {
	if c = s[at]; c == '%' && at+2 < len(s) {
		if high, low := digit(s[at+1]), digit(s[at+2]); high|low < 16 {
			c, at = high<<4|low, at+2
		}
	}
	return withoutPlus(c), at + 1
}

func withoutPlus(c byte) byte {
	if c == '+' {
		return ' '
	}
	return c
}

// digit returns the value of a hexadecimal digit, 16 for any other byte.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

// find adds every occurrence of a secret in s, as it is and percent-encoded.
func (k *known) find(spans []span, s string) []span {
	for _, form := range k.forms {
		spans = appendAll(spans, s, form)
	}
	return append(spans, k.findEncoded(s, encodings)...)
}

// findEncoded finds the secrets that are percent-encoded in s, at most so many times. It allocates only if something
// that is decoded begins like a secret.
func (k *known) findEncoded(s string, levels int) []span {
	if levels == 0 || !k.plainHeads.inEncoded(s) {
		return nil
	}
	plain := percentEncoded(s)
	var spans []span
	for _, form := range k.plain {
		spans = appendAll(spans, plain, form)
	}
	if plain != s {
		spans = append(spans, k.findEncoded(plain, levels-1)...)
	}
	return inSource(s, spans)
}

// inEncoded tells whether s may hold, percent-encoded, one of what h was made of.
func (h *heads) inEncoded(s string) bool {
	if !strings.ContainsAny(s, "%+") {
		return false
	}
	if strings.Contains(s, "%25") {
		return true // of an encoded % more is decoded
	}
	last := uint32(0)
	for i, n := 0, 0; i < len(s); n++ {
		c, next := octet(s, i)
		last = last<<8&0xffffff | uint32(c)
		if n >= 2 && h.has(last) {
			return true
		}
		i = next
	}
	return false
}

// inSource turns spans of percentEncoded(s) into spans of s.
func inSource(s string, spans []span) []span {
	ends := make([]*int, 0, 2*len(spans))
	for i := range spans {
		ends = append(ends, &spans[i].from, &spans[i].to)
	}
	slices.SortFunc(ends, func(a, b *int) int { return cmp.Compare(*a, *b) })
	plain, source := 0, 0
	for _, end := range ends {
		for ; plain < *end; plain++ {
			_, source = octet(s, source)
		}
		*end = source
	}
	return spans
}
