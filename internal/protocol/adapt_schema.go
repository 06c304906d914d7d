package protocol

import (
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// adaptOutputSchemas converts the outputSchema of each tool in a list to a schema of objects. If a
// tool's result is valid against the old schema, its conversion by [adaptStructured] is valid
// against the new schema.
func adaptOutputSchemas(tools []byte) []byte {
	return mapElements(tools, func(_ int, tool []byte) [][]byte {
		return [][]byte{mapMember(tool, "outputSchema", toObjectSchema)}
	})
}

// toObjectSchema converts a schema to one that accepts only objects. A value that is not an object
// is sent as {"result": value}, so the new schema describes this form. If the old schema may allow
// objects and other values, the new schema is an anyOf of the two forms. A schema with the type
// object, and a value that is neither an object nor true, is returned unchanged.
func toObjectSchema(schema []byte) []byte {
	types, may := rootType(schema)
	if types == `"object"` || !wire.IsObject(schema) && string(schema) != "true" {
		return schema
	}
	put := []wire.Member{{Key: "type", Text: []byte(`"object"`)}}
	if dialect, _ := wire.Lookup(schema, "$schema"); dialect != nil {
		put = append(put, wire.Member{Key: "$schema", Text: dialect})
		schema = dropMember(schema, "$schema")
	}
	if !may {
		inner := wire.Member{Key: "result", Text: relocateRefs(schema, "#/properties/result")}
		put = append(put, wire.Member{Key: "properties", Text: wire.EditObject(nil, nil, inner)},
			wire.Member{Key: "required", Text: []byte(`["result"]`)})
		return wire.EditObject(nil, nil, put...)
	}
	defs := wire.EditObject(nil, nil, wire.Member{Key: "value",
		Text: relocateRefs(schema, "#/$defs/value")})
	put = append(put, wire.Member{Key: "$defs", Text: defs}, wire.Member{Key: "anyOf", Text: []byte(
		`[{"$ref":"#/$defs/value"},` +
			`{"properties":{"result":{"$ref":"#/$defs/value"}},"required":["result"]}]`)})
	return wire.EditObject(nil, nil, put...)
}

// rootType returns the JSON text of a schema's type, "" if the type is absent or a list, and
// reports whether the schema may accept an object.
func rootType(schema []byte) (types string, may bool) {
	value, _ := wire.Lookup(schema, "type")
	switch {
	case value == nil:
		return "", true
	case value[0] == '[':
		return "", slices.ContainsFunc(wire.Elements(value), func(t []byte) bool {
			return wire.Unquote(t) == "object"
		})
	}
	return string(value), wire.Unquote(value) == "object"
}

// relocateRefs adapts the local references of a schema that becomes the subschema of another schema
// at the given JSON pointer. References inside a schema with an $id are relative to that schema and
// stay. References to anchors are valid everywhere. Objects in unknown keywords are treated as
// schemas, because references may point there. The depth of the recursion is the nesting of the
// schema, which package catalog bounds.
func relocateRefs(schema []byte, pointer string) []byte {
	switch {
	case schema[0] == '[':
		return mapElements(schema, func(_ int, one []byte) [][]byte {
			return [][]byte{relocateRefs(one, pointer)}
		})
	case schema[0] != '{' || stringMember(schema, "$id") != "":
		return schema
	}
	return mapMembers(schema, func(keyword string, value []byte) []byte {
		switch {
		case keyword == "$ref" && value[0] == '"':
			switch ref := wire.Unquote(value); {
			case ref == "" || ref == "#" || ref == "#/": // Ajv treats "#/" as "#"
				return wire.Quote(pointer)
			case strings.HasPrefix(ref, "#/"):
				return wire.Quote(pointer + ref[1:])
			}
			return value
		case schemaMapKeywords[keyword] && value[0] == '{':
			return mapMembers(value, func(_ string, one []byte) []byte {
				return relocateRefs(one, pointer)
			})
		case keyword == "const" || keyword == "enum" || keyword == "default" ||
			keyword == "examples":
			return value
		}
		return relocateRefs(value, pointer)
	})
}
