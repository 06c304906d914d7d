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

// minSecret is the length in bytes of the shortest value that is masked. Environment values such as
// 0, 1 or on are not secrets, and a log in which every 1 is masked would be unreadable.
const minSecret = 4

// A Mask replaces secrets in text. It finds the values given to NewMask, Add, AddToken and
// SetSecrets
//
//   - unchanged, with any of their bytes percent-encoded, with any of their characters escaped
//     as in JSON strings, and with several of these encodings applied one after the other;
//   - if they have at least 8 bytes, also in the base64 alphabet for URLs, without base64 padding,
//     and as part of a tool's name;
//   - truncated, in front of a … that marks the truncation of a text.
//
// It does not find values encoded in hex or base64. Of the values that it was not given, it finds
// user:pass@ and the query of URLs, "Bearer xxx" and "Authorization: xxx" (see findCredentials).
//
// A nil Mask and the zero Mask change nothing; the zero Mask becomes effective with the first call
// of Add, AddToken, SetSecrets or SetTokenOwners. All methods may be called concurrently. Masking
// takes no lock.
type Mask struct {
	secrets atomic.Pointer[maskState] // replaced, never modified
}

// maskState is the immutable state of a Mask.
type maskState struct {
	current          []string      // current values
	past             []string      // earlier values, the latest first
	tokens           []maskedToken // values of AddToken, the latest first
	owners           []string      // owners that exist
	encodings        []string      // all encodings of the current and past values
	decodedEncodings []string      // encodings as they appear in a decoded text, where + is a space

	// filter of encodings, and of the texts that findCredentials searches for
	encodingsFilter *prefixFilter
	decodedFilter   *prefixFilter // filter of decodedEncodings
}

// A maskedToken is a value of AddToken.
type maskedToken struct{ owner, text string }

// maxPast is the number of earlier values that a Mask keeps. maxTokens and maxTokenBytes bound the
// tokens of one owner, and maxAllTokens bounds all tokens. In addition, the latest keptTokens
// tokens of each owner that exists are kept, so that no owner removes the tokens that others use: a
// login has an access token, a refresh token, a client secret, and a code or a verifier.
const (
	maxPast       = 256
	maxTokens     = 64
	maxTokenBytes = 256 << 10
	maxAllTokens  = 512
	keptTokens    = 4
)

// NewMask returns a Mask for these values.
func NewMask(values ...string) *Mask {
	m := new(Mask)
	m.Add(values...)
	return m
}

// Add adds values. After Add has returned, they are masked in all texts. Values shorter than 4
// bytes are ignored, and space around a value is trimmed. Each line of a value, and the credentials
// after the scheme of an Authorization header, are also masked separately.
func (m *Mask) Add(values ...string) {
	m.update(func(s *maskState) { s.current = slices.Concat(s.current, values) })
}

// AddToken adds a value that will be replaced by others again and again, such as an access token.
// The latest 64 tokens of an owner, for example a backend, are masked, as long as all owners
// together have at most 512 tokens. Beyond that, only the latest 4 tokens of each owner that
// SetTokenOwners names are masked in any case, until ReleaseTokens is called for the owner.
func (m *Mask) AddToken(owner, text string) {
	added := maskedToken{owner, text}
	if m.touchToken(added) {
		return
	}
	m.update(func(s *maskState) {
		s.tokens = boundTokens(slices.Concat([]maskedToken{added}, s.tokens), s.owners)
	})
}

// SetTokenOwners replaces the owners that exist. An owner may have parts with tokens of their own:
// their names begin with that of the owner and a space. The tokens of other owners are not removed
// at once, because later messages may contain them.
func (m *Mask) SetTokenOwners(owners ...string) {
	m.update(func(s *maskState) { s.owners = slices.Clone(owners) })
}

// ReleaseTokens says that an owner, or a part of one, does not use its tokens any more. They are
// masked until there are too many tokens.
func (m *Mask) ReleaseTokens(owner string) {
	m.update(func(s *maskState) {
		s.tokens = slices.Clone(s.tokens)
		for i := range s.tokens {
			if s.tokens[i].owner == owner {
				s.tokens[i].owner = "" // is no owner that exists
			}
		}
		s.tokens = boundAllTokens(s.tokens, s.owners)
	})
}

// touchToken makes a token the latest, and reports whether it was known.
func (m *Mask) touchToken(t maskedToken) bool {
	for {
		old := m.secrets.Load()
		if old == nil || !slices.Contains(old.tokens, t) {
			return false
		}
		next := *old
		next.tokens = slices.DeleteFunc(slices.Clone(old.tokens),
			func(known maskedToken) bool { return known == t })
		next.tokens = slices.Insert(next.tokens, 0, t)
		if m.secrets.CompareAndSwap(old, &next) {
			return true
		}
	}
}

// boundTokens removes the oldest tokens of the owner of the first one until this owner meets its
// bounds, and then calls boundAllTokens. It keeps the first token.
func boundTokens(all []maskedToken, owners []string) []maskedToken {
	count, length := 0, 0
	all = slices.DeleteFunc(all, func(t maskedToken) bool {
		if t.owner != all[0].owner {
			return false
		}
		count++
		length += len(t.text)
		return count > 1 && (count > maxTokens || length > maxTokenBytes)
	})
	return boundAllTokens(all, owners)
}

// boundAllTokens removes the oldest tokens until maxAllTokens is met. It keeps the latest
// keptTokens of each of the owners and of their parts.
func boundAllTokens(all []maskedToken, owners []string) []maskedToken {
	if len(all) <= maxAllTokens {
		return all
	}
	used := make(map[string]int) // tokens so far, by owner
	kept := 0
	return slices.DeleteFunc(all, func(t maskedToken) bool {
		kept++
		used[t.owner]++
		return kept > maxAllTokens && (used[t.owner] > keptTokens || !isOwner(t.owner, owners))
	})
}

// isOwner reports whether an owner, or the owner that it is a part of, is one of the owners.
func isOwner(owner string, owners []string) bool {
	return slices.ContainsFunc(owners, func(one string) bool {
		part, ok := strings.CutPrefix(owner, one)
		return ok && (part == "" || part[0] == ' ')
	})
}

// SetSecrets replaces the values given to NewMask and Add. The latest 256 earlier values are still
// masked, because later messages may contain them.
func (m *Mask) SetSecrets(values ...string) {
	m.update(func(s *maskState) {
		s.past = slices.Concat(s.current, s.past)
		s.current = values
	})
}

// update replaces the state by a changed copy. change must not modify the lists of the state that
// it gets, only replace them.
func (m *Mask) update(change func(s *maskState)) {
	for {
		old, next := m.secrets.Load(), maskState{}
		if old != nil {
			next = maskState{current: old.current, past: old.past, tokens: old.tokens,
				owners: old.owners}
		}
		change(&next)
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
			next.encodings = appendEncodings(next.encodings, v)
		}
		for _, t := range next.tokens {
			next.encodings = appendEncodings(next.encodings, t.text)
		}
		slices.Sort(next.encodings)
		next.encodings = slices.Compact(next.encodings)
		for _, text := range next.encodings {
			next.decodedEncodings = append(next.decodedEncodings,
				strings.ReplaceAll(text, "+", " "))
		}
		slices.Sort(next.decodedEncodings)
		next.decodedEncodings = slices.Compact(next.decodedEncodings)
		next.encodingsFilter = newPrefixFilter(
			slices.Concat(next.encodings, schemes, headers, []string{schemeEnd}))
		next.decodedFilter = newPrefixFilter(next.decodedEncodings)
		if m.secrets.CompareAndSwap(old, &next) {
			return
		}
	}
}

// appendEncodings appends all encodings of value, of its lines (a log shows a private key line by
// line), and of the credentials in it.
func appendEncodings(all []string, value string) []string {
	value = strings.TrimSpace(value)
	if len(value) < minSecret || strings.Trim(value, "*") == "" {
		return all
	}
	all = append(all, value, jsonEscape(value), withoutQuotes(strconv.Quote(value)))
	if html, err := json.Marshal(value); err == nil {
		all = append(all, withoutQuotes(string(html)))
	}
	if len(value) >= minVariant {
		all = append(all, asToolName(value), toURLAlphabet.Replace(value))
		if unpadded := strings.TrimRight(value, "="); len(unpadded) >= minVariant {
			all = append(all, unpadded)
		}
	}
	if strings.Contains(value, "\n") {
		for line := range strings.Lines(value) {
			all = appendEncodings(all, line)
		}
	} else if rest := secrets.AfterScheme(value); rest != value {
		all = appendEncodings(all, rest)
	}
	return all
}

// minVariant is the length of the shortest value that is also masked in the variants of base64
// and as part of a tool's name.
const minVariant = 8

// toURLAlphabet converts base64 to its alphabet for URLs.
var toURLAlphabet = strings.NewReplacer("+", "-", "/", "_")

// asToolName returns value as it appears in the exposed name of a tool: package catalog replaces
// the characters that clients do not accept in a name.
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
	quoted, _ := encode(s) // never fails for a string
	return withoutQuotes(string(quoted))
}

// withoutQuotes removes the first and last byte.
func withoutQuotes(quoted string) string { return quoted[1 : len(quoted)-1] }

// String returns s with every secret replaced by ***. If s contains no secret, String returns s
// itself and does not allocate. Secrets that overlap or contain one another become one ***, so that
// no part of them remains.
func (m *Mask) String(s string) string {
	if m == nil {
		return s
	}
	k := m.secrets.Load()
	if k == nil || !k.encodingsFilter.mayContain(s) &&
		!k.decodedFilter.mayContainEncoded(s, percent) &&
		!k.decodedFilter.mayContainEncoded(s, escapes) {
		return s
	}
	return replaceSpans(s, k.find(findCredentials(s), s))
}

// A prefixFilter is a Bloom filter of the first three bytes of the texts to search for. Most short
// texts contain none of these prefixes and need not be searched for each secret. Each text to
// search for must have at least three bytes.
type prefixFilter [1 << 16 / 64]uint64

func newPrefixFilter(texts []string) *prefixFilter {
	h := new(prefixFilter)
	for _, text := range texts {
		at := filterHash(uint32(text[0])<<16 | uint32(text[1])<<8 | uint32(text[2]))
		h[at/64] |= 1 << (at % 64)
	}
	return h
}

// mayContain reports whether s may contain one of the texts.
func (h *prefixFilter) mayContain(s string) bool {
	last := uint32(0) // the last three bytes
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

// A textRange is the part s[from:to] of a text s.
type textRange struct{ from, to int }

// appendAll appends all occurrences of secret, including overlapping ones.
func appendAll(spans []textRange, s, secret string) []textRange {
	for at := 0; ; at++ {
		i := strings.Index(s[at:], secret)
		if i < 0 {
			return spans
		}
		at += i
		spans = append(spans, textRange{at, at + len(secret)})
	}
}

// replaceSpans replaces each span, and each group of overlapping spans, by ***. A strings.Replacer
// that replaces the longest secret first would leave the end of a secret whose beginning overlaps
// another secret.
func replaceSpans(s string, spans []textRange) string {
	if len(spans) == 0 {
		return s
	}
	slices.SortFunc(spans, func(a, b textRange) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	copied := 0
	for i := 0; i < len(spans); {
		from, to := spans[i].from, spans[i].to
		for i++; i < len(spans) && spans[i].from < to; i++ {
			to = max(to, spans[i].to)
		}
		b.WriteString(s[copied:from])
		b.WriteString(secrets.Redacted)
		copied = to
	}
	b.WriteString(s[copied:])
	return b.String()
}
