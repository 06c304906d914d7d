package catalog

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

// A rule describes the values that MCP's schema allows for a member of a list entry. Clients that
// validate lists reject a whole list because of one invalid value.
type rule struct {
	// description of the accepted values
	expected string
	// nil = every value is accepted
	accepts func(value []byte) bool
	// returns a replacement for a rejected value; nil or "" = the member is removed
	replacement func(value []byte) string
	// rules for the members of an object
	members rules
	// rule for all members of an object, whatever their names
	everyMember *rule
	// rule for the elements of an array; rejected elements are removed
	elements *rule
	// required member: an object without it, after the rules in members are applied, is rejected
	requiredMember string
	// the value is a JSON Schema: after the rules in members are applied, its identifiers are
	// removed, and it is rejected if clients cannot compile it
	mustCompile bool
}

// rules are the rules for the members of an object, by name. Members without a rule, and members
// with a nil rule, may have any value. A member whose name differs from a known one only in case is
// removed, because some clients, such as clients written in Go, read its value as the value of the
// known member.
type rules map[string]*rule

func stringRule(want string, accepts func(text string) bool) *rule {
	return &rule{expected: want, accepts: func(v []byte) bool {
		return isString(v) && (accepts == nil || accepts(wire.Unquote(v)))
	}}
}

func enumRule(texts ...string) *rule {
	return stringRule("one of "+strings.Join(texts, ", "), func(text string) bool {
		return slices.Contains(texts, text)
	})
}

func objectRule(members rules) *rule {
	return &rule{expected: "an object", accepts: wire.IsObject, members: members}
}

func arrayRule(elements *rule) *rule {
	return &rule{expected: "an array", accepts: isArray, elements: elements}
}

func stringArrayRule(want string, accepts func(text string) bool) *rule {
	one := stringRule("", accepts)
	return &rule{expected: want, accepts: func(v []byte) bool {
		return isArray(v) && allElements(v, one.accepts)
	}}
}

func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isBool(v []byte) bool   { return string(v) == "true" || string(v) == "false" }

func isWholeNumber(v []byte) bool {
	_, err := strconv.ParseUint(string(v), 10, 63) // 64 bits in typed clients, some unsigned
	return err == nil
}

func isFraction(v []byte) bool {
	f, err := strconv.ParseFloat(string(v), 64)
	return err == nil && !math.IsNaN(f) && 0 <= f && f <= 1 &&
		(v[0] == '-' || '0' <= v[0] && v[0] <= '9')
}

var rfc3339 = lazy.Regexp(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):\d\d)$`)

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil && rfc3339().MatchString(text)
}

func isRole(text string) bool { return text == "user" || text == "assistant" }

var (
	anyString = stringRule("a string", nil)
	boolRule  = &rule{expected: "true or false", accepts: isBool}
	metaRule  = objectRule(nil)
	iconsRule = arrayRule(&rule{
		expected: "an object with src", accepts: wire.IsObject, requiredMember: "src",
		members: rules{
			"src": anyString, "mimeType": anyString,
			"sizes": stringArrayRule("an array of strings", nil),
			"theme": enumRule("light", "dark"),
		},
	})
	annotationsRule = objectRule(rules{
		"audience":     stringArrayRule(`an array of "user" and "assistant"`, isRole),
		"priority":     {expected: "a number from 0 to 1", accepts: isFraction},
		"lastModified": stringRule("a time with a zone, such as 2025-01-12T15:00:58Z", isTime),
	})
	schemaMapRule = &rule{
		expected: "an object", accepts: wire.IsObject, replacement: emptyObject,
		everyMember: &rule{
			expected: "an object", accepts: wire.IsObject, replacement: func(v []byte) string {
				if string(v) == "false" {
					return `{"not":{}}` // false as an object; {} is true as an object
				}
				return "{}"
			},
		},
	}
	definitionsRule = &rule{expected: "an object", accepts: wire.IsObject, replacement: emptyObject}
	requiredRule    = stringArrayRule("an array of strings", nil)
)

func emptyObject([]byte) string { return "{}" }

// entryRules are the rules of the four lists. They contain the members of the official schemas of
// all revisions, 2024-11-05 to 2026-07-28. Clients of an earlier revision ignore the members that
// were added later. parseItem checks the member that identifies an entry.
var entryRules = [NumKinds]rules{
	Tools: {
		"name": nil, "title": anyString, "description": anyString,
		"icons": iconsRule, "_meta": metaRule,
		"annotations": objectRule(rules{
			"title": anyString, "readOnlyHint": boolRule, "destructiveHint": boolRule,
			"idempotentHint": boolRule, "openWorldHint": boolRule,
		}),
		"execution": objectRule(rules{
			"taskSupport": enumRule("forbidden", "optional", "required"),
		}),
		"inputSchema": {members: rules{ // repairInputSchema handles values that are not objects
			"type":       {expected: "a string", accepts: isString, replacement: objectTypeOf},
			"properties": schemaMapRule, "required": requiredRule,
			"$defs": definitionsRule, "definitions": definitionsRule,
			"$schema": anyString, "additionalProperties": nil,
		}},
		// The npm SDK compiles each outputSchema in listTools, and rejects the list if one fails to
		// compile.
		"outputSchema": {
			expected: "an object", accepts: wire.IsObject, mustCompile: true,
			members: rules{
				"type": {expected: "a string or an array of strings", accepts: func(v []byte) bool {
					return isString(v) || requiredRule.accepts(v)
				}},
				"properties": schemaMapRule, "required": requiredRule,
				"$defs": definitionsRule, "definitions": definitionsRule,
				"$schema": anyString, "additionalProperties": nil,
			},
		},
		"defer_loading": boolRule, // a member of Anthropic's API, which mcp-go reads
	},
	Prompts: {
		"name": nil, "title": anyString, "description": anyString,
		"icons": iconsRule, "_meta": metaRule,
		"arguments": arrayRule(&rule{
			expected: "an object with a name", accepts: wire.IsObject, requiredMember: "name",
			members: rules{
				"name": anyString, "title": anyString,
				"description": anyString, "required": boolRule,
			},
		}),
	},
	Resources: {
		"uri": nil, "name": anyString, "title": anyString, "description": anyString,
		"mimeType": anyString, "icons": iconsRule, "_meta": metaRule,
		"annotations": annotationsRule,
		"size":        {expected: "a whole number that is not negative", accepts: isWholeNumber},
	},
	Templates: {
		"uriTemplate": nil, "name": anyString, "title": anyString, "description": anyString,
		"mimeType": anyString, "icons": iconsRule, "_meta": metaRule,
		"annotations": annotationsRule,
	},
}

// objectTypeOf returns "object" if types, the type of an inputSchema, is a list that contains
// "object", because arguments are always an object. Otherwise it returns "".
func objectTypeOf(types []byte) string {
	if isArray(types) {
		for _, t := range wire.Elements(types) {
			if wire.Unquote(t) == "object" {
				return `"object"`
			}
		}
	}
	return ""
}

// A repair changes an entry so that clients accept it, and records each change.
type repair struct {
	notes   []string
	omitted int // number of notes beyond maxNotes
}

const (
	// maxNotes bounds the recorded repairs of one entry.
	maxNotes = 8
	// maxNote bounds the path in a note about a repair, in bytes, because backends choose the names
	// in the path.
	maxNote = 100
)

func (r *repair) note(path, change string) {
	if len(r.notes) == maxNotes {
		r.omitted++
		return
	}
	r.notes = append(r.notes, text.Truncate(path, maxNote)+" "+change)
}

// String returns the notes as one text, "" if there are none.
func (r *repair) String() string {
	text := strings.Join(r.notes, "; ")
	if r.omitted > 0 {
		text += "; and " + strconv.Itoa(r.omitted) + " more"
	}
	return text
}

// applyRule repairs a value. It returns value itself if nothing has to be changed. ok is false if
// the value must be removed, because the rule rejects it and has no replacement.
func (r *repair) applyRule(rule *rule, value []byte, path string) (repaired []byte, ok bool) {
	if rule.accepts != nil && !rule.accepts(value) {
		instead := ""
		if rule.replacement != nil {
			instead = rule.replacement(value)
		}
		if instead == "" {
			r.note(path, "was not "+rule.expected+" and is removed")
			return nil, false
		}
		r.note(path, "was not "+rule.expected+" and is replaced by "+instead)
		value = []byte(instead)
	}
	switch {
	case (rule.members != nil || rule.everyMember != nil) && wire.IsObject(value):
		value = r.applyMembers(rule, value, path)
		if rule.requiredMember != "" {
			if needed, _ := wire.Lookup(value, rule.requiredMember); needed == nil {
				r.note(path, "has no "+rule.requiredMember+" and is removed")
				return nil, false
			}
		}
		if rule.mustCompile {
			return r.checkSchema(value, path)
		}
	case rule.elements != nil && isArray(value):
		value = r.applyElements(rule.elements, value, path)
	}
	return value, true
}

// checkSchema removes identifiers from a JSON Schema; ok is false if clients cannot compile it.
func (r *repair) checkSchema(schema []byte, path string) (repaired []byte, ok bool) {
	repaired = withoutIdentifiers(schema)
	if at, problem := checkCompiles(repaired); problem != "" {
		r.note(path+at, problem+"; "+path+" is removed")
		return nil, false
	}
	if !wire.SameSlice(repaired, schema) {
		r.note(path,
			"had $id, which some clients share between all tools, and which is removed")
	}
	return repaired, true
}

// A memberPart is a member of an object: the text before its value, which contains the key, and
// the value.
type memberPart struct {
	key         string
	head, value []byte
	dropped     bool
}

// applyMembers repairs the members of an object. It returns object itself if nothing changes. If a
// member that has a rule in rule.members occurs several times, only the last valid one stays.
func (r *repair) applyMembers(rule *rule, object []byte, path string) []byte {
	if path != "" {
		path += "."
	}
	parts := make([]memberPart, 0, 16)
	var kept []int // indexes in parts of the members with a rule that are not dropped
	changed, size, end := false, len("{}"), 0
	wire.Members(object, func(key string, value []byte, at int) {
		p := memberPart{key: key, head: bytes.TrimLeft(object[end:at], " \t\r\n,{"), value: value}
		end = at + len(value)
		of, name := rule.find(key)
		if name != key {
			r.note(path+key, "differs from "+name+" in case and is removed")
			p.dropped, changed = true, true
		} else if of != nil {
			repaired, ok := r.applyRule(of, value, path+key)
			changed = changed || !ok || !wire.SameSlice(repaired, value)
			p.value, p.dropped = repaired, !ok
			if ok && rule.everyMember == nil { // parsers of schemas use the last duplicate
				if earlier := slices.IndexFunc(kept,
					func(i int) bool { return parts[i].key == key }); earlier >= 0 {
					r.note(path+key, "occurred twice, and the last one stays")
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

// find returns the rule for a member, nil if there is none. name is key, or the name of a known
// member that differs from key only in case.
func (r *rule) find(key string) (of *rule, name string) {
	if r.everyMember != nil {
		return r.everyMember, key
	}
	if one, ok := r.members[key]; ok {
		return one, key
	}
	for name := range r.members {
		// A key that differs from name only in case can be up to three times as long: the Kelvin
		// sign, of three bytes, equals k.
		if len(name) <= len(key) && len(key) <= 3*len(name) && strings.EqualFold(name, key) {
			return nil, name
		}
	}
	return nil, key
}

// applyElements repairs the elements of an array and removes those that are rejected.
func (r *repair) applyElements(rule *rule, array []byte, path string) []byte {
	var kept [][]byte
	changed, i := false, 0
	wire.EachElement(array, func(one []byte) bool {
		repaired, ok := r.applyRule(rule, one, path+"["+strconv.Itoa(i)+"]")
		changed = changed || !ok || !wire.SameSlice(repaired, one)
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

// replaceLoneSurrogates replaces the escape of each unpaired surrogate in a JSON text by \ufffd,
// because strict parsers reject the whole text. The length of the text does not change. If nothing
// is replaced, it returns text itself.
func replaceLoneSurrogates(text []byte) (result []byte, replaced int) {
	result = text
	for i := 0; ; {
		at := bytes.IndexByte(text[i:], '\\')
		if at < 0 || i+at+1 >= len(text) {
			return result, replaced
		}
		at += i
		i = at + 2
		first := codeUnit(text, at)
		if first < 0xd800 || first > 0xdfff {
			continue
		}
		if second := codeUnit(text, at+6); first < 0xdc00 && 0xdc00 <= second && second <= 0xdfff {
			i = at + 12
			continue
		}
		if replaced == 0 {
			result = bytes.Clone(text)
		}
		replaced++
		copy(result[at:], `\ufffd`)
		i = at + 6
	}
}

// clampNumbers replaces each number in a JSON text that exceeds the range of a double by the
// nearest number in this range, because strict parsers reject the whole text. If nothing is
// replaced, it returns text itself.
func clampNumbers(text []byte) (result []byte, replaced int) {
	const exponent = "1.7976931348623157e308"
	from := 0 // end of the text that is already in result
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
			if number := text[i:end]; exceedsDouble(number) {
				result = append(result, text[from:i]...)
				if c == '-' {
					result = append(result, '-')
				}
				result = append(result, exponent...)
				from = end
				replaced++
			}
			i = end
		default:
			i++
		}
	}
	if replaced == 0 {
		return text, 0
	}
	return append(result, text[from:]...), replaced
}

// exceedsDouble reports whether a number exceeds the range of a double.
func exceedsDouble(number []byte) bool {
	if len(number) < 300 && bytes.IndexByte(number, 'e') < 0 && bytes.IndexByte(number, 'E') < 0 {
		return false // nearly always
	}
	_, err := strconv.ParseFloat(string(number), 64)
	return err != nil
}

// codeUnit returns the code unit of the escape \uXXXX at this offset, -1 if there is no such
// escape.
func codeUnit(text []byte, at int) int {
	if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}
