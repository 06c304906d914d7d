package logging

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"mcpgateway/internal/secrets"
)

// redacted stands where a secret stood.
const redacted = "***"

// minSecret is the length below which a value is not taken for a secret: env values such as 0, 1 or on are no secrets,
// and to blot out every 1 would make the log unreadable without hiding anything.
const minSecret = 4

// Mask blots secrets out of text. It knows values, given to NewMask and Add, in the forms in which they turn up: as they
// are, with any of their bytes percent-encoded, with any of their characters escaped as in strings of JSON, and these one
// within the other; in the alphabet of base64 for URLs, without its padding, and as part of the name of a tool; not
// encoded in hex or base64. It also knows the beginning of a value in front of a … where a text was cut, and by their looks
// user:pass@ and the query of URLs, "Bearer xxx" and "Authorization: xxx".
//
// A nil Mask and the zero Mask change nothing; the zero Mask begins to work with the first Add. All methods may be
// called at any time from any goroutine, also while Add runs; masking takes no lock.
type Mask struct {
	secrets atomic.Pointer[maskState] // replaced, never changed
}

// maskState is what a Mask knows.
type maskState struct {
	current      []string // values
	past         []string // values of earlier, the latest first
	forms        []string // every form of all of them
	decodedForms []string // forms, as they are in a decoded text

	formsFilter   *prefixFilter // of forms, and of what credentials finds
	decodedFilter *prefixFilter // of plain
}

// maxPast bounds the values of earlier that a Mask still knows: each costs every line that is masked a search.
const maxPast = 256

// NewMask returns a Mask that knows values.
func NewMask(values ...string) *Mask {
	m := new(Mask)
	m.Add(values...)
	return m
}

// Add makes more values known; what is masked after it returned is masked with them. Values shorter than 4 bytes are
// passed over, and so is the space around a value. Each line of a value counts as a value of its own, and so does what
// follows the scheme of an Authorization header.
func (m *Mask) Add(values ...string) {
	m.update(func(old maskState) maskState {
		return maskState{current: slices.Concat(old.current, values), past: old.past}
	})
}

// SetSecrets makes these the values that there are. Those of before are still masked, the latest 256 of them: somebody may
// yet speak of them.
func (m *Mask) SetSecrets(values ...string) {
	m.update(func(old maskState) maskState {
		return maskState{current: values, past: slices.Concat(old.current, old.past)}
	})
}

func (m *Mask) update(change func(old maskState) maskState) {
	for {
		old := m.secrets.Load()
		before := maskState{}
		if old != nil {
			before = *old
		}
		next := change(before)
		next.current = slices.Compact(slices.Sorted(slices.Values(next.current)))
		seen := make(map[string]bool, len(next.past))
		next.past = slices.DeleteFunc(slices.Clone(next.past), func(v string) bool {
			_, present := slices.BinarySearch(next.current, v)
			again := seen[v]
			seen[v] = true
			return present || again
		})
		next.past = next.past[:min(len(next.past), maxPast)]
		for _, v := range slices.Concat(next.current, next.past) {
			next.forms = appendForms(next.forms, v)
		}
		slices.Sort(next.forms)
		next.forms = slices.Compact(next.forms)
		for _, form := range next.forms {
			next.decodedForms = append(next.decodedForms, strings.ReplaceAll(form, "+", " "))
		}
		slices.Sort(next.decodedForms)
		next.decodedForms = slices.Compact(next.decodedForms)
		next.formsFilter = newPrefixFilter(slices.Concat(next.forms, schemes, headers, []string{schemeEnd}))
		next.decodedFilter = newPrefixFilter(next.decodedForms)
		if m.secrets.CompareAndSwap(old, &next) {
			return
		}
	}
}

// appendForms adds every form of value, of its lines (a log shows a private key line by line), and of its credentials.
func appendForms(forms []string, value string) []string {
	value = strings.TrimSpace(value)
	if len(value) < minSecret || strings.Trim(value, "*") == "" {
		return forms
	}
	forms = append(forms, value, jsonEscape(value), withoutQuotes(strconv.Quote(value)))
	if html, err := json.Marshal(value); err == nil {
		forms = append(forms, withoutQuotes(string(html)))
	}
	if len(value) >= minVariant {
		forms = append(forms, asToolName(value), toURLAlphabet.Replace(value))
		if unpadded := strings.TrimRight(value, "="); len(unpadded) >= minVariant {
			forms = append(forms, unpadded)
		}
	}
	if strings.Contains(value, "\n") {
		for line := range strings.Lines(value) {
			forms = appendForms(forms, line)
		}
	} else if rest := secrets.AfterScheme(value); rest != value {
		forms = appendForms(forms, rest)
	}
	return forms
}

// minVariant is the length from which a value is also known in the forms of base64, and in that
// of a part of a name.
const minVariant = 8

// toURLAlphabet makes base64 of the alphabet for URLs.
var toURLAlphabet = strings.NewReplacer("+", "-", "/", "_")

// asToolName returns value as it is in the name under which a client sees a tool: package catalog
// replaces what clients do not take in a name.
func asToolName(value string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && isLetterOrDigit(byte(r)) || r == '-' {
			return r
		}
		return '_'
	}, value)
	if trimmed := strings.TrimLeft(name, "_-"); len(trimmed) >= minVariant {
		return trimmed
	}
	return value
}

func jsonEscape(s string) string {
	quoted, _ := encode(s) // strings always encode
	return withoutQuotes(string(quoted))
}

// withoutQuotes is what stands between the quotes.
func withoutQuotes(quoted string) string { return quoted[1 : len(quoted)-1] }

// String returns s with every secret replaced by ***; s itself, without allocating, if there is none. Where secrets
// overlap or one holds another, the whole stretch becomes one ***, so that no remainder of either is left.
func (m *Mask) String(s string) string {
	if m == nil {
		return s
	}
	k := m.secrets.Load()
	if k == nil || !k.formsFilter.mayContain(s) && !k.decodedFilter.mayContainEncoded(s, percent) && !k.decodedFilter.mayContainEncoded(s, escapes) {
		return s
	}
	return replaceSpans(s, k.find(findCredentials(s), s))
}

// prefixFilter are the first three bytes of what is looked for, each a bit at its hash. Most short texts hold none of them, and
// need not be searched for every secret there is.
type prefixFilter [1 << 16 / 64]uint64

func newPrefixFilter(texts []string) *prefixFilter {
	h := new(prefixFilter)
	for _, text := range texts {
		at := filterHash(uint32(text[0])<<16 | uint32(text[1])<<8 | uint32(text[2]))
		h[at/64] |= 1 << (at % 64)
	}
	return h
}

// mayContain tells whether s may hold one of them.
func (h *prefixFilter) mayContain(s string) bool {
	last := uint32(0) // three bytes
	for i := range len(s) {
		last = last<<8&0xffffff | uint32(s[i])
		if i >= 2 && h.contains(last) {
			return true
		}
	}
	return false
}

func (h *prefixFilter) contains(three uint32) bool {
	at := filterHash(three)
	return h[at/64]&(1<<(at%64)) != 0
}

func filterHash(three uint32) uint32 { return three * 0x9e3779b1 >> 16 }

// span is the stretch s[from:to].
type span struct{ from, to int }

// appendAll adds every occurrence of secret, also those that overlap one another.
func appendAll(spans []span, s, secret string) []span {
	for at := 0; ; at++ {
		i := strings.Index(s[at:], secret)
		if i < 0 {
			return spans
		}
		at += i
		spans = append(spans, span{at, at + len(secret)})
	}
}

// replaceSpans replaces spans, overlapping ones together. A Replacer that takes the longest secret first would leave the tail
// of a secret whose head another one has taken.
func replaceSpans(s string, spans []span) string {
	if len(spans) == 0 {
		return s
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	copied := 0
	for i := 0; i < len(spans); {
		from, to := spans[i].from, spans[i].to
		for i++; i < len(spans) && spans[i].from < to; i++ {
			to = max(to, spans[i].to)
		}
		b.WriteString(s[copied:from])
		b.WriteString(redacted)
		copied = to
	}
	b.WriteString(s[copied:])
	return b.String()
}
