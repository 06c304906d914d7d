package catalog

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// identifiers are the schemas in a schema that have an $id.
type identifiers struct {
	pointers map[string]string // by $id
	places   map[string]bool   // by JSON pointer
}

// ambiguous is in the place of a pointer if two schemas have the $id.
const ambiguous = "?"

// withoutIdentifiers returns a JSON Schema without $id; its references are JSON pointers where they
// were identifiers. It is the same bytes if there is no $id. The npm SDK has one table of
// identifiers for the tools of all backends, and fails if two schemas have the same one, or takes
// one for the other.
//
// A reference relative to an $id, other than "#…", stays, and leads nowhere.
func withoutIdentifiers(schema []byte) []byte {
	spelled := func(text string) bool { return bytes.Contains(schema, []byte(text)) }
	if !slices.ContainsFunc([]string{`$id`, `\u0024`, `\u0069`, `\u0064`}, spelled) {
		return schema // as nearly always
	}
	ids := identifiers{make(map[string]string), make(map[string]bool)}
	ids.find(schema, "")
	if len(ids.places) == 0 {
		return schema
	}
	return ids.removed(schema, "", "")
}

// find notes the identifiers of the schema that stands at a pointer, and of those in it.
func (ids identifiers) find(schema []byte, pointer string) {
	id, there := "", false
	rebuiltSchema(schema, pointer, func(key string, value []byte) ([]byte, bool) {
		if key == "$id" && isText(value) {
			id, there = strings.TrimSuffix(wire.Unquote(value), "#"), true // the last one counts
		}
		return value, true
	}, func(inner []byte, pointer string) []byte {
		ids.find(inner, pointer)
		return inner
	})
	if !there {
		return
	}
	ids.places[pointer] = true
	if _, twice := ids.pointers[id]; twice {
		pointer = ambiguous
	}
	ids.pointers[id] = pointer
}

// removed returns the schema that stands at a pointer without identifiers. base is the pointer to which
// its references are relative.
func (ids identifiers) removed(schema []byte, pointer, base string) []byte {
	if ids.places[pointer] {
		base = pointer
	}
	return rebuiltSchema(schema, pointer, func(key string, value []byte) (now []byte, keep bool) {
		if key == "$ref" && isText(value) {
			value = ids.reference(value, base)
		}
		return value, key != "$id" || !isText(value)
	}, func(inner []byte, pointer string) []byte { return ids.removed(inner, pointer, base) })
}

// reference returns the value of $ref without an identifier.
func (ids identifiers) reference(literal []byte, base string) []byte {
	text := wire.Unquote(literal)
	if strings.HasPrefix(text, "#/") || text == "#" {
		if base == "" {
			return literal
		}
		return wire.Quote("#" + base + text[1:])
	}
	if pointer, known := ids.pointers[text]; known && pointer != ambiguous {
		return wire.Quote("#" + pointer)
	}
	id, fragment, _ := strings.Cut(text, "#")
	switch pointer, known := ids.pointers[id]; {
	case !known || pointer == ambiguous:
		return literal
	case fragment == "" || fragment[0] == '/':
		return wire.Quote("#" + pointer + fragment)
	}
	return wire.Quote("#" + fragment)
}

// rebuiltSchema returns a schema with what is made of each schema directly in it, and of its other
// members.
func rebuiltSchema(schema []byte, pointer string, member func(key string, value []byte) (now []byte, keep bool),
	made func(inner []byte, pointer string) []byte) []byte {
	object := func(value []byte, pointer string) []byte {
		if !wire.IsObject(value) {
			return value
		}
		return made(value, pointer)
	}
	return rebuilt(schema, func(key string, value []byte) (now []byte, keep bool) {
		isList := isArray(value) && hasSchemaList(key)
		if !isList && !wire.IsObject(value) || slices.Contains(dataMembers, key) {
			return member(key, value)
		}
		pointer := pointer + "/" + token(key)
		switch {
		case isList:
			n := -1
			return rebuiltArray(value, func(one []byte) []byte {
				n++
				return object(one, pointer+"/"+strconv.Itoa(n))
			}), true
		case hasSchemaMap(key):
			return rebuilt(value, func(name string, one []byte) ([]byte, bool) {
				return object(one, pointer+"/"+token(name)), true
			}), true
		}
		return made(value, pointer), true
	})
}

// token returns a name as a part of a JSON pointer in a URI.
func token(name string) string {
	return url.PathEscape(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
}

// rebuilt returns an object with what is made of its members: the same bytes if that is the same.
// What is no object stays.
func rebuilt(object []byte, made func(key string, value []byte) (now []byte, keep bool)) []byte {
	var b []byte // from the first change on
	end := len("{")
	ok := wire.Members(object, func(key string, value []byte, at int) {
		now, keep := made(key, value)
		if b == nil && (!keep || !same(now, value)) {
			b = append(make([]byte, 0, len(object)), object[:end]...)
		}
		if b != nil && keep {
			if len(b) > len("{") {
				b = append(b, ',')
			}
			b = append(append(b, bytes.TrimLeft(object[end:at], " \t\r\n,")...), now...)
		}
		end = at + len(value)
	})
	if !ok || b == nil {
		return object
	}
	return append(b, '}')
}

// rebuiltArray is rebuilt for the elements of an array.
func rebuiltArray(array []byte, made func(one []byte) []byte) []byte {
	var all [][]byte
	changed := false
	wire.EachElement(array, func(one []byte) bool {
		now := made(one)
		changed = changed || !same(now, one)
		all = append(all, now)
		return true
	})
	if !changed {
		return array
	}
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']')
}

// same reports whether two slices are the same memory.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
