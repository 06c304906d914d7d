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

// An Item is one entry of a backend's list, in the backend's own bytes.
type Item struct {
	Original string // what the backend knows it by: its name, uri or uriTemplate

	raw      []byte   // the object
	at, end  int32    // where Own's literal stands in it
	template *pattern // nil = no URI is found by it
	sum      digest   // of all but Own's literal
}

// A digest tells one text from another.
type digest [16]byte

func (i *Item) digest() (d digest) {
	h := sha256.New()
	h.Write(i.raw[:i.at])
	h.Write([]byte{0}) // which no JSON has
	h.Write(i.raw[i.end:])
	copy(d[:], h.Sum(nil))
	return d
}

// Raw returns the entry's bytes, which must not be changed.
func (i Item) Raw() []byte { return i.raw }

// Description returns the entry's description, for people.
func (i Item) Description() string {
	text := ""
	wire.Members(i.raw, func(key string, value []byte, _ int) {
		if key == "description" {
			text = wire.Unquote(value)
		}
	})
	return text
}

// literal is Own as the backend writes it.
func (i *Item) literal() []byte { return i.raw[i.at:i.end:i.end] }

// as appends the entry to b under another name.
func (i *Item) as(b []byte, exposed string) []byte {
	if exposed == i.Original {
		return append(b, i.raw...)
	}
	return append(i.name(append(b, i.raw[:i.at]...), exposed), i.raw[i.end:]...)
}

// name appends the name by which the entry is exposed. One that is not Own needs no escapes.
func (i *Item) name(b []byte, exposed string) []byte {
	if exposed == i.Original {
		return append(b, i.literal()...)
	}
	return append(append(append(b, '"'), exposed...), '"')
}

// size is how many bytes as appends.
func (i *Item) size(exposed string) int {
	if exposed == i.Original {
		return len(i.raw)
	}
	return len(i.raw) - len(i.literal()) + len(exposed) + len(`""`)
}

// A Issue is something wrong with an entry that a backend lists.
type Issue struct {
	Item          string // its Own, or its place in the list if it has none
	Problem       string
	Repaired      bool   // it is listed, repaired as What says
	WholeList     bool   // the list itself is wrong, not an entry; Item is its member
	Suspicious    bool   // the entry is listed as it is, though some clients may not bear it; else it was left out, if not mended
	ConflictsWith string // if Odd: the Own of the entry without which it is not; "" = there is none
}

// Page is one answer to a request for a list.
type Page struct {
	Items      []Item
	Issues     []Issue
	NextCursor []byte        // the cursor of the page that follows, as JSON; nil on the last one
	TTL        time.Duration // for how long it says that it is good; 0 = it does not
	// Public says that it may be shown to whoever asks, as the page itself says
	// ("cacheScope").
	Public bool
}

// maxTTL bounds what a page may say of how long it is good.
const maxTTL = 24 * time.Hour

// ttl reads ttlMs. What is no whole number of milliseconds says nothing.
func ttl(value []byte) time.Duration {
	ms, err := strconv.ParseUint(string(value), 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && ms > uint64(maxTTL/time.Millisecond) {
		return maxTTL
	}
	return time.Duration(ms) * time.Millisecond
}

// maxListed bounds the entries of one page that are read. An entry costs some
// hundred bytes of memory, however short its text.
const maxListed = 10_000

// ParsePage reads the result of the request for a list. An entry that clients would refuse, and the
// whole list with it, is repaired where that is certain, and otherwise left out; a tool that some model
// APIs would refuse is listed as it is. Each of these is in Flaws. An entry without faults keeps its
// bytes. An error means that the result is not a list.
//
// The items keep result, which must not be changed afterwards.
func ParsePage(k Kind, result []byte) (Page, error) {
	var page Page
	var list []byte
	ok := wire.Members(result, func(key string, value []byte, _ int) {
		switch key {
		case k.ResultMember():
			list = value
		case "nextCursor":
			page.NextCursor = cursor(value)
		case "ttlMs":
			page.TTL = ttl(value)
		case "cacheScope":
			page.Public = wire.Unquote(value) == "public"
		}
	})
	if ok && string(list) == "null" {
		page.Issues = append(page.Issues, Issue{Item: k.ResultMember(), Problem: "it is null, and taken for an empty list", Repaired: true, WholeList: true})
		return page, nil
	}
	if !ok || len(list) == 0 || list[0] != '[' {
		return Page{}, fmt.Errorf("the result of %s has no array %q", k.ListMethod(), k.ResultMember())
	}
	n := 0
	wire.EachElement(list, func(raw []byte) bool {
		item, schema, flaw := parseItem(k, raw)
		if n == maxListed {
			item, schema, flaw = Item{}, nil, Issue{Problem: "it and what follows are too many for one page"}
		}
		if flaw.Problem != "" {
			if flaw.Item = item.Original; item.Original == "" {
				flaw.Item = fmt.Sprintf("%s[%d]", k.ResultMember(), n)
			}
			page.Issues = append(page.Issues, flaw)
		}
		if flaw.Problem == "" || flaw.Repaired {
			page.add(item, schema)
		}
		n++
		return n <= maxListed
	})
	return page, nil
}

// add takes an entry and notes a doubt about its inputSchema; nil = the schema needs no look.
func (p *Page) add(item Item, schema []byte) {
	item.sum = item.digest()
	p.Items = append(p.Items, item)
	if schema == nil {
		return
	}
	if what := doubt(schema); what != "" {
		p.Issues = append(p.Issues, Issue{Item: item.Original, Problem: what, Suspicious: true})
	}
}

// cursor returns value if a next page can be asked for with it. An empty string
// can be, too: what a cursor is made of is the server's business.
func cursor(value []byte) []byte {
	if c := value[0]; c == '"' || c == '-' || '0' <= c && c <= '9' {
		return value
	}
	return nil
}

// MarshalList returns the items of a listing as the result of the request for it,
// for [ParsePage] to read again.
func MarshalList(k Kind, items []Item) []byte {
	size := len(`{"":[]}`) + len(k.ResultMember())
	for i := range items {
		size += len(items[i].raw) + 1
	}
	b := open(make([]byte, 0, size), k)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, items[i].raw...)
	}
	return append(b, `]}`...)
}

// open appends the start of a result that is a list.
func open(b []byte, k Kind) []byte {
	return append(append(append(b, `{"`...), k.ResultMember()...), `":[`...)
}

// A field is a member of an entry that is looked at.
type field struct {
	value []byte
	at    int32
}

// look finds the member of an entry that has this name. twice is set if the member is there more than
// once, so that clients may differ on what it says.
func look(raw []byte, name string) (found field, twice, isObject bool) {
	isObject = wire.Members(raw, func(key string, value []byte, at int) {
		switch {
		case key != name:
		case found.value != nil:
			twice = true
		default:
			found = field{value, int32(at)}
		}
	})
	return found, twice, isObject
}

// parseItem reads one entry. The member that tells it from the others must be plain; the others are
// repaired if they are not as MCP's schema has them. A tool comes with its inputSchema, unless that was made here.
func parseItem(k Kind, raw []byte) (i Item, schema []byte, flaw Issue) {
	key := kinds[k].key
	own, twice, isObject := look(raw, key)
	i = Item{Original: wire.Unquote(own.value), raw: raw, at: own.at, end: own.at + int32(len(own.value))}
	switch longest := kinds[k].longest; {
	case !isObject:
		return Item{}, nil, Issue{Problem: "it is no object"}
	case i.Original == "":
		return Item{}, nil, Issue{Problem: "it has no " + key}
	case len(i.Original) > longest:
		return Item{}, nil, Issue{Problem: fmt.Sprintf("its %s has more than %d bytes", key, longest)}
	case len(raw) > maxEntry:
		return i, nil, Issue{Problem: fmt.Sprintf("it has more than %d bytes", maxEntry)}
	case nestsDeeper(raw, maxNesting):
		return i, nil, Issue{Problem: fmt.Sprintf("it nests deeper than %d", maxNesting)}
	case twice:
		return i, nil, Issue{Problem: "its " + key + " stands twice"}
	}
	var r repair
	i, what := i.repaired(k, &r)
	if what == "" && k == Tools {
		i, schema, what = i.mendSchema(&r)
	}
	if what != "" {
		return i, nil, Issue{Problem: what}
	}
	if k == Templates {
		if i, what = i.withPattern(&r); what != "" {
			return i, nil, Issue{Problem: what}
		}
	}
	what = r.String()
	return i, schema, Issue{Problem: what, Repaired: what != ""}
}

// repaired returns the entry with its members as the rules of its kind want them, or why it has to be
// left out.
func (i Item) repaired(k Kind, r *repair) (Item, string) {
	if text, places := mendSurrogates(i.raw); places > 0 {
		if !k.named() && !bytes.Equal(text[i.at:i.end], i.raw[i.at:i.end]) {
			return i, "its " + kinds[k].key + " has half of a surrogate pair"
		}
		copy(text[i.at:i.end], i.literal()) // a name is what the backend knows it by, and listed under another
		if !bytes.Equal(text, i.raw) {
			r.note("text", "had half of a surrogate pair, which is replaced by U+FFFD")
		}
		i.raw = text
	}
	text, places := mendNumbers(i.raw)
	if places > 0 {
		r.note("number", "was larger than a double can hold, and is the largest that it can")
	}
	text = r.object(&rule{members: entries[k]}, text, "")
	if !k.named() {
		text = r.named(text, i.literal())
	}
	if same(text, i.raw) {
		return i, ""
	}
	found, _, _ := look(text, kinds[k].key)
	i.raw, i.at = text, found.at
	i.end = i.at + int32(len(found.value))
	return i, ""
}

// named returns a resource, or a template of some, with a name: its URI if it has none.
func (r *repair) named(entry, uri []byte) []byte {
	if name, _ := wire.Lookup(entry, "name"); name != nil {
		return entry
	}
	r.note("name", "is missing and is taken from the URI")
	end := len(entry) - 1
	return slices.Concat(entry[:end], []byte(`,"name":`), uri, entry[end:])
}
