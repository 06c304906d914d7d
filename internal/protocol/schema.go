package protocol

import "mcpgateway/internal/wire"

// Keywords of all drafts of JSON Schema whose values contain schemas. The value of one of
// schemaKeywords is a schema or an array of schemas, the value of one of schemaMapKeywords an
// object whose values are schemas. Values of other keywords, such as const and default, are data.
var (
	schemaKeywords = map[string]bool{
		"items": true, "prefixItems": true, "additionalItems": true, "contains": true,
		"additionalProperties": true, "unevaluatedProperties": true, "unevaluatedItems": true,
		"propertyNames": true, "contentSchema": true,
		"oneOf": true, "anyOf": true, "allOf": true,
		"not": true, "if": true, "then": true, "else": true,
	}
	schemaMapKeywords = map[string]bool{
		"properties": true, "patternProperties": true,
		"dependentSchemas": true, "dependencies": true,
		"$defs": true, "definitions": true,
	}
)

// maxSchemaDepth is the number of levels of nested schemas that are visited, because each level is
// scanned again. Deeper schemas stay unchanged.
const maxSchemaDepth = 64

// eachSchema calls visit with each direct subschema, its keyword and, if it is in a map of schemas,
// its name.
func eachSchema(schema []byte, visit func(keyword, name string, inner []byte)) {
	wire.Members(schema, func(keyword string, value []byte, _ int) {
		switch {
		case schemaMapKeywords[keyword]:
			wire.Members(value, func(name string, inner []byte, _ int) {
				visit(keyword, name, inner)
			})
		case schemaKeywords[keyword] && value[0] == '[':
			wire.EachElement(value, func(inner []byte) bool {
				visit(keyword, "", inner)
				return true
			})
		case schemaKeywords[keyword]:
			visit(keyword, "", value)
		}
	})
}

// mapSchemas replaces a schema by the result of change, and then the subschemas of this result. If
// change returns false, the subschemas of its result are skipped. It returns schema itself if
// nothing changes.
func mapSchemas(schema []byte, change func(schema []byte) (to []byte, inside bool)) []byte {
	return mapSchemasDown(maxSchemaDepth, schema, change)
}

func mapSchemasDown(levels int, schema []byte,
	change func(schema []byte) (to []byte, inside bool)) []byte {
	if levels == 0 || !wire.IsObject(schema) {
		return schema
	}
	to, inside := change(schema)
	if !inside {
		return to
	}
	inner := func(schema []byte) []byte { return mapSchemasDown(levels-1, schema, change) }
	return mapMembers(to, func(keyword string, value []byte) []byte {
		switch {
		case schemaMapKeywords[keyword]:
			return mapMembers(value, func(_ string, schema []byte) []byte { return inner(schema) })
		case schemaKeywords[keyword] && value[0] == '[':
			return mapElements(value, func(_ int, schema []byte) [][]byte {
				return [][]byte{inner(schema)}
			})
		case schemaKeywords[keyword]:
			return inner(value)
		}
		return value
	})
}
