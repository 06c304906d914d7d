package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"mcpgateway/internal/secrets"
)

// A replacement is an edit of the range text[from:to]. Its field with contains the new text.
type replacement struct {
	from, to int
	with     string
}

// applyEdits applies edits, in any order, to text. If edits overlap, only the edit that contains
// the others is applied; if no edit contains the others, *** replaces the whole range.
func applyEdits(text string, edits []replacement) string {
	var out strings.Builder
	copied := 0
	for _, e := range mergeOverlapping(edits) {
		out.WriteString(text[copied:e.from] + e.with)
		copied = e.to
	}
	out.WriteString(text[copied:])
	return out.String()
}

// mergeOverlapping sorts edits and merges overlapping ones.
func mergeOverlapping(edits []replacement) []replacement {
	slices.SortStableFunc(edits, func(a, b replacement) int {
		return cmp.Or(
			cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to),
			cmp.Compare(len(b.with), len(a.with)))
	})
	var all []replacement
	for _, e := range edits {
		last := len(all) - 1
		switch {
		case last < 0 || e.from >= all[last].to:
			all = append(all, e)
		case e.to > all[last].to:
			all[last].to, all[last].with = e.to, secrets.Redacted
		}
	}
	return all
}

func shiftEdits(edits []replacement, by int) []replacement {
	for i := range edits {
		edits[i].from += by
		edits[i].to += by
	}
	return edits
}

// maskEdits returns the edits that change text to masked. masked is text with some parts replaced
// by ***; if it is not, the only edit replaces the whole text by masked.
func maskEdits(text, masked string) []replacement {
	if masked == text {
		return nil
	}
	var all []replacement
	at := 0
	kept := strings.Split(masked, secrets.Redacted)
	for i, part := range kept {
		from := at
		switch {
		case i == 0 && strings.HasPrefix(text, part):
		case i == len(kept)-1 && strings.HasSuffix(text[at:], part):
			from = len(text) - len(part)
		case i == 0 || i == len(kept)-1 || !strings.Contains(text[at:], part):
			return []replacement{{0, len(text), masked}} // not a mask
		default:
			from += strings.Index(text[at:], part)
		}
		if from > at {
			all = append(all, replacement{at, from, secrets.Redacted})
		}
		at = from + len(part)
	}
	return all
}

// escapeEdits converts edits of a decoded text to edits of body, the encoded JSON string without
// its opening quote. It changes edits, which must be sorted.
func escapeEdits(body []byte, edits []replacement) []replacement {
	if bytes.IndexByte(body, '\\') < 0 {
		return edits // body is the text
	}
	text, source := 0, 0
	to := func(offset int) int {
		for text < offset && source < len(body) {
			n, size := decodeUnit(body[source:])
			text += n
			source += size
		}
		return source
	}
	for i, e := range edits {
		edits[i].from, edits[i].to = to(e.from), to(e.to)
		if quoted := quote(e.with); len(quoted) > len(e.with)+2 {
			edits[i].with = string(quoted[1 : len(quoted)-1])
		}
	}
	return edits
}

// decodeUnit decodes the first character of body. n is the length of the character in the text,
// size its length in body. Both are 1 if the string is invalid.
func decodeUnit(body []byte) (n, size int) {
	if body[0] != '\\' || len(body) < 2 {
		r, size := utf8.DecodeRune(body)
		return utf8.RuneLen(r), size
	}
	if body[1] != 'u' {
		return 1, 2
	}
	size = len(`\u0000`)
	for _, pair := range []int{2 * size, size} {
		if len(body) < pair {
			continue
		}
		var s string
		literal := append(append([]byte{'"'}, body[:pair]...), '"')
		if json.Unmarshal(literal, &s) == nil && (pair == size || utf8.RuneCountInString(s) == 1) {
			return len(s), pair
		}
	}
	return 1, 1 // the string is invalid
}

// quote encodes s as JSON without HTML escapes, which would change bytes that need no escape.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // never fails for a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
