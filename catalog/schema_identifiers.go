package catalog

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// identifiers are the schemas with an $id that is a string: the root and its subschemas.
type identifiers struct {
	pointers  map[string]string // JSON pointer by $id
	locations map[string]bool   // by JSON pointer
}

// ambiguousPointer replaces the pointer if two schemas have the same $id.
const ambiguousPointer = "?"

// withoutIdentifiers returns a JSON Schema without each $id that is a string, in which references
// to identifiers are replaced by JSON pointers. It returns schema itself if there is no such $id.
// The npm SDK has one table of identifiers for the tools of all backends. If two schemas have the
// same identifier, the SDK fails or confuses the schemas.
//
// Two kinds of references are not replaced, and have no target in the result: a reference that is
// relative to an $id and does not begin with "#", and one to an identifier that two schemas have.
func withoutIdentifiers(schema []byte) []byte {
	spelled := func(text string) bool { return bytes.Contains(schema, []byte(text)) }
	if !slices.ContainsFunc([]string{`$id`, `\u0024`, `\u0069`, `\u0064`}, spelled) {
		return schema // nearly always
	}
	ids := identifiers{make(map[string]string), make(map[string]bool)}
	ids.find(schema, "")
	if len(ids.locations) == 0 {
		return schema
	}
	return ids.removeFrom(schema, "", "")
}

// find records the identifiers of the schema at pointer and of its subschemas.
func (ids identifiers) find(schema []byte, pointer string) {
	id, hasID := "", false
	editSchema(schema, pointer, func(key string, value []byte) ([]byte, bool) {
		if key == "$id" && isString(value) {
			// the last duplicate counts
			id, hasID = strings.TrimSuffix(wire.Unquote(value), "#"), true
		}
		return value, true
	}, func(inner []byte, pointer string) []byte {
		ids.find(inner, pointer)
		return inner
	})
	if !hasID {
		return
	}
	ids.locations[pointer] = true
	if _, twice := ids.pointers[id]; twice {
		pointer = ambiguousPointer
	}
	ids.pointers[id] = pointer
}

// removeFrom removes the identifiers from the schema at pointer. base is the pointer of the nearest
// outer schema with an identifier: references are relative to it if the schema has no identifier.
func (ids identifiers) removeFrom(schema []byte, pointer, base string) []byte {
	if ids.locations[pointer] {
		base = pointer
	}
	return editSchema(schema, pointer, func(key string, value []byte) (now []byte, keep bool) {
		if key == "$ref" && isString(value) {
			value = ids.reference(value, base)
		}
		return value, key != "$id" || !isString(value)
	}, func(inner []byte, pointer string) []byte { return ids.removeFrom(inner, pointer, base) })
}

// reference returns the new value of a $ref, with an identifier replaced by its JSON pointer.
func (ids identifiers) reference(literal []byte, base string) []byte {
	text := wire.Unquote(literal)
	if strings.HasPrefix(text, "#/") || text == "#" {
		if base == "" {
			return literal
		}
		return wire.Quote("#" + base + text[1:])
	}
	if pointer, known := ids.pointers[text]; known && pointer != ambiguousPointer {
		return wire.Quote("#" + pointer)
	}
	id, fragment, _ := strings.Cut(text, "#")
	switch pointer, known := ids.pointers[id]; {
	case !known || pointer == ambiguousPointer:
		return literal
	case fragment == "" || fragment[0] == '/':
		return wire.Quote("#" + pointer + fragment)
	}
	return wire.Quote("#" + fragment)
}

// editSchema replaces the direct subschemas of a schema by the results of the function made, and
// its other members by the results of the function member. A member is removed if keep is false.
func editSchema(schema []byte, pointer string,
	member func(key string, value []byte) (now []byte, keep bool),
	made func(inner []byte, pointer string) []byte) []byte {
	object := func(value []byte, pointer string) []byte {
		if !wire.IsObject(value) {
			return value
		}
		return made(value, pointer)
	}
	return editMembers(schema, func(key string, value []byte) (now []byte, keep bool) {
		isList := isArray(value) && hasSchemaList(key)
		if !isList && !wire.IsObject(value) || slices.Contains(dataMembers, key) {
			return member(key, value)
		}
		pointer := pointer + "/" + pointerToken(key)
		switch {
		case isList:
			n := -1
			return editElements(value, func(one []byte) []byte {
				n++
				return object(one, pointer+"/"+strconv.Itoa(n))
			}), true
		case hasSchemaMap(key):
			return editMembers(value, func(name string, one []byte) ([]byte, bool) {
				return object(one, pointer+"/"+pointerToken(name)), true
			}), true
		}
		return made(value, pointer), true
	})
}

// pointerToken returns name as a token of a JSON pointer in a URI.
func pointerToken(name string) string {
	return url.PathEscape(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
}

// editMembers replaces the members of an object by the results of the function made, and removes a
// member if keep is false. It returns object itself if nothing changes or if it is not an object.
func editMembers(
	object []byte, made func(key string, value []byte) (now []byte, keep bool),
) []byte {
	var b []byte // nil until the first change
	end := len("{")
	ok := wire.Members(object, func(key string, value []byte, at int) {
		now, keep := made(key, value)
		if b == nil && (!keep || !wire.SameSlice(now, value)) {
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

// editElements replaces the elements of an array by the results of the function made. It returns
// array itself if nothing changes or if it is not an array.
func editElements(array []byte, made func(one []byte) []byte) []byte {
	var all [][]byte
	changed := false
	wire.EachElement(array, func(one []byte) bool {
		now := made(one)
		changed = changed || !wire.SameSlice(now, one)
		all = append(all, now)
		return true
	})
	if !changed {
		return array
	}
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']')
}
