package catalog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mcpgateway/internal/wire"
)

// An Item is an entry of a backend's list, with the backend's bytes except for repairs.
type Item struct {
	Original string // the backend's name, uri or uriTemplate for the entry
	// Builtin is true if the gateway itself serves the entry: see NewBuiltin.
	Builtin bool

	raw                        []byte      // the JSON object
	originalStart, originalEnd int32       // offsets of the literal of Original in raw
	uriPattern                 *uriPattern // nil = no URI matches
	sum                        textDigest  // digest of raw without the literal of Original
}

const (
	// maxEntry bounds one entry of a list, in bytes, because entries become part of a model's
	// context.
	maxEntry = 1 << 20
	// maxNesting bounds the nesting of arrays and objects in an entry. The limit of some clients is
	// only slightly higher, and real entries nest far less.
	maxNesting = 100
)

// NewBuiltin returns a tool or prompt that the gateway itself serves, for the listing of a backend.
// With every Prefix, it is exposed as backend__name and has no other name, so that no entry of a
// backend loses a name to it. It is not listed if this name is not available. raw must be valid.
func NewBuiltin(k Kind, raw []byte) Item {
	i, _, _ := parseItem(k, raw)
	i.Builtin, i.sum = true, i.computeDigest()
	return i
}

// A textDigest identifies a text.
type textDigest [16]byte

func (i *Item) computeDigest() (d textDigest) {
	h := sha256.New()
	h.Write(i.raw[:i.originalStart])
	h.Write([]byte{0}) // does not occur in JSON
	h.Write(i.raw[i.originalEnd:])
	copy(d[:], h.Sum(nil))
	return d
}

// Raw returns the entry's bytes, which must not be changed.
func (i Item) Raw() []byte { return i.raw }

// Description returns the entry's description for people, "" if there is none.
func (i Item) Description() string {
	text := ""
	wire.Members(i.raw, func(key string, value []byte, _ int) {
		if key == "description" {
			text = wire.Unquote(value)
		}
	})
	return text
}

// originalLiteral returns the JSON literal of Original as the backend wrote it.
func (i *Item) originalLiteral() []byte {
	return i.raw[i.originalStart:i.originalEnd:i.originalEnd]
}

// appendAs appends the entry to b under its exposed name.
func (i *Item) appendAs(b []byte, exposed string) []byte {
	if exposed == i.Original {
		return append(b, i.raw...)
	}
	return append(i.appendName(append(b, i.raw[:i.originalStart]...), exposed),
		i.raw[i.originalEnd:]...)
}

// appendName appends the literal of the exposed name. An exposed name that differs from Original
// needs no escapes.
func (i *Item) appendName(b []byte, exposed string) []byte {
	if exposed == i.Original {
		return append(b, i.originalLiteral()...)
	}
	return append(append(append(b, '"'), exposed...), '"')
}

// sizeAs returns the number of bytes that appendAs appends.
func (i *Item) sizeAs(exposed string) int {
	if exposed == i.Original {
		return len(i.raw)
	}
	return len(i.raw) - len(i.originalLiteral()) + len(exposed) + len(`""`)
}

// An Issue is a problem with an entry in a backend's list. The entry is omitted from the list,
// unless Repaired or Suspicious is true.
type Issue struct {
	Item          string // the entry's Original, or its index in the list if it has none
	Problem       string
	Repaired      bool   // the entry is listed, repaired or restricted as Problem describes
	WholeList     bool   // the problem is in the list itself; Item is the member of the result
	Suspicious    bool   // the entry is listed unchanged, although some clients may reject it
	ConflictsWith string // if Suspicious: Original of the conflicting entry; "" = none
}

// A Page is the result of one list request.
type Page struct {
	Items      []Item
	Issues     []Issue
	NextCursor []byte        // cursor of the next page, as JSON; nil on the last page
	TTL        time.Duration // time to live, as the page specifies, at most maxTTL; 0 = unspecified
	// Public is true if any client may see the page (cacheScope "public").
	Public bool
}

// maxTTL bounds the ttlMs of a page.
const maxTTL = 24 * time.Hour

// readTTL reads ttlMs. A value that is not a whole number of milliseconds, or is negative, counts
// as unspecified.
func readTTL(value []byte) time.Duration {
	ms, err := strconv.ParseUint(string(value), 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && ms > uint64(maxTTL/time.Millisecond) {
		return maxTTL
	}
	return time.Duration(ms) * time.Millisecond
}

// maxPageEntries bounds the number of entries that are read from one page. Even an entry with a
// short text needs some hundred bytes of memory.
const maxPageEntries = 10_000

// ParsePage reads the result of a list request. Invalid entries, which would make clients reject
// the whole list, are repaired if the repair is unambiguous, and omitted otherwise. Tools that some
// model APIs would reject are listed unchanged. Issues describes each entry of these three groups;
// one Issue describes all entries beyond maxPageEntries, which are omitted. Entries without issues
// keep their bytes. A list that is null counts as empty, with an Issue. An error means that result
// is not a JSON object with a list.
//
// The items share memory with result, which must not be changed afterwards.
func ParsePage(k Kind, result []byte) (Page, error) {
	var page Page
	var list []byte
	ok := wire.Members(result, func(key string, value []byte, _ int) {
		switch key {
		case k.ResultMember():
			list = value
		case "nextCursor":
			page.NextCursor = readCursor(value)
		case "ttlMs":
			page.TTL = readTTL(value)
		case "cacheScope":
			page.Public = wire.Unquote(value) == "public"
		}
	})
	if ok && string(list) == "null" {
		page.Issues = append(page.Issues,
			Issue{Item: k.ResultMember(), Problem: "it is null and counts as an empty list",
				Repaired: true, WholeList: true})
		return page, nil
	}
	if !ok || len(list) == 0 || list[0] != '[' {
		return Page{}, fmt.Errorf("the result of %s has no array %q", k.ListMethod(),
			k.ResultMember())
	}
	n := 0
	wire.EachElement(list, func(raw []byte) bool {
		item, schema, issue := parseItem(k, raw)
		if n == maxPageEntries {
			item, schema, issue = Item{}, nil,
				Issue{Problem: "it and the following entries are too many for one page"}
		}
		if issue.Problem != "" {
			if issue.Item = item.Original; item.Original == "" {
				issue.Item = fmt.Sprintf("%s[%d]", k.ResultMember(), n)
			}
			page.Issues = append(page.Issues, issue)
		}
		if issue.Problem == "" || issue.Repaired {
			page.add(item, schema)
		}
		n++
		return n <= maxPageEntries
	})
	return page, nil
}

// add adds an item to the page. If model APIs may reject its inputSchema, add also adds a warning;
// a nil schema is not checked.
func (p *Page) add(item Item, schema []byte) {
	item.sum = item.computeDigest()
	p.Items = append(p.Items, item)
	if schema == nil {
		return
	}
	if warning := modelAPIWarning(schema); warning != "" {
		p.Issues = append(p.Issues, Issue{Item: item.Original, Problem: warning, Suspicious: true})
	}
}

// readCursor returns value if it is a valid cursor, nil otherwise. Every string and number is
// valid, even the empty string, because the server determines the format of cursors.
func readCursor(value []byte) []byte {
	if c := value[0]; c == '"' || c == '-' || '0' <= c && c <= '9' {
		return value
	}
	return nil
}

// MarshalList returns the items as the result of a list request, which [ParsePage] can read.
func MarshalList(k Kind, items []Item) []byte {
	size := len(`{"":[]}`) + len(k.ResultMember())
	for i := range items {
		size += len(items[i].raw) + 1
	}
	b := appendListStart(make([]byte, 0, size), k)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, items[i].raw...)
	}
	return append(b, `]}`...)
}

// appendListStart appends the start of a list result.
func appendListStart(b []byte, k Kind) []byte {
	return append(append(append(b, `{"`...), k.ResultMember()...), `":[`...)
}

// A memberAt is the value of a member in an entry, and its offset.
type memberAt struct {
	value []byte
	at    int32
}

// findMember returns the first member of an entry with this name. twice is true if the member
// occurs more than once, so that clients may read different values. isObject is false if raw is not
// a JSON object.
func findMember(raw []byte, name string) (found memberAt, twice, isObject bool) {
	isObject = wire.Members(raw, func(key string, value []byte, at int) {
		switch {
		case key != name:
		case found.value != nil:
			twice = true
		default:
			found = memberAt{value, int32(at)}
		}
	})
	return found, twice, isObject
}

// parseItem reads one entry. The member that identifies it must be valid; the other members are
// repaired if they do not conform to MCP's schema. issue describes the repairs or, if it is not
// Repaired, why the entry has to be omitted; it has no Problem if the entry is valid. For a tool,
// schema is the inputSchema, unless a repair added or replaced it.
func parseItem(k Kind, raw []byte) (i Item, schema []byte, issue Issue) {
	key := kinds[k].key
	original, twice, isObject := findMember(raw, key)
	i = Item{Original: wire.Unquote(original.value), raw: raw, originalStart: original.at,
		originalEnd: original.at + int32(len(original.value))}
	switch longest := kinds[k].longest; {
	case !isObject:
		return Item{}, nil, Issue{Problem: "it is not an object"}
	case i.Original == "":
		return Item{}, nil, Issue{Problem: "it has no " + key}
	case len(i.Original) > longest:
		return Item{}, nil, Issue{Problem: fmt.Sprintf("its %s has more than %d bytes", key,
			longest)}
	case len(raw) > maxEntry:
		return i, nil, Issue{Problem: fmt.Sprintf("it has more than %d bytes", maxEntry)}
	case nestsDeeper(raw, maxNesting):
		return i, nil, Issue{Problem: fmt.Sprintf("it nests deeper than %d", maxNesting)}
	case twice:
		return i, nil, Issue{Problem: "its " + key + " occurs twice"}
	}
	var r repair
	i, problem := i.repairMembers(k, &r)
	if problem == "" && k == Tools {
		i, schema, problem = i.repairInputSchema(&r)
	}
	if problem != "" {
		return i, nil, Issue{Problem: problem}
	}
	if k == Templates {
		if i, problem = i.withURIPattern(&r); problem != "" {
			return i, nil, Issue{Problem: problem}
		}
	}
	problem = r.String()
	return i, schema, Issue{Problem: problem, Repaired: problem != ""}
}

// repairMembers replaces unpaired surrogates and numbers that are too large in an entry, and
// applies the rules of the kind to its members. If the entry has to be omitted, it returns the
// reason.
func (i Item) repairMembers(k Kind, r *repair) (Item, string) {
	if text, replaced := replaceLoneSurrogates(i.raw); replaced > 0 {
		if !k.isNamed() && !bytes.Equal(text[i.originalStart:i.originalEnd],
			i.raw[i.originalStart:i.originalEnd]) {
			return i, "its " + kinds[k].key + " contains an unpaired surrogate"
		}
		// keep the name as the backend wrote it: the entry is listed under another name
		copy(text[i.originalStart:i.originalEnd], i.originalLiteral())
		if !bytes.Equal(text, i.raw) {
			r.note("text", "contained an unpaired surrogate, which is replaced by U+FFFD")
		}
		i.raw = text
	}
	text, replaced := clampNumbers(i.raw)
	if replaced > 0 {
		r.note("number", "exceeded the range of a double and is replaced by the nearest one")
	}
	text = r.applyMembers(&rule{members: entryRules[k]}, text, "")
	if !k.isNamed() {
		text = r.ensureName(text, i.originalLiteral())
	}
	if wire.SameSlice(text, i.raw) {
		return i, ""
	}
	found, _, _ := findMember(text, kinds[k].key)
	i.raw, i.originalStart = text, found.at
	i.originalEnd = i.originalStart + int32(len(found.value))
	return i, ""
}

// ensureName sets the name of a resource or resource template to its URI if it has no name.
func (r *repair) ensureName(entry, uri []byte) []byte {
	if name, _ := wire.Lookup(entry, "name"); name != nil {
		return entry
	}
	r.note("name", "is missing and is taken from the URI")
	end := len(entry) - 1
	return slices.Concat(entry[:end], []byte(`,"name":`), uri, entry[end:])
}

// nestsDeeper reports whether the arrays and objects in a JSON text nest deeper than the given
// number of levels.
func nestsDeeper(text []byte, most int) bool {
	if bytes.Count(text, []byte{'{'})+bytes.Count(text, []byte{'['}) <= most {
		return false // nearly always
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
