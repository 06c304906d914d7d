package catalog

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/wire"
)

// A rule says which values a member of a list entry may have by MCP's schema. Clients that validate
// refuse a whole list for one value that is not so.
type rule struct {
	want     string                    // of a value that is accepted, in words
	accepts  func(value []byte) bool   // nil = every value
	instead  func(value []byte) string // takes the place of a value that is not accepted; nil or "" = it is removed
	members  rules                     // of a value that is an object
	all      *rule                     // of every member of a value that is an object, whatever its name
	elements *rule                     // of a value that is an array; one that is not accepted is removed
	needs    string                    // a member without which an object is not accepted, as members leaves it
	compiled bool                      // an object, as members leaves it, is not accepted if clients cannot compile it
}

// rules are those of the members of an object, by name. Other members, and those with nil, may have any
// value. A member whose name differs from one of these in case alone is removed: some clients, such as
// those in Go, take its value for that of the other.
type rules map[string]*rule

func aText(want string, accepts func(text string) bool) *rule {
	return &rule{want: want, accepts: func(v []byte) bool { return isText(v) && (accepts == nil || accepts(wire.Unquote(v))) }}
}

func oneOf(texts ...string) *rule {
	return aText("one of "+strings.Join(texts, ", "), func(text string) bool {
		return slices.Contains(texts, text)
	})
}

func anObject(members rules) *rule {
	return &rule{want: "an object", accepts: wire.IsObject, members: members}
}

func anArrayOf(elements *rule) *rule {
	return &rule{want: "an array", accepts: isArray, elements: elements}
}

func texts(want string, accepts func(text string) bool) *rule {
	one := aText("", accepts)
	return &rule{want: want, accepts: func(v []byte) bool { return isArray(v) && each(v, one.accepts) }}
}

func isText(v []byte) bool  { return len(v) > 0 && v[0] == '"' }
func isArray(v []byte) bool { return len(v) > 0 && v[0] == '[' }
func isBool(v []byte) bool  { return string(v) == "true" || string(v) == "false" }

func isSize(v []byte) bool {
	_, err := strconv.ParseUint(string(v), 10, 63) // what typed clients keep it in, some of them unsigned
	return err == nil
}

func isPart(v []byte) bool {
	f, err := strconv.ParseFloat(string(v), 64)
	return err == nil && !math.IsNaN(f) && 0 <= f && f <= 1 && (v[0] == '-' || '0' <= v[0] && v[0] <= '9')
}

var rfc3339 = lazy.Regexp(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):\d\d)$`)

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil && rfc3339().MatchString(text)
}

func isRole(text string) bool { return text == "user" || text == "assistant" }

var (
	anyText = aText("a string", nil)
	aBool   = &rule{want: "true or false", accepts: isBool}
	meta    = anObject(nil)
	icons   = anArrayOf(&rule{want: "an object with src", accepts: wire.IsObject, needs: "src", members: rules{
		"src": anyText, "mimeType": anyText, "sizes": texts("an array of strings", nil), "theme": oneOf("light", "dark"),
	}})
	annotations = anObject(rules{
		"audience":     texts(`an array of "user" and "assistant"`, isRole),
		"priority":     {want: "a number from 0 to 1", accepts: isPart},
		"lastModified": aText("a time with a zone, such as 2025-01-12T15:00:58Z", isTime),
	})
	schemas = &rule{want: "an object", accepts: wire.IsObject, instead: emptyObject, all: &rule{
		want: "an object", accepts: wire.IsObject, instead: func(v []byte) string {
			if string(v) == "false" {
				return `{"not":{}}` // the same in the form of an object, as {} is of true
			}
			return "{}"
		}}}
	definitions = &rule{want: "an object", accepts: wire.IsObject, instead: emptyObject}
	required    = texts("an array of strings", nil)
)

func emptyObject([]byte) string { return "{}" }

// entries are the rules of the four lists. The members are those of the official schemas of all
// revisions, 2024-11-05 to 2026-07-28. Clients of an earlier revision ignore a member that it does not
// have. The member that tells an entry from the others is checked elsewhere.
var entries = [NumKinds]rules{
	Tools: {
		"name": nil, "title": anyText, "description": anyText, "icons": icons, "_meta": meta,
		"annotations": anObject(rules{
			"title": anyText, "readOnlyHint": aBool, "destructiveHint": aBool, "idempotentHint": aBool, "openWorldHint": aBool,
		}),
		"execution": anObject(rules{"taskSupport": oneOf("forbidden", "optional", "required")}),
		"inputSchema": {members: rules{ // what is not an object is seen to by mendSchema
			"type":       {want: "a string", accepts: isText, instead: objectType},
			"properties": schemas, "required": required, "$defs": definitions, "definitions": definitions,
			"$schema": anyText, "additionalProperties": nil,
		}},
		// The npm SDK compiles it in listTools, and refuses the list if that fails.
		"outputSchema": {want: "an object", accepts: wire.IsObject, compiled: true, members: rules{
			"type":       {want: "a string or an array of strings", accepts: func(v []byte) bool { return isText(v) || required.accepts(v) }},
			"properties": schemas, "required": required, "$defs": definitions, "definitions": definitions,
			"$schema": anyText, "additionalProperties": nil,
		}},
		"defer_loading": aBool, // of Anthropic's API, which mcp-go reads
	},
	Prompts: {
		"name": nil, "title": anyText, "description": anyText, "icons": icons, "_meta": meta,
		"arguments": anArrayOf(&rule{want: "an object with a name", accepts: wire.IsObject, needs: "name", members: rules{
			"name": anyText, "title": anyText, "description": anyText, "required": aBool,
		}}),
	},
	Resources: {
		"uri": nil, "name": anyText, "title": anyText, "description": anyText, "mimeType": anyText, "icons": icons, "_meta": meta,
		"annotations": annotations, "size": {want: "a whole number that is not negative", accepts: isSize},
	},
	Templates: {
		"uriTemplate": nil, "name": anyText, "title": anyText, "description": anyText, "mimeType": anyText, "icons": icons, "_meta": meta,
		"annotations": annotations,
	},
}

// objectType returns the type of an inputSchema that names several of which one is "object": arguments
// are always an object.
func objectType(types []byte) string {
	if isArray(types) {
		for _, t := range wire.Elements(types) {
			if wire.Unquote(t) == "object" {
				return `"object"`
			}
		}
	}
	return ""
}

// A repair changes an entry so that clients accept it, and notes each change.
type repair struct {
	notes []string
	more  int // notes beyond maxNotes
}

const (
	// maxNotes bounds the repairs of one entry that are named.
	maxNotes = 8
	// maxNote is how much of the place of a repair is named, in bytes: backends choose the names.
	maxNote = 100
)

func (r *repair) note(path, what string) {
	if len(r.notes) == maxNotes {
		r.more++
		return
	}
	if len(path) > maxNote {
		path = strings.ToValidUTF8(path[:maxNote], "") + "…"
	}
	r.notes = append(r.notes, path+" "+what)
}

// String returns the notes as one text, "" if there are none.
func (r *repair) String() string {
	text := strings.Join(r.notes, "; ")
	if r.more > 0 {
		text += "; and " + strconv.Itoa(r.more) + " more"
	}
	return text
}

// value returns a value as a rule wants it: the same bytes if it is so. ok is false if it is not
// accepted and nothing takes its place.
func (r *repair) value(rule *rule, value []byte, path string) (repaired []byte, ok bool) {
	if rule.accepts != nil && !rule.accepts(value) {
		instead := ""
		if rule.instead != nil {
			instead = rule.instead(value)
		}
		if instead == "" {
			r.note(path, "was not "+rule.want+" and is removed")
			return nil, false
		}
		r.note(path, "was not "+rule.want+" and is replaced by "+instead)
		value = []byte(instead)
	}
	switch {
	case (rule.members != nil || rule.all != nil) && wire.IsObject(value):
		value = r.object(rule, value, path)
		if rule.needs != "" {
			if needed, _ := wire.Lookup(value, rule.needs); needed == nil {
				r.note(path, "has no "+rule.needs+" and is removed")
				return nil, false
			}
		}
		if rule.compiled {
			return r.compiled(value, path)
		}
	case rule.elements != nil && isArray(value):
		value = r.array(rule.elements, value, path)
	}
	return value, true
}

// compiled returns a JSON Schema without identifiers; ok is false if clients cannot compile it.
func (r *repair) compiled(schema []byte, path string) (repaired []byte, ok bool) {
	repaired = withoutIdentifiers(schema)
	if at, problem := notCompiled(repaired); problem != "" {
		r.note(path+at, problem+"; "+path+" is removed")
		return nil, false
	}
	if !same(repaired, schema) {
		r.note(path, "had $id, which some clients keep for all tools together, and which is removed")
	}
	return repaired, true
}

// A part is one member of an object: the text before its value, which names it, and the value.
type part struct {
	key         string
	head, value []byte
	dropped     bool
}

// object returns an object with its members as the rules want them: the same bytes if they are so.
// Of a member that is there twice the last one stays.
func (r *repair) object(rule *rule, object []byte, path string) []byte {
	if path != "" {
		path += "."
	}
	parts := make([]part, 0, 16)
	var kept []int // of parts, those to which a rule of their own applies and that are not dropped
	changed, size, end := false, len("{}"), 0
	wire.Members(object, func(key string, value []byte, at int) {
		p := part{key: key, head: bytes.TrimLeft(object[end:at], " \t\r\n,{"), value: value}
		end = at + len(value)
		of, name := rule.find(key)
		if name != key {
			r.note(path+key, "differs from "+name+" in case and is removed")
			p.dropped, changed = true, true
		} else if of != nil {
			repaired, ok := r.value(of, value, path+key)
			changed = changed || !ok || !same(repaired, value)
			p.value, p.dropped = repaired, !ok
			if ok && rule.all == nil { // of two properties of a schema parsers take the last
				if earlier := slices.IndexFunc(kept, func(i int) bool { return parts[i].key == key }); earlier >= 0 {
					r.note(path+key, "was there twice, of which the last stays")
					parts[kept[earlier]].dropped, changed = true, true
					kept[earlier] = len(parts)
				} else {
					kept = append(kept, len(parts))
				}
			}
		}
		parts = append(parts, p)
		size += len(p.head) + len(p.value) + 1
	})
	if !changed {
		return object
	}
	b := append(make([]byte, 0, size), '{')
	for _, p := range parts {
		if p.dropped {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, p.head...), p.value...)
	}
	return append(b, '}')
}

// find returns the rule of a member, nil if there is none, and its name, which is another than key if
// they differ in case alone.
func (r *rule) find(key string) (of *rule, name string) {
	if r.all != nil {
		return r.all, key
	}
	if one, ok := r.members[key]; ok {
		return one, key
	}
	for name := range r.members {
		// No name is longer in another case than three bytes for each of its own: K may be a Kelvin sign.
		if len(name) <= len(key) && len(key) <= 3*len(name) && strings.EqualFold(name, key) {
			return nil, name
		}
	}
	return nil, key
}

// array returns an array with its elements as the rule wants them, without those that are not accepted.
func (r *repair) array(rule *rule, array []byte, path string) []byte {
	var kept [][]byte
	changed, i := false, 0
	wire.EachElement(array, func(one []byte) bool {
		repaired, ok := r.value(rule, one, path+"["+strconv.Itoa(i)+"]")
		changed = changed || !ok || !same(repaired, one)
		if ok {
			kept = append(kept, repaired)
		}
		i++
		return true
	})
	if !changed {
		return array
	}
	return append(append([]byte{'['}, bytes.Join(kept, []byte{','})...), ']')
}

// mendSurrogates returns a JSON text in which each half of a surrogate pair that stands alone, which
// strict parsers refuse with all that is around it, is U+FFFD. The text is as long as before.
func mendSurrogates(text []byte) (mended []byte, places int) {
	mended = text
	for i := 0; ; {
		at := bytes.IndexByte(text[i:], '\\')
		if at < 0 || i+at+1 >= len(text) {
			return mended, places
		}
		at += i
		i = at + 2
		first := unit(text, at)
		if first < 0xd800 || first > 0xdfff {
			continue
		}
		if second := unit(text, at+6); first < 0xdc00 && 0xdc00 <= second && second <= 0xdfff {
			i = at + 12
			continue
		}
		if places == 0 {
			mended = bytes.Clone(text)
		}
		places++
		copy(mended[at:], `\ufffd`)
		i = at + 6
	}
}

// mendNumbers returns a JSON text in which the numbers that no double can hold, which strict parsers
// refuse with all that is around them, are the nearest ones that it can.
func mendNumbers(text []byte) (mended []byte, places int) {
	const exponent = "1.7976931348623157e308"
	from := 0 // of text, what is not in mended yet
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i++
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(text) && strings.IndexByte("0123456789+-.eE", text[end]) >= 0 {
				end++
			}
			if number := text[i:end]; tooLarge(number) {
				mended = append(mended, text[from:i]...)
				if c == '-' {
					mended = append(mended, '-')
				}
				mended = append(mended, exponent...)
				from = end
				places++
			}
			i = end
		default:
			i++
		}
	}
	if places == 0 {
		return text, 0
	}
	return append(mended, text[from:]...), places
}

// tooLarge reports whether no double can hold a number.
func tooLarge(number []byte) bool {
	if len(number) < 300 && bytes.IndexByte(number, 'e') < 0 && bytes.IndexByte(number, 'E') < 0 {
		return false // as nearly always
	}
	_, err := strconv.ParseFloat(string(number), 64)
	return err != nil
}

// unit returns the code unit that the escape \uXXXX at a place stands for, -1 if there is no such one.
func unit(text []byte, at int) int {
	if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}
