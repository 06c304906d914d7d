package catalog

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"mcpgateway/wire"
)

// identifiers are the schemas in a schema that have an $id, by that, as JSON pointers.
type identifiers map[string]string

// ambiguous is in the place of a pointer if two schemas have the $id.
const ambiguous = "?"

// withoutIdentifiers returns a JSON Schema without $id; its references are JSON pointers where they were
// identifiers. It is the same bytes if there is no $id. The npm SDK has one table of identifiers for the
// tools of all backends, and fails if two schemas have the same one, or takes one for the other.
//
// A reference relative to an $id, other than "#…", stays, and leads nowhere.
func withoutIdentifiers(schema []byte) []byte {
	if !slices.ContainsFunc([]string{`$id`, `\u0024`, `\u0069`, `\u0064`}, func(text string) bool { return bytes.Contains(schema, []byte(text)) }) {
		return schema // as nearly always
	}
	ids := make(identifiers)
	ids.find(schema, "")
	if len(ids) == 0 {
		return schema
	}
	return ids.removed(schema, "", "")
}

// identifier returns the $id of a schema, the last one if it is there twice.
func identifier(schema []byte) (id string, there bool) {
	wire.Members(schema, func(key string, value []byte, _ int) {
		if key == "$id" && isText(value) {
			id, there = strings.TrimSuffix(wire.Unquote(value), "#"), true
		}
	})
	return id, there
}

func (ids identifiers) find(schema []byte, pointer string) {
	if id, there := identifier(schema); there {
		at := pointer
		if _, twice := ids[id]; twice {
			at = ambiguous
		}
		ids[id] = at
	}
	eachSchema(schema, pointer, func(inner []byte, pointer string) []byte {
		ids.find(inner, pointer)
		return inner
	})
}

// removed returns the schema that stands at a pointer without identifiers. base is the pointer to which
// its references are relative.
func (ids identifiers) removed(schema []byte, pointer, base string) []byte {
	if _, there := identifier(schema); there {
		base = pointer
	}
	schema = eachSchema(schema, pointer, func(inner []byte, pointer string) []byte { return ids.removed(inner, pointer, base) })
	return rebuilt(schema, func(key string, value []byte) (now []byte, keep bool) {
		if key == "$ref" && isText(value) {
			value = ids.reference(value, base)
		}
		return value, key != "$id" || !isText(value)
	})
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
	if pointer, known := ids[text]; known && pointer != ambiguous {
		return wire.Quote("#" + pointer)
	}
	id, fragment, _ := strings.Cut(text, "#")
	switch pointer, known := ids[id]; {
	case !known || pointer == ambiguous:
		return literal
	case fragment == "" || fragment[0] == '/':
		return wire.Quote("#" + pointer + fragment)
	}
	return wire.Quote("#" + fragment)
}

// eachSchema returns a schema with what is made of each schema directly in it.
func eachSchema(schema []byte, pointer string, made func(inner []byte, pointer string) []byte) []byte {
	object := func(value []byte, pointer string) []byte {
		if !wire.IsObject(value) {
			return value
		}
		return made(value, pointer)
	}
	return rebuilt(schema, func(key string, value []byte) (now []byte, keep bool) {
		pointer := pointer + "/" + token(key)
		switch {
		case isArray(value) && slices.Contains(schemaLists, key):
			n := -1
			return rebuiltArray(value, func(one []byte) []byte {
				n++
				return object(one, pointer+"/"+strconv.Itoa(n))
			}), true
		case slices.Contains(schemaMaps, key):
			return rebuilt(value, func(name string, one []byte) ([]byte, bool) { return object(one, pointer+"/"+token(name)), true }), true
		case slices.Contains(dataMembers, key):
			return value, true
		}
		return object(value, pointer), true
	})
}

// token returns a name as a part of a JSON pointer in a URI.
func token(name string) string {
	return url.PathEscape(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
}

// rebuilt returns an object with what is made of its members: the same bytes if that is the same. What is
// no object stays.
func rebuilt(object []byte, made func(key string, value []byte) (now []byte, keep bool)) []byte {
	b, changed, end := []byte{'{'}, false, 0
	ok := wire.Members(object, func(key string, value []byte, at int) {
		head := bytes.TrimLeft(object[end:at], " \t\r\n,{")
		end = at + len(value)
		now, keep := made(key, value)
		changed = changed || !keep || !same(now, value)
		if !keep {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, head...), now...)
	})
	if !ok || !changed {
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
