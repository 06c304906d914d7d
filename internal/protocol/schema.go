package protocol

import "mcpgateway/internal/wire"

// Keywords of JSON Schema whose values are schemas, of any of its drafts: one or an
// array of them, or an object that has some by name. What other keywords have, say
// const or default, is data, whatever it looks like.
var (
	holdsSchemas = map[string]bool{
		"items": true, "prefixItems": true, "additionalItems": true, "contains": true,
		"additionalProperties": true, "unevaluatedProperties": true, "unevaluatedItems": true, "propertyNames": true,
		"oneOf": true, "anyOf": true, "allOf": true, "not": true, "if": true, "then": true, "else": true,
		"contentSchema": true,
	}
	namesSchemas = map[string]bool{
		"properties": true, "patternProperties": true, "dependentSchemas": true, "dependencies": true,
		"$defs": true, "definitions": true,
	}
)

// maxSchemas bounds how deep schemas are looked for in schemas: each level is read
// anew. What lies deeper is left as it is.
const maxSchemas = 64

// eachSchema calls visit with each schema that stands right in another one, the
// keyword by which it does, and its name, if it has one.
func eachSchema(schema []byte, visit func(keyword, name string, inner []byte)) {
	wire.Members(schema, func(keyword string, value []byte, _ int) {
		switch {
		case namesSchemas[keyword]:
			wire.Members(value, func(name string, inner []byte, _ int) { visit(keyword, name, inner) })
		case holdsSchemas[keyword] && value[0] == '[':
			wire.EachElement(value, func(inner []byte) bool { visit(keyword, "", inner); return true })
		case holdsSchemas[keyword]:
			visit(keyword, "", value)
		}
	})
}

// mapSchemas returns a schema in which each one, itself first, is what change makes of
// it; inside says whether those in it are looked at, too. If change returns all as they
// are, it is the same slice.
func mapSchemas(schema []byte, change func(schema []byte) (to []byte, inside bool)) []byte {
	return mapSchemasTo(maxSchemas, schema, change)
}

func mapSchemasTo(levels int, schema []byte, change func(schema []byte) (to []byte, inside bool)) []byte {
	if levels == 0 || !wire.IsObject(schema) {
		return schema
	}
	to, inside := change(schema)
	if !inside {
		return to
	}
	inner := func(schema []byte) []byte { return mapSchemasTo(levels-1, schema, change) }
	return mapMembers(to, func(keyword string, value []byte) []byte {
		switch {
		case namesSchemas[keyword]:
			return mapMembers(value, func(_ string, schema []byte) []byte { return inner(schema) })
		case holdsSchemas[keyword] && value[0] == '[':
			return mapElements(value, func(_ int, schema []byte) [][]byte { return [][]byte{inner(schema)} })
		case holdsSchemas[keyword]:
			return inner(value)
		}
		return value
	})
}
